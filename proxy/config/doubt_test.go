package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

// TestWarnings: a suspicious but valid setting is reported and can be used.
func TestWarnings(t *testing.T) {
	one := func(keys string) string {
		return "listeners: [{name: a, bind: ':1', upstream: u, " + keys + "}]\nupstreams: [{name: u, endpoints: ['h:1']}]\n"
	}
	const zone = "endpoints: [{address: 'h:1', zone: berlin}, 'h:2'], zone_aware: "
	for _, c := range []struct {
		text string
		want []string
	}{
		{smallest, nil},
		{"lane: {sessions: 64}\n" + smallest, []string{"1:7: no listener has sessions leave user space | write lane: auto at a listener, or leave it out"}},
		{"lane: {pins: /sys/fs/bpf/lane}\n" + smallest, []string{
			"1:7: no listener has sessions leave user space | write lane: auto at a listener; to leave it out run penstock lane flush before, or sessions that are pinned there go on without any process",
		}},
		// Weights and backups.
		{upstream("endpoints: [{address: 'h:1', weight: 0}, 'h:2']"), nil},
		{upstream("endpoints: ['h:1'], source_address: 10.9.9.8"), nil},
		{upstream("endpoints: ['h:1'], source_address: 10.9.9.9"), []string{
			"2:59: 10.9.9.9 is no address of this machine now | write an address of this machine, or leave it out: while it has not this one, no endpoint can be connected to",
		}},
		{upstream("endpoints: [{address: 'h:1', weight: 0}], fallback: {respond: a}"), []string{
			"2:34: every endpoint has weight 0: all clients get the fallback | write weight: 1 at one of them",
		}},
		{upstream("endpoints: [{address: 'h:1', backup: true}, {address: 'h:2', backup: true}]"), []string{
			"2:34: every endpoint is a backup: they are used as if none was | leave backup out",
		}},
		{upstream("endpoints: [{address: 'h:1', backup: true}, 'h:2']"), nil},
		{upstream("endpoints: [{address: 'h:1', backup: true}, 'h:2'], backup_when: full"), []string{
			"2:88: backup_when: full changes nothing: no endpoint of the upstream u that is no backup has a limit | write connections: at the endpoints that are no backups, or backup_when: down",
		}},
		{upstream("discover: {dns: {name: x}}, backup_when: full"), []string{
			"2:64: backup_when: full changes nothing: no endpoint of the upstream u that is no backup has a limit | write connections: at the endpoints that are no backups, or backup_when: down",
		}},
		{upstream("discover: {file: {path: x}}, backup_when: full"), nil},
		{upstream("endpoints: [{address: 'h:1', backup: true}, {address: 'h:2', connections: 1}], backup_when: full"), nil},
		{upstream("endpoints: [{address: 'h:1', backup: true, connections: 1}, 'h:2'], backup_when: down"), nil},
		// Upstreams.
		{"listeners: [{name: a, bind: ':1', upstream: u, routes: [{match: {sni: [x]}, upstream: w}, {match: {sni: [y]}, split: [{upstream: u, percent: 100}, {upstream: x, percent: 0}]}]}]\n" + `upstreams:
- {name: u, endpoints: ['h:1'], fallback: {upstream: v}}
- {name: v, endpoints: ['h:1']}
- {name: w, endpoints: ['h:1']}
- {name: x, endpoints: ['h:1']}
- {name: y, endpoints: ['h:1'], fallback: {upstream: z}}
- {name: z, endpoints: ['h:1']}
`, []string{
			"7:10: no client gets to the upstream y | write upstream: y at a listener or a route, or leave it out",
			"8:10: no client gets to the upstream z | write upstream: z at a listener or a route, or leave it out",
		}},
		// Addresses.
		{upstream("endpoints: ['h:1', {name: a, address: 'H:1'}, {name: b, address: '[::1]:3'}, '[0::1]:3', {name: c, address: 'unix:/a'}, 'unix:/./a', 'h:2', 'unix:/h:1']"), []string{
			"2:61: H:1 is the address of the endpoint h:1 in /etc/p.yaml:2:35 too | leave one out, and give the other more weight",
			"2:100: [0::1]:3 is the address of the endpoint b in /etc/p.yaml:2:88 too | leave one out, and give the other more weight",
			"2:143: unix:/./a is the address of the endpoint c in /etc/p.yaml:2:131 too | leave one out, and give the other more weight",
		}},
		// Zones.
		{upstream(zone + "{local: berlni}"), []string{`2:95: no endpoint is in the zone berlni | did you mean "berlin"?`}},
		{upstream(zone + "{local: a}"), []string{"2:95: no endpoint is in the zone a | write zone: a at those that are, or leave zone_aware out"}},
		{upstream(zone + "{local: berlin}"), nil},
		{upstream(zone + "{}"), nil},
		{upstream("discover: {dns: {name: x}}, zone_aware: {local: a}"), nil},
		// Queues.
		{upstream("endpoints: ['h:1'], queue: {size: 5}"), nil},
		{upstream("endpoints: ['h:1'], queue: {size: 5, hold: 0}"), []string{
			"2:57: no client would ever wait in the queue: nothing limits the connections of the upstream u | write connections: at the endpoints, or in circuit_breaker, or leave queue out",
		}},
		{upstream("discover: {dns: {name: x}}, queue: {size: 5}, circuit_breaker: off, fallback: {respond: a}"), []string{
			"2:65: no client would ever wait in the queue: nothing limits the connections of the upstream u | write connections: at the endpoints, or in circuit_breaker, or leave queue out",
		}},
		{upstream("endpoints: ['h:1', {address: 'h:2', connections: 1}], queue: {size: 5, hold: 0}"), nil},
		{upstream("endpoints: ['h:1'], queue: {size: 5, hold: 0}, circuit_breaker: {connections: 1}"), nil},
		{upstream("endpoints: ['h:1'], queue: {size: 5, hold: 0}, circuit_breaker: {pending: 1}"), nil},
		{upstream("discover: {file: {path: x}}, queue: {size: 5, hold: 0}"), nil},
		{upstream("endpoints: ['h:1'], queue: {size: 0}"), nil},
		{upstream("endpoints: ['h:1'], fallback: {respond: a}, queue: {hold: 1s}"), []string{
			"2:81: no client is held: the fallback of the upstream u gets them at once | leave hold out, or fallback",
		}},
		{upstream("endpoints: ['h:1'], fallback: {respond: a}, queue: {hold: 0}"), nil},
		// Retries.
		{upstream("endpoints: ['h:1'], retry: {attempts: 20}"), []string{
			"2:61: attempts is 20, which is more than the budget grants: if all their endpoints fail, clients have 30 retries within 10s together, or 0.2 for each if that is more | write attempts: 15 or less",
		}},
		{upstream("endpoints: ['h:1'], retry: {attempts: 15}"), nil},
		{upstream("endpoints: ['h:1'], retry: {attempts: 1, budget: 0}"), []string{
			"2:61: a budget of 0 leaves no client any of its 1 attempts | write a budget such as 0.2, or attempts: 0",
		}},
		{upstream("endpoints: ['h:1'], retry: {attempts: 0, budget: 0}"), nil},
		{upstream("endpoints: ['h:1'], retry: {budget: 0}"), nil},
		// Bandwidth.
		{listener("limits: {bandwidth: {burst: 1MiB}}"), []string{
			"1:76: nothing limits the bandwidth, so the burst changes nothing | write both:, up: or down: as well, or leave it out",
			"2:51: no client gets to the upstream v | write upstream: v at a listener or a route, or leave it out",
		}},
		// Parts and percent.
		{upstream("endpoints: ['h:1'], outlier_detection: {failure_percentage: 0.6}, circuit_breaker: {failure_percentage: 0.25}"), []string{
			"2:83: failure_percentage is 0.6 of 100 | write 60 for that part of all",
			"2:127: failure_percentage is 0.25 of 100 | write 25 for that part of all",
		}},
		{upstream("endpoints: ['h:1'], outlier_detection: {failure_percentage: 1}, circuit_breaker: {failure_percentage: 0}"), nil},
		// Times.
		{one("timeouts: {first_byte: 2m, idle: 1m}"), []string{"1:71: first_byte is 2m0s, and idle, which ends such connections first, is 1m0s | make first_byte shorter or idle longer"}},
		{one("timeouts: {first_byte: 2h}"), []string{"1:71: first_byte is 2h0m0s, and idle, which ends such connections first, is 1h0m0s | make first_byte shorter or idle longer"}},
		{one("timeouts: {first_byte: 2h, idle: 0}"), nil},
		{one("timeouts: {idle: 1s}"), nil},
		// Access.
		{one("allow: [10.0.0.0/8, ::1], deny: [10.0.0.0/7, ::/0]"), []string{"1:55: all clients are refused: deny has all that allow has | leave some out of deny"}},
		{one("allow: [10.0.0.0/8, 127.0.0.1], deny: [10.0.0.0/7]"), nil},
		// Zones, files.
		{upstream("endpoints: ['h:1'], zone_aware: {spill_below: 0.5}"), []string{"2:69: zones do not matter, for local is empty | write local: and the zone that this process is in"}},
		{upstream("discover: {file: {path: none}}"), []string{"2:47: there is no file /etc/none | make it, or write another path: until it is there the upstream has no endpoint"}},
		{upstream("endpoints: ['h:1'], queue: {size: 0, hold: 3s}"), []string{"2:66: no client is held: the queue of the upstream u has no places | write a size such as 1000, or leave both out"}},
		// Checks.
		{upstream("endpoints: ['h:1'], health_check: {timeout: 6s}"), []string{
			"2:67: timeout is 6s, more than interval, which is 5s: an endpoint that does not answer is asked less often than that | make timeout shorter or interval longer",
		}},
		{upstream("endpoints: ['h:1'], health_check: {timeout: 5s}"), nil},
		{upstream("endpoints: ['h:1'], health_check: {interval: 1s}"), nil}, // no timeout was written
	} {
		cfg, problems := config.LoadTree(config.Tree{"/etc/p.yaml": c.text, "/etc/a": "sorry"}, "/etc/p.yaml", variables())
		if len(problems) > 0 {
			t.Errorf("%s\n%v", c.text, problems)
			continue
		}
		var got []string
		for _, w := range cfg.Warnings {
			got = append(got, short(w))
			if first, _, _ := strings.Cut(w.String(), "\n"); !w.Warning || !strings.Contains(first, ": warning: ") || !strings.Contains(w.Error(), ": warning: ") {
				t.Errorf("this is no warning: %v", w)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s\n got %s\nwant %s", c.text, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

// TestWarningsAreBounded: the number of warnings is limited.
func TestWarningsAreBounded(t *testing.T) {
	var more strings.Builder
	for i := range 1200 {
		fmt.Fprintf(&more, "- {name: u%d, endpoints: ['h:1']}\n", i)
	}
	text := "listeners: [{name: db, bind: ':5432', upstream: pg}]\nupstreams:\n- {name: pg, endpoints: ['h:1']}\n" + more.String()
	if cfg := load(t, text); len(cfg.Warnings) != 1000 {
		t.Errorf("%d warnings", len(cfg.Warnings))
	}
}

// TestWarningsOfIncludes: warnings are given for a file that includes itself, directly or by
// others, and for a pattern that matches nothing. There is none if files may be added later.
func TestWarningsOfIncludes(t *testing.T) {
	for _, c := range []struct {
		include string
		want    []string
	}{
		{"p.yaml", []string{"/etc/p.yaml:1:11: warning: this file includes itself, which adds nothing: leave it out"}},
		{"./sub/../p.yaml", []string{"/etc/p.yaml:1:11: warning: this file includes itself, which adds nothing: leave it out"}},
		{"round.yaml", []string{"/etc/round.yaml:1:11: warning: /etc/p.yaml includes this file already, so this adds nothing: leave it out"}},
		{"*.yml", []string{"/etc/p.yaml:1:11: warning: *.yml matches no other file: write a pattern that matches the names of files, or leave it out"}},
		{"p.*", []string{"/etc/p.yaml:1:11: warning: p.* matches no other file: write a pattern that matches the names of files, or leave it out"}},
		{"none/*.yaml", []string{"/etc/p.yaml:1:11: warning: there is no directory /etc/none: make it, write another one, or leave it out"}},
		{"conf.d/*.yaml", nil},
		{"twice.yaml", nil},
		{"more.*", nil},
	} {
		cfg := loadTree(t, config.Tree{
			"/etc/p.yaml": "include: ['" + c.include + "']\n" + smallest, "/etc/round.yaml": "include: [p.yaml]\n", "/etc/more.yaml": "limits: {per_second: 5}\n",
			"/etc/twice.yaml": "include: [more.yaml, again.yaml]\n", "/etc/again.yaml": "include: [more.yaml]\n",
		})
		var got []string
		for _, w := range cfg.Warnings {
			got = append(got, w.Error())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.include, got, c.want)
		}
	}
	told(t, config.Tree{}, "include: [d]\n"+smallest, []string{"1:11: there is no file /etc/d | write the name of a file that is there, or a pattern"})
	if _, problems := config.Load(t.TempDir(), nil); len(problems) != 1 {
		t.Errorf("a directory: %v", problems)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "p.yaml")
	if err := os.WriteFile(path, []byte("include: [.]\n"+smallest), 0o600); err != nil {
		t.Fatal(err)
	}
	_, problems := config.Load(path, nil)
	if len(problems) != 1 || short(problems[0]) != "1:11: "+dir+" is a directory | write *.yaml" {
		t.Errorf("an included directory: %v", problems)
	}
}
