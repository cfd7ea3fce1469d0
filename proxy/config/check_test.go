package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	selfsigned "github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/proxy/config"
)

// warned compares the warnings of a text, in short form, with the expected ones.
func warned(t *testing.T, text string, want ...string) {
	t.Helper()
	got := shorts(load(t, text).Warnings)
	if !slices.Equal(got, want) {
		t.Errorf("%s\n got %s\nwant %s", text, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// TestCoveredRoutes: a route is warned of if and only if an earlier one matches all of its
// clients.
func TestCoveredRoutes(t *testing.T) {
	for _, c := range []struct {
		first, second string
		covered       bool
	}{
		{"sni: ['*.b']", "sni: [c.b]", true},
		{"sni: ['*.b']", "sni: ['*.c.b', d.e.b]", true},
		{"sni: ['*.b', x]", "sni: [X, c.b]", true},
		{"sni: ['*']", "sni: ['*.c']", true},
		{"sni: ['*.b']", "sni: [b]", false},
		{"sni: ['*.b']", "sni: [cb]", false},
		{"sni: ['*.c.b']", "sni: ['*.b']", false},
		{"sni: ['*.b']", "sni: [c.b, d]", false},
		{"sni: ['*.b']", "sni: ['*']", false},
		{"sni: ['*']", "alpn: [h2]", false},
		{"source: [10.0.0.0/8]", "source: [10.1.0.0/16]", true},
		{"source: [10.0.0.0/8, 11.0.0.0/8]", "source: [10.1.0.0/16, 11.0.0.1]", true},
		{"source: [10.1.0.0/16]", "source: [10.0.0.0/8]", false},
		{"source: [10.0.0.0/16]", "source: [10.0.0.0/8]", false},
		{"source: [10.0.0.0/8]", "source: [10.1.0.0/16, 192.0.2.1]", false},
		{"source: ['::/0']", "source: [10.0.0.0/8]", false},
		{"source: [0.0.0.0/0, '::/0']", "sni: [x]", false}, // a client of a unix socket has no source
		{"alpn: [h2, x]", "alpn: [h2], sni: [a]", true},
		{"alpn: [h2]", "alpn: [h2, x]", false},
		{"port: 1", "port: 1, sni: [a]", true},
		{"port: 1", "sni: [a]", false},
		{"port: 1, sni: ['*.b']", "sni: [c.b]", false},
		{"sni: ['*.b']", "sni: [c.b], port: 1, alpn: [h2], source: [10.0.0.0/8]", true},
		{"protocol: [ssh, http1]", "host: [a]", true},
		{"protocol: [http1]", "path: [/a], port: 1", true},
		{"protocol: [ssh]", "protocol: [ssh, redis]", false},
		{"protocol: [ssh]", "host: [a]", false},
		{"host: ['*.b']", "host: [c.b], path: [/a]", true},
		{"host: [b], path: [/a]", "host: [b]", false},
		{"path: [/a/*]", "path: [/a/b, /a/c/*]", true},
		{"path: [/a/*]", "path: [/a]", false},
		{"path: ['/*']", "path: [/]", true},
		{"user: [a, b]", "user: [b], database: [c]", true},
		{"bytes: [{text: ab}]", "bytes: [{hex: '6162'}, {text: b}]", false},
	} {
		text := fmt.Sprintf("listeners:\n- name: a\n  bind: ':1'\n  routes:\n  - {match: {%s}, upstream: u}\n  - {match: {alpn: [zzz]}, upstream: w}\n  - {match: {%s}, upstream: v}", c.first, c.second) +
			"\nupstreams: [{name: u, endpoints: ['h:1']}, {name: v, endpoints: ['h:1']}, {name: w, endpoints: ['h:2']}]\n"
		if c.covered {
			warned(t, text, "7:5: this route is never reached: the route in line 5 matches all its clients | put it before that route, or leave it out")
		} else {
			warned(t, text)
		}
	}
}

// TestManyRoutes: the number of comparisons is limited.
func TestManyRoutes(t *testing.T) {
	ln := &config.Listener{Routes: make([]config.Route, 20_000)}
	for i := range ln.Routes {
		ln.Routes[i].Match.SNI = []string{fmt.Sprint("a", i), "b"}
	}
	if n := config.Compared(ln); n > 1_000_100 {
		t.Errorf("%d comparisons", n)
	}
}

// TestSocketsWithoutDirectory: the directory of a socket is checked.
func TestSocketsWithoutDirectory(t *testing.T) {
	warned(t, "admin: {bind: 'unix:/none/a'}\nlisteners: [{name: a, bind: ['unix:/none/s?mode=0600', 'unix:/x/s', 'unix:@none/s', ':1', 'systemd:x'], upstream: u}]\nupstreams: [{name: u, endpoints: ['unix:/none/e']}]\n",
		"1:15: this machine has no directory /none | make the directory before penstock run, or write another path",
		"2:30: this machine has no directory /none | make the directory before penstock run, or write another path")
	warned(t, "admin: {bind: 'unix:/hung/a'}"+smallest, "1:15: stat /hung: i/o timeout | wait until it answers, or write another path")
}

// TestSessionLogWithoutDirectory: the directory of a session log is checked, and that it is none itself.
func TestSessionLogWithoutDirectory(t *testing.T) {
	warned(t, "session_log: {to: /none/sessions.log}"+smallest,
		"1:19: this machine has no directory /none | make the directory before penstock run, or write another path")
	warned(t, "session_log: {to: /hung/sessions.log}"+smallest, "1:19: stat /hung: i/o timeout | wait until it answers, or write another path")
	for _, to := range []string{"/x/sessions.log", "stderr", "journald", "'syslog+unix:/none/log'", "'syslog+udp://192.0.2.1:514'"} {
		warned(t, "session_log: {to: "+to+"}"+smallest)
	}
	for to, want := range map[string]string{
		"/var/log": "/var/log is a directory | write the path of a file in it", "/dev/disk": "/dev/disk is a block device | write the path of a file",
		"/run/socket": "/run/socket is a socket | write syslog+unix:/run/socket, or journald:/run/socket",
	} {
		told(t, config.Tree{}, "session_log: {to: "+to+"}"+smallest, []string{"1:19: " + want})
	}
}

// TestSessionLogWithoutLines: a line is asked for that only or slower_than leaves out.
func TestSessionLogWithoutLines(t *testing.T) {
	const (
		start = "at: start has no effect with only: failed or slower_than, because a session that begins has neither failed nor lasted | leave start out, or only and slower_than"
		every = "every has no effect with only: failed, because a session that goes on has not failed | leave every out, or only"
	)
	for keys, want := range map[string][]string{
		"at: start, only: failed":                 {"1:40: " + start},
		"at: [start, end], slower_than: 1s":       {"1:40: " + start},
		"at: [start], every: 10s, only: failed":   {"1:40: " + start, "1:56: " + every},
		"at: end, every: 10s, slower_than: 1s":    nil,
		"at: [start, end], every: 10s, share: 10": nil,
		"at: end, only: failed":                   nil,
	} {
		warned(t, "session_log: {to: /x/sessions.log, "+keys+"}"+smallest, want...)
	}
}

// TestNobodyIsLetThrough: a listener without a destination is suspicious, but loads.
func TestNobodyIsLetThrough(t *testing.T) {
	warned(t, "listeners: [{name: a, bind: ':1'}]\n",
		"1:13: every client is refused: there is neither a route nor an upstream | write upstream: and the name of an upstream")
}

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
		{"lane: {sessions: 64}\n" + smallest, []string{"1:7: no listener uses the lane | write lane: auto at a listener, or leave it out"}},
		{"lane: {pins: /sys/fs/bpf/lane}\n" + smallest, []string{
			"1:7: no listener uses the lane | write lane: auto at a listener. Before you leave lane out, run penstock lane flush: pinned sessions would continue without any process",
		}},
		// Weights and backups.
		{upstream("endpoints: [{address: 'h:1', weight: 0}, 'h:2']"), nil},
		{upstream("endpoints: ['h:1'], source_address: 10.9.9.8"), nil},
		{upstream("endpoints: ['h:1'], source_address: 10.9.9.9"), []string{
			"2:59: this machine does not have the address 10.9.9.9 now | write an address of this machine, or leave it out: without this address no endpoint can be reached",
		}},
		{upstream("endpoints: [{address: 'h:1', weight: 0}], fallback: {respond: a}"), []string{
			"2:34: every endpoint has weight 0: all clients get the fallback | write weight: 1 at an endpoint",
		}},
		{upstream("endpoints: [{address: 'h:1', backup: true}, {address: 'h:2', backup: true}]"), []string{
			"2:34: every endpoint is a backup: all are used like ordinary endpoints | leave backup out",
		}},
		{upstream("endpoints: [{address: 'h:1', backup: true}, 'h:2']"), nil},
		{upstream("endpoints: [{address: 'h:1', backup: true}, 'h:2'], backup_when: full"), []string{
			"2:88: backup_when: full has no effect: in the upstream u only backups have a limit of connections | write connections: at the other endpoints, or backup_when: down",
		}},
		{upstream("discover: {dns: {name: x}}, backup_when: full"), []string{
			"2:64: backup_when: full has no effect: in the upstream u only backups have a limit of connections | write connections: at the other endpoints, or backup_when: down",
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
			"7:10: no client reaches the upstream y | write upstream: y at a listener or a route, or leave the upstream out",
			"8:10: no client reaches the upstream z | write upstream: z at a listener or a route, or leave the upstream out",
		}},
		// Addresses.
		{upstream("endpoints: ['h:1', {name: a, address: 'H:1'}, {name: b, address: '[::1]:3'}, '[0::1]:3', {name: c, address: 'unix:/a'}, 'unix:/./a', 'h:2', 'unix:/h:1']"), []string{
			"2:61: H:1 is also the address of the endpoint h:1 in /etc/p.yaml:2:35 | leave one out, and give the other more weight",
			"2:100: [0::1]:3 is also the address of the endpoint b in /etc/p.yaml:2:88 | leave one out, and give the other more weight",
			"2:143: unix:/./a is also the address of the endpoint c in /etc/p.yaml:2:131 | leave one out, and give the other more weight",
		}},
		// Zones.
		{upstream(zone + "{local: berlni}"), []string{`2:95: no endpoint is in the zone berlni | did you mean "berlin"?`}},
		{upstream(zone + "{local: a}"), []string{"2:95: no endpoint is in the zone a | write zone: a at the endpoints in it, or leave zone_aware out"}},
		{upstream(zone + "{local: berlin}"), nil},
		{upstream(zone + "{}"), nil},
		{upstream("discover: {dns: {name: x}}, zone_aware: {local: a}"), nil},
		// Queues.
		{upstream("endpoints: ['h:1'], queue: {size: 5}"), nil},
		{upstream("endpoints: ['h:1'], queue: {size: 5, hold: 0}"), []string{
			"2:57: no client will wait in the queue, because nothing limits the connections of the upstream u | write connections: at the endpoints, or in circuit_breaker, or leave queue out",
		}},
		{upstream("discover: {dns: {name: x}}, queue: {size: 5}, circuit_breaker: off, fallback: {respond: a}"), []string{
			"2:65: no client will wait in the queue, because nothing limits the connections of the upstream u | write connections: at the endpoints, or in circuit_breaker, or leave queue out",
		}},
		{upstream("endpoints: ['h:1', {address: 'h:2', connections: 1}], queue: {size: 5, hold: 0}"), nil},
		{upstream("endpoints: ['h:1'], queue: {size: 5, hold: 0}, circuit_breaker: {connections: 1}"), nil},
		{upstream("endpoints: ['h:1'], queue: {size: 5, hold: 0}, circuit_breaker: {pending: 1}"), nil},
		{upstream("discover: {file: {path: x}}, queue: {size: 5, hold: 0}"), nil},
		{upstream("endpoints: ['h:1'], queue: {size: 0}"), nil},
		{upstream("endpoints: ['h:1'], fallback: {respond: a}, queue: {hold: 1s}"), []string{
			"2:81: hold has no effect: the fallback of the upstream u gets the clients at once | leave out hold or fallback",
		}},
		{upstream("endpoints: ['h:1'], fallback: {respond: a}, queue: {hold: 0}"), nil},
		// Retries.
		{upstream("endpoints: ['h:1'], retry: {attempts: 20}"), []string{
			"2:61: attempts is 20, more than the budget allows: if all endpoints fail, all clients together get 30 retries within 10s, or 0.2 per client if that is more | write attempts: 15 or less",
		}},
		{upstream("endpoints: ['h:1'], retry: {attempts: 15}"), nil},
		{upstream("endpoints: ['h:1'], retry: {attempts: 1, budget: 0}"), []string{
			"2:61: with a budget of 0 no client gets any of its 1 attempts | write a budget such as 0.2, or attempts: 0",
		}},
		{upstream("endpoints: ['h:1'], retry: {attempts: 0, budget: 0}"), nil},
		{upstream("endpoints: ['h:1'], retry: {budget: 0}"), nil},
		// Bandwidth.
		{listener("limits: {bandwidth: {burst: 1MiB}}"), []string{
			"1:76: burst has no effect, because nothing limits the bandwidth | write both:, up: or down: as well, or leave burst out",
			"2:51: no client reaches the upstream v | write upstream: v at a listener or a route, or leave the upstream out",
		}},
		// Parts and percent.
		{upstream("endpoints: ['h:1'], outlier_detection: {failure_percentage: 0.6}, circuit_breaker: {failure_percentage: 0.25}"), []string{
			"2:83: failure_percentage is a percentage: 0.6 means 0.6 % | write 60 if you mean this percentage",
			"2:127: failure_percentage is a percentage: 0.25 means 0.25 % | write 25 if you mean this percentage",
		}},
		{upstream("endpoints: ['h:1'], outlier_detection: {failure_percentage: 1}, circuit_breaker: {failure_percentage: 0}"), nil},
		// Times.
		{one("timeouts: {first_byte: 2m, idle: 1m}"), []string{"1:71: first_byte is 2m0s and never takes effect, because idle ends such connections after 1m0s | make first_byte shorter or idle longer"}},
		{one("timeouts: {first_byte: 2h}"), []string{"1:71: first_byte is 2h0m0s and never takes effect, because idle ends such connections after 1h0m0s | make first_byte shorter or idle longer"}},
		{one("timeouts: {first_byte: 2h, idle: 0}"), nil},
		{one("timeouts: {idle: 1s}"), nil},
		// Access.
		{one("allow: [10.0.0.0/8, ::1], deny: [10.0.0.0/7, ::/0]"), []string{"1:55: all clients are refused: deny has every source of allow | leave some sources out of deny"}},
		{one("allow: [10.0.0.0/8, 127.0.0.1], deny: [10.0.0.0/7]"), nil},
		// Zones, files.
		{upstream("endpoints: ['h:1'], zone_aware: {spill_below: 0.5}"), []string{"2:69: zones have no effect, because local is empty | write local: and the zone of this process"}},
		{upstream("discover: {file: {path: none}}"), []string{"2:47: there is no file /etc/none | make the file, or write another path: without the file the upstream has no endpoint"}},
		{upstream("endpoints: ['h:1'], queue: {size: 0, hold: 3s}"), []string{"2:66: hold has no effect: the queue of the upstream u has size 0 | write a size such as 1000, or leave size and hold out"}},
		// Checks.
		{upstream("endpoints: ['h:1'], health_check: {timeout: 6s}"), []string{
			"2:67: timeout is 6s, longer than interval (5s): an endpoint that does not answer is checked less often than interval says | make timeout shorter or interval longer",
		}},
		{upstream("endpoints: ['h:1'], health_check: {timeout: 5s}"), nil},
		{upstream("endpoints: ['h:1'], health_check: {interval: 1s}"), nil}, // no timeout was written
		{upstream(`endpoints: ['h:1'], health_check: {send: '\0\x24', expect: "\0\r\n"}`), []string{
			`2:64: send has the characters \0, not the byte: only in double quotes YAML replaces them | write it in double quotes`,
		}},
		{upstream(`endpoints: ['h:1'], health_check: {type: http, http: {body: a\n}}`), []string{
			`2:83: body has the characters \n, not the byte: only in double quotes YAML replaces them | write it in double quotes`,
		}},
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
		{"none/*.yaml", []string{"/etc/p.yaml:1:11: warning: there is no directory /etc/none: make the directory, write another directory, or leave it out"}},
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
	told(t, config.Tree{}, "include: [d]\n"+smallest, []string{"1:11: there is no file /etc/d | use the name of an existing file, or a pattern"})
	if _, problems := config.Load(t.TempDir(), nil); len(problems) != 1 {
		t.Errorf("a directory: %v", problems)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "p.yaml")
	must(t, os.WriteFile(path, []byte("include: [.]\n"+smallest), 0o600))
	_, problems := config.Load(path, nil)
	if len(problems) != 1 || short(problems[0]) != "1:11: "+dir+" is a directory | write *.yaml" {
		t.Errorf("an included directory: %v", problems)
	}
}

// TestCircles: clients that listeners would send to each other without end.
func TestCircles(t *testing.T) {
	const fix = " | write another upstream, or another bind"
	for what, c := range map[string]struct {
		listeners, upstreams []string
		want                 []string
	}{
		"by another": {
			[]string{"{name: a, bind: ':1', upstream: u}", "{name: b, bind: '127.0.0.1:2', upstream: v}"},
			[]string{"{name: u, endpoints: ['127.0.0.1:2']}", "{name: v, endpoints: ['10.0.0.1:1', '[::1]:1']}"},
			[]string{"2:35: connections would go in a circle: listener a → upstream u (127.0.0.1:2) → listener b → upstream v ([::1]:1) → listener a" + fix},
		},
		"by a zone, which the kernel ignores": {
			[]string{"{name: a, bind: '[::1]:1', upstream: u}"},
			[]string{"{name: u, endpoints: ['[::1%lo]:1']}"},
			[]string{"2:40: connections would go in a circle: [::1%lo]:1 is an endpoint of u, and an address of this listener" + fix},
		},
		"by the number of an interface": {
			[]string{"{name: a, bind: '[fe80::1%lo]:1', upstream: u}"},
			[]string{"{name: u, endpoints: ['[fe80::1%1]:1']}"},
			[]string{"2:47: connections would go in a circle: [fe80::1%1]:1 is an endpoint of u, and an address of this listener" + fix},
		},
		"by the port of checks": {
			[]string{"{name: a, bind: '[::1]:1', upstream: u}"},
			[]string{"{name: u, endpoints: ['h:2', '[::1]:2'], health_check: {port: 1}}"},
			[]string{"4:65: [::1]:1 is the listener a: checks of [::1]:2 would be its clients | write another port, or leave it out"},
		},
		"by the port of checks, though the listener leads on": {
			[]string{"{name: a, bind: '[::1]:1', upstream: v}"},
			[]string{"{name: u, endpoints: ['[::1]:2'], health_check: {port: 1}}", "{name: v, endpoints: ['h:2']}"},
			[]string{"4:58: [::1]:1 is the listener a: checks of [::1]:2 would be its clients | write another port, or leave it out"},
		},
		"none: the port of checks is the endpoint's own": {
			[]string{"{name: a, bind: '[::1]:1', upstream: v}"},
			[]string{"{name: u, endpoints: ['[::1]:1'], health_check: {port: 1}}", "{name: v, endpoints: ['h:2']}"},
			nil,
		},
		"by the upstream's own address, to which the kernel connects": {
			[]string{"{name: a, bind: '127.0.0.2:1', upstream: u}"},
			[]string{"{name: u, source_address: 127.0.0.2, endpoints: ['0.0.0.0:1']}"},
			[]string{"2:44: connections would go in a circle: 0.0.0.0:1 is an endpoint of u, and an address of this listener" + fix},
		},
		"none: the loopback is another address than the upstream's own": {
			[]string{"{name: a, bind: '127.0.0.1:1', upstream: u}", "{name: b, bind: '127.0.0.2:1', upstream: v}"},
			[]string{"{name: u, source_address: 127.0.0.3, endpoints: ['0.0.0.0:1']}", "{name: v, endpoints: ['0.0.0.0:1']}"},
			nil,
		},
		"by a link": {
			[]string{"{name: a, bind: 'unix:/x/s', upstream: u}"},
			[]string{"{name: u, endpoints: ['unix:/proc/self/root/x/s']}"},
			[]string{"2:42: connections would go in a circle: unix:/proc/self/root/x/s is an endpoint of u, and an address of this listener" + fix},
		},
		"by a fallback": {
			[]string{"{name: a, bind: 'unix:/x/../s', upstream: u}", "{name: b, bind: '0.0.0.0:2', upstream: v}"},
			[]string{"{name: u, endpoints: ['h:1'], fallback: {upstream: w}}", "{name: v, endpoints: ['unix:/s']}", "{name: w, endpoints: ['LocalHost.:2']}"},
			[]string{"2:45: connections would go in a circle: listener a → upstream u → upstream w (LocalHost.:2) → listener b → upstream v (unix:/s) → listener a" + fix},
		},
		"by a split, behind routes that a client without TLS does not take": {
			[]string{"{name: a, bind: '[::]:1', routes: [{match: {sni: [x.y]}, upstream: u}, {split: [{upstream: u, percent: 99}, {upstream: v, percent: 1}]}]}"},
			[]string{"{name: u, endpoints: ['h:1']}", "{name: v, endpoints: ['[::]:1']}"},
			[]string{"2:122: connections would go in a circle: [::]:1 is an endpoint of v, and an address of this listener" + fix},
		},
		"by a mirror": {
			[]string{"{name: a, bind: ':1', upstream: u, mirror: {upstream: v}}", "{name: b, bind: ':2', routes: [{upstream: u, mirror: {upstream: w}}]}"},
			[]string{"{name: u, endpoints: ['h:1']}", "{name: v, endpoints: ['127.0.0.1:2']}", "{name: w, endpoints: ['127.0.0.1:1']}"},
			[]string{"2:57: connections would go in a circle: listener a → upstream v (127.0.0.1:2) → listener b → upstream w (127.0.0.1:1) → listener a" + fix},
		},
		"none: a mirror of nobody": {
			[]string{"{name: a, bind: ':1', upstream: u, mirror: {upstream: v, percent: 0}}"},
			[]string{"{name: u, endpoints: ['h:1']}", "{name: v, endpoints: ['127.0.0.1:1']}"},
			nil,
		},
		"from outside into one of others": {
			[]string{"{name: a, bind: ':1', upstream: u}", "{name: b, bind: ':2', upstream: v}", "{name: c, bind: ':3', upstream: u}"},
			[]string{"{name: u, endpoints: ['127.0.0.1:2']}", "{name: v, endpoints: ['127.0.0.1:3']}"},
			[]string{"3:35: connections would go in a circle: listener b → upstream v (127.0.0.1:3) → listener c → upstream u (127.0.0.1:2) → listener b" + fix},
		},
		"none: another family": {
			[]string{"{name: a, bind: '0.0.0.0:1', upstream: u}", "{name: b, bind: '[::]:2', upstream: v}"},
			[]string{"{name: u, endpoints: ['[::1]:1']}", "{name: v, endpoints: ['127.0.0.1:2']}"},
			nil,
		},
		"none: another way out": {
			[]string{"{name: a, bind: ':1', routes: [{match: {source: [127.0.0.0/8]}, upstream: v}], upstream: u}", "{name: b, bind: ':2', upstream: w}"},
			[]string{"{name: u, endpoints: ['127.0.0.1:2']}", "{name: v, endpoints: ['h:1']}", "{name: w, endpoints: ['127.0.0.1:1']}"},
			nil,
		},
		"none: one behind the other": {
			[]string{"{name: a, bind: ':1', upstream: u}", "{name: b, bind: '127.0.0.1:2', upstream: v}"},
			[]string{"{name: u, endpoints: ['127.0.0.1:2', 'localhost:2']}", "{name: v, endpoints: ['10.0.0.1:1']}"},
			nil,
		},
	} {
		text := "listeners:\n- " + strings.Join(c.listeners, "\n- ") + "\nupstreams:\n- " + strings.Join(c.upstreams, "\n- ") + "\n"
		_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text}, "/etc/p.yaml", nil)
		var got []string
		for _, p := range problems {
			if !p.Warning {
				got = append(got, short(p))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s got %s\nwant %s", what, text, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

// TestRefusesAll: a listener that refuses every client knows the reason.
func TestRefusesAll(t *testing.T) {
	for keys, want := range map[string]string{
		"upstream: u": "",
		"":            "there is neither a route nor an upstream",
		"routes: [{match: {sni: [a.example]}, upstream: u}]":                  "",
		"upstream: u, allow: [10.0.0.0/8], deny: [10.1.0.0/16]":               "",
		"upstream: u, allow: [10.0.0.0/8], deny: [10.0.0.0/7]":                "deny has every source of allow",
		"upstream: u, allow: [all], deny: [all]":                              "deny has every source of allow",
		"upstream: u, deny: [all]":                                            "deny has every source",
		"upstream: u, deny: ['0.0.0.0/0', '::/0']":                            "deny has every source",
		"upstream: u, deny: ['0.0.0.0/0', '::/0', 10.0.0.0/8]":                "deny has every source",
		"upstream: u, deny: ['0.0.0.0/0']":                                    "",
		"upstream: u, deny: ['0.0.0.0/0', '::/0'], also: unix":                "",
		"upstream: u, deny: ['0.0.0.0/0', '::/0', unix], also: unix":          "deny has every source",
		"upstream: u, deny: ['0.0.0.0/0', '::/0'], also: systemd":             "",
		"upstream: u, deny: [all], also: systemd":                             "deny has every source",
		"upstream: u, allow: [10.0.0.0/8], only: unix":                        "every bind is a unix socket, and allow has no unix",
		"upstream: u, allow: [10.0.0.0/8], accept_proxy: {}, only: unix":      "",
		"upstream: u, allow: [10.0.0.0/8, 'unix:uid=7'], only: unix":          "",
		"upstream: u, allow: [10.0.0.0/8], also: unix":                        "",
		"upstream: u, limits: {connections: 0, per_second: 0, per_source: 0}": "", // 0 is no limit
		"upstream: u, allow: [10.0.0.0/8], deny: [10.0.0.0/9, 10.128.0.0/9]":  "", // together they have; it is not found out
	} {
		binds := "':1'"
		keys, kind, _ := strings.Cut(keys, ", also: ")
		switch kind {
		case "unix":
			binds = "':1', 'unix:/s'"
		case "systemd":
			binds = "':1', 'systemd:x'"
		}
		keys, only, _ := strings.Cut(keys, ", only: ")
		if only != "" {
			binds = "'unix:/s'"
		}
		cfg := load(t, "listeners: [{name: a, bind: ["+binds+"], "+keys+"}]\nupstreams: [{name: u, endpoints: ['h:1']}]\n")
		if got := cfg.Listeners[0].RefusesAll(); got != want {
			t.Errorf("%s, bind %s: %q, want %q", keys, binds, got, want)
		}
	}
}

// TestWrittenFiles: no file that the process writes is one that is named for something else, whichever path leads to it.
func TestWrittenFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, "a")
	for name, text := range map[string]string{
		"cert.pem": cert, "key.pem": key, "token": "s3cret\n", "sorry": "sorry\n", "eps.yaml": "['127.0.0.1:1']\n", "more.yaml": "{}\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for link, to := range map[string]string{"link.pem": "key.pem", "sub": ".", "later.sock": "sub/state"} {
		must(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	const (
		tls     = "\nlisteners: [{name: a, bind: ':1', upstream: u, tls: {certificates: [{cert: cert.pem, key: key.pem}], client_ca: cert.pem}}]\nupstreams: [{name: u, endpoints: ['h:1']}]"
		state   = "changes by hand would be written to DIR/"
		log     = "lines of the session log would be written to DIR/"
		socket  = "a socket would be made at "
		another = " | write another path"
	)
	plain := "\nlisteners: [{name: a, bind: ':1', upstream: u}]\nupstreams: [{name: u, endpoints: ['h:1']}]"
	for _, c := range []struct{ text, want string }{
		{"state_file: key.pem" + tls, "1:13: " + state + "key.pem, but key in DIR/p.yaml:2:91 uses this path too" + another},
		{"state_file: ./sub/../key.pem" + tls, "1:13: " + state + "key.pem, but key in DIR/p.yaml:2:91 uses this path too" + another},
		{"state_file: link.pem" + tls, "1:13: " + state + "link.pem, but key in DIR/p.yaml:2:91 uses this path too" + another},
		{"state_file: sub/key.pem" + tls, "1:13: " + state + "sub/key.pem, but key in DIR/p.yaml:2:91 uses this path too" + another},
		{"session_log: {to: key.pem}" + tls, "1:19: " + log + "key.pem, but key in DIR/p.yaml:2:91 uses this path too" + another},
		{"state_file: state\nsession_log: {to: state}" + plain, "2:19: " + log + "state, but state_file in DIR/p.yaml:1:13 uses this path too" + another},
		{"state_file: p.yaml" + plain, "1:13: " + state + "p.yaml, which is a file of the configuration" + another},
		{"session_log: {to: more.yaml}\ninclude: [more.yaml]" + plain, "1:19: " + log + "more.yaml, which is a file of the configuration" + another},
		{"state_file: state.yaml\ninclude: ['m*.yaml', 's*.yaml']" + plain, "1:13: " + state + "state.yaml, but include reads this path as configuration | write a path in another directory"},
		{"state_file: token\nmetrics: {bind: ':9', allow: [all], token: 'file:token'}" + plain, "1:13: " + state + "token, but token in DIR/p.yaml:2:44 uses this path too" + another},
		{"state_file: state\nadmin: {bind: 'unix:DIR/later.sock'}" + plain, "2:15: " + socket + "DIR/later.sock, but state_file in DIR/p.yaml:1:13 uses this path too" + another},
		{"state_file: eps.yaml\nlisteners: [{name: a, bind: ':1', upstream: u}]\nupstreams: [{name: u, discover: {file: {path: eps.yaml}}}]", "1:13: " + state + "eps.yaml, but path in DIR/p.yaml:3:47 uses this path too" + another},
		{"session_log: {to: sorry}\nlisteners: [{name: a, bind: ':1', upstream: u}]\nupstreams: [{name: u, endpoints: ['h:1'], fallback: {respond: sorry}}]", "1:19: " + log + "sorry, but respond in DIR/p.yaml:3:63 uses this path too" + another},
		{"state_file: state\nlisteners: [{name: a, bind: ':1', upstream: u}]\nupstreams: [{name: u, endpoints: ['unix:DIR/state']}]", "1:13: " + state + "state, but address in DIR/p.yaml:3:35 uses this path too" + another},
		{"listeners: [{name: a, bind: 'unix:DIR/key.pem', upstream: u,\ntls: {certificates: [{cert: cert.pem, key: key.pem}]}}]\nupstreams: [{name: u, endpoints: ['h:1']}]", "1:29: " + socket + "DIR/key.pem, but key in DIR/p.yaml:2:44 uses this path too" + another},
		// One file may be read for two things, and a listener may be an endpoint of another one.
		{"state_file: state" + tls, ""},
		{"listeners: [{name: a, bind: ':1', upstream: u}, {name: b, bind: 'unix:DIR/b', upstream: v}]\nupstreams: [{name: u, endpoints: ['unix:DIR/b']}, {name: v, endpoints: ['h:1']}]", ""},
	} {
		text := strings.ReplaceAll(c.text, "DIR", dir)
		path := filepath.Join(dir, "p.yaml")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		_, problems := config.Load(path, nil)
		var got []string
		for _, p := range problems {
			got = append(got, strings.ReplaceAll(short(p), dir, "DIR"))
		}
		if d := cmp.Diff(c.want, strings.Join(got, "\n")); d != "" {
			t.Errorf("%s\n%s", c.text, d)
		}
	}
}

// TestDefaultStateFile: the file of changes by hand in systemd's directory is no session log either.
func TestDefaultStateFile(t *testing.T) {
	env := func(name string) (string, bool) { return "/var/lib/p:/q", name == "STATE_DIRECTORY" }
	c, problems := config.Parse("/etc/p.yaml", []byte("session_log: {to: /var/lib/p/penstock.state}\n"+listener("")), env)
	if c != nil || len(problems) != 1 || short(problems[0]) != "1:19: changes by hand would be written to /var/lib/p/penstock.state, the default of state_file, but to uses this path too | write another path" {
		t.Error(problems)
	}
	if c, problems = config.Parse("/etc/p.yaml", []byte(listener("")), env); problems != nil || c.StatePath(env) != "/var/lib/p/penstock.state" || c.StatePath(nil) != "" {
		t.Error(problems)
	}
}

// TestPrivateKeysOfAll: a private key that every user may read is a warning, wherever one is named, and once for each file.
func TestPrivateKeysOfAll(t *testing.T) {
	t.Parallel()
	const first = "listeners: [{name: l, bind: ':1', upstream: u"
	const last = "}]\nupstreams: [{name: u, endpoints: [{address: '127.0.0.1:2'}]"
	for text, want := range map[string]int{
		first + ", tls: {certificates: [{cert: a, key: public}, {cert: a, key: public}]}" + last + "}]":      1,
		first + last + ", tls: {sni: x.example, cert: a, key: public}}]":                                     1,
		"admin: {bind: '127.0.0.1:9465', tls: {cert: a, key: public, client_ca: a}}\n" + first + last + "}]": 1,
		"metrics: {bind: ':9464', allow: [10.0.0.0/8], tls: {cert: a, key: public}}\n" + first + last + "}]": 1,
		"traces: {endpoint: 'https://c:4317', tls: {cert: a, key: public}}\n" + first + last + "}]":          1,
		first + ", tls: {certificates: [{cert: a, key: private}]}" + last + "}]":                             0,
	} {
		tree := config.Tree{"/etc/p.yaml": text}
		tree["/etc/a"], tree["/etc/public"] = certificate(t, "a.example")
		tree["/etc/private"] = tree["/etc/public"]
		cfg, problems := config.LoadTree(tree, "/etc/p.yaml", variables())
		if len(problems) > 0 {
			t.Errorf("%s: %v", text, problems)
			continue
		}
		n := 0
		for _, w := range cfg.Warnings {
			if strings.Contains(w.Message, "may use the private key /etc/public (mode 0644)") && w.Fix == "chmod o= /etc/public" {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d warnings, want %d: %v", text, n, want, cfg.Warnings)
		}
	}
}

// TestExpiredCertificates: a certificate or an authority that has expired, or is not valid yet, is a warning, which a start logs.
func TestExpiredCertificates(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	now := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, now, now, &key.PublicKey, key)
	must(t, err)
	valid := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	for want, from := range map[string]time.Duration{"expired at": -2 * time.Hour, "is not valid before": time.Hour, "": -time.Minute} {
		of := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "old"}, NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(from + time.Hour),
		}
		der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
		must(t, err)
		cert := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
		for keys, subject := range map[string][2]string{
			"tls: {certificates: [{cert: c.pem, key: k.pem}]}, upstream: u}]\nupstreams: [{name: u, endpoints: [\"h:1\"]}]":                   {"the certificate in /etc/c.pem: it "},
			"tls: {certificates: [{cert: v.pem, key: k.pem}], client_ca: c.pem}, upstream: u}]\nupstreams: [{name: u, endpoints: [\"h:1\"]}]": {"1 of the 1 authorities in /etc/c.pem are not accepted: CN=old "},
			"upstream: u}]\nupstreams: [{name: u, endpoints: [\"h:1\"], tls: {ca: both.pem}}]":                                                {"2 of the 3 authorities in /etc/both.pem are not accepted: CN=old ", ", and 1 more"},
		} {
			cfg, problems := config.LoadTree(config.Tree{
				"/etc/p.yaml": "listeners: [{name: l, bind: \":1\", " + keys,
				"/etc/c.pem":  cert, "/etc/v.pem": valid, "/etc/both.pem": cert + valid + cert,
				"/etc/k.pem": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
			}, "/etc/p.yaml", variables())
			switch {
			case len(problems) > 0:
				t.Error(problems)
			case want == "" && len(cfg.Warnings) > 0,
				want != "" && (len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0].Error(), subject[0]+want) || !strings.Contains(cfg.Warnings[0].Error(), subject[1])):
				t.Errorf("%s, valid from %v on: the warnings %v", keys, from, cfg.Warnings)
			}
		}
	}
}

// TestCoveredCertificates: a certificate that no client gets, because the ones before it have its names and the same kind of key,
// is a warning.
func TestCoveredCertificates(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	of := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"b.example"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &rsaKey.PublicKey, rsaKey)
	must(t, err)
	tree := config.Tree{
		"/etc/rsa.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		"/etc/rsa.key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)})),
	}
	for name, names := range map[string][]string{"a": {"a.example"}, "b": {"b.example"}, "both": {"A.example", "b.example"}, "wide": {"*.example"}} {
		tree["/etc/"+name+".pem"], tree["/etc/"+name+".key"] = selfsigned.New(t, names...)
	}
	for list, want := range map[string]string{
		"a b": "", "a both": "", "wide a": "", "both rsa": "", "both b": "b", "a b both": "both", "a rsa rsa": "rsa",
	} {
		var certs []string
		for _, name := range strings.Fields(list) {
			certs = append(certs, fmt.Sprintf("{cert: %s.pem, key: %[1]s.key}", name))
		}
		tree["/etc/p.yaml"] = "listeners: [{name: l, bind: ':1', upstream: u, tls: {certificates: [" + strings.Join(certs, ", ") + "]}}]\nupstreams: [{name: u, endpoints: ['127.0.0.1:2']}]"
		cfg, problems := config.LoadTree(tree, "/etc/p.yaml", variables())
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		cfg.Warnings = slices.DeleteFunc(cfg.Warnings, func(w config.Problem) bool { return strings.Contains(w.Message, "private key") })
		if got := len(cfg.Warnings); got != min(len(want), 1) || got > 0 && !strings.Contains(cfg.Warnings[0].Message, "no client gets the certificate in /etc/"+want+".pem") {
			t.Errorf("%s: the warnings %v", list, cfg.Warnings)
		}
	}
}

// TestCredentials: a token or a header comes from a file that other users cannot read, or from a variable, and is one
// line. No message and no excerpt has one that is refused.
func TestCredentials(t *testing.T) {
	tree := config.Tree{
		"/etc/good": "s3cret-good\n", "/etc/two": "s3cret-a\ns3cret-b\n", "/etc/empty": "\n", "/etc/none": "",
		"/etc/spaced": "s3cret \n", "/etc/wide": "s3cret-ö\n", "/etc/public": "s3cret\n", "/etc/c$d/public": "s3cret",
	}
	const literal = " is written in the configuration, which other users may read | write file:PATH or ${VARIABLE}"
	for value, want := range map[string]string{
		"'file:good'":             "",
		"'${S}'":                  "",
		"'Bearer ${S}'":           "",
		"s3cret":                  literal,
		"'Bearer s3cret'":         literal,
		"'file:two'":              " has 2 lines | leave only one line in /etc/two",
		"'file:empty'":            " is empty | write it into /etc/empty, or leave it out",
		"'file:none'":             " is empty | write it into /etc/none, or leave it out",
		"'${EMPTY}'":              " is empty | write it into ${EMPTY}, or leave it out",
		"'${LINES}'":              " has 2 lines | leave only one line in ${LINES}",
		"'file:spaced'":           " has spaces at its beginning or its end | leave them out of /etc/spaced",
		"'file:wide'":             " has characters that a header cannot have | write printable ASCII characters",
		"'file:public'":           " (mode 0644) | chmod o= /etc/public",
		"'file:c$$d/public'":      " (mode 0644) | chmod o= /etc/c$d/public",
		"6273841":                 " must be text, not a number | write it in quotes",
		"'file:s3cret-elsewhere'": "file does not exist | use the name of an existing file",
	} {
		for _, section := range []string{
			"metrics: {bind: ':9464', allow: [10.0.0.0/8], tls: {cert: a, key: k}, token: " + value + "}",
			"traces: {endpoint: 'https://c:4317', headers: [{name: Authorization, value: " + value + "}]}",
		} {
			tree["/etc/p.yaml"] = section + smallest
			tree["/etc/a"], tree["/etc/k"] = certificate(t, "a.example")
			_, problems := config.LoadTree(tree, "/etc/p.yaml", variables("S", "s3cret", "EMPTY", "", "LINES", "s3cret\ns3cret"))
			var got []string
			for _, p := range problems {
				got = append(got, p.Message+" | "+p.Fix)
				if text := p.String() + p.Error(); strings.Contains(text, "s3cret") && !strings.Contains(value, "elsewhere") || strings.Contains(text, "6273841") {
					t.Errorf("%s: a message has the secret: %s", value, text)
				}
			}
			if text := strings.Join(got, "\n"); want == "" && text != "" || !strings.HasSuffix(text, want) {
				t.Errorf("%s\n got %q\nwant %q", section, got, want)
			}
		}
	}
}

// TestCredentialFiles: the mode is that of the file itself.
func TestCredentialFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		_ = os.Remove(path) // one without the right to write
		must(t, errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)))
	}
	write("penstock.yaml", "metrics: {bind: '127.0.0.1:0', allow: [127.0.0.0/8], token: 'file:token'}"+smallest, 0o644)
	for mode, good := range map[os.FileMode]bool{0o600: true, 0o440: true, 0o644: false, 0o602: false} {
		write("token", "s3cret\n", mode)
		_, problems := config.Load(filepath.Join(dir, "penstock.yaml"), variables())
		complains := slices.ContainsFunc(problems, func(p config.Problem) bool {
			return strings.Contains(p.Message, "every user of this machine may use") && strings.HasPrefix(p.Fix, "chmod o= ")
		})
		if complains == good {
			t.Errorf("mode %#o: %v", mode, problems)
		}
	}
}

// TestForeignLinks: no file of this user is read to which another user's link leads, but that user's own.
func TestForeignLinks(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to have files of another user")
	}
	const nobody = 65534
	authority, key := certificate(t, "db.test")
	for name, c := range map[string]struct{ of, listener, upstream string }{
		"respond":     {"sorry", "", "fallback: {respond: link}"},
		"secret":      {"PING", "", `health_check: {send: "file:link", expect: "+PONG"}`},
		"certificate": {authority, "tls: {certificates: [{cert: link, key: key}]}", ""},
		"key":         {key, "tls: {certificates: [{cert: cert, key: link}]}", ""},
		"client_ca":   {authority, "tls: {certificates: [{cert: cert, key: key}], client_ca: link}", ""},
		"ca":          {authority, "", "tls: {ca: link}"},
		"own key":     {key, "", "tls: {cert: cert, key: link}"},
		"include":     {"limits: {}", "", ""},
	} {
		dir := t.TempDir()
		path, file, link := filepath.Join(dir, "p.yaml"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
		text := fmt.Sprintf(`
listeners: [{name: db, bind: "127.0.0.1:5432", upstream: pg, %s}]
upstreams: [{name: pg, endpoints: ["10.0.0.11:5432"], %s}]
`, c.listener, c.upstream)
		if name == "include" {
			text += "include: [link]"
		}
		for path, text := range map[string]string{path: text, file: c.of, filepath.Join(dir, "cert"): authority, filepath.Join(dir, "key"): key} {
			must(t, os.WriteFile(path, []byte(text), 0o600))
		}
		must(t, os.Symlink("file", link))
		for _, owner := range []string{"", link, file} {
			if owner != "" {
				must(t, os.Lchown(owner, nobody, nobody))
			}
			_, problems := config.Load(path, variables())
			refused := len(problems) == 1 && strings.Contains(problems[0].Message, "link: the path has another user's symbolic link: it belongs to uid 65534")
			if refused != (owner == link) || !refused && problems != nil {
				t.Errorf("%s, another user's: %q: %+v", name, owner, problems)
			}
		}
	}
}

// TestForeignFiles: a token and the authorities of the admin API are refused if every user may write the file, and there is a
// warning if another user could replace it. The links of a volume of Kubernetes are no reason for one.
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	const nobody = 65534
	for name, c := range map[string]struct {
		mode             os.FileMode
		change           func(dir, path string) error
		token, authority string
	}{
		"own":              {mode: 0o600},
		"readable":         {mode: 0o644, token: "may use"},
		"writable":         {mode: 0o602, token: "may use", authority: "may write"},
		"of another user":  {0o600, func(_, path string) error { return os.Chown(path, nobody, nobody) }, "belongs to uid 65534: chown it to root", "belongs to uid 65534: chown it to root"},
		"of another group": {0o660, func(_, path string) error { return os.Chown(path, 0, nobody) }, "a group, or an entry of an ACL, may write it", "a group, or an entry of an ACL, may write it"},
		"with another's ACL": {0o600, func(_, path string) error {
			acl := "\x02\x00\x00\x00" // acl(5), as in linux/posix_acl_xattr.h: the owner, uid 65534, the group, the mask and others
			for _, entry := range []string{"\x01\x00\x06", "\x02\x00\x06", "\x04\x00\x00", "\x10\x00\x06", "\x20\x00\x00"} {
				acl += entry + "\x00\xfe\xff\x00\x00"
			}
			return syscall.Setxattr(path, "system.posix_acl_access", []byte(acl), 0)
		}, "a group, or an entry of an ACL, may write it", "a group, or an entry of an ACL, may write it"},
		"in a directory of another group": {0o600, func(dir, _ string) error {
			return errors.Join(os.Chown(dir, 0, nobody), os.Chmod(dir, 0o775))
		}, "a group, or an entry of an ACL, may write it", "a group, or an entry of an ACL, may write it"},
		"in another's directory": {0o600, func(dir, _ string) error { return os.Chown(dir, nobody, nobody) }, "its directory belongs to uid 65534", "its directory belongs to uid 65534"},
		"where all may write":    {0o600, func(dir, _ string) error { return os.Chmod(dir, 0o777) }, "every user may write in its directory", "every user may write in its directory"},
		"in a sticky directory":  {mode: 0o600, change: func(dir, _ string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }},
		"in a ConfigMap's volume": {mode: 0o600, change: func(dir, path string) error {
			data := filepath.Join(dir, "..2026")
			return errors.Join(os.Mkdir(data, 0o755), os.Rename(path, filepath.Join(data, "f")), os.Symlink("..2026", filepath.Join(dir, "..data")),
				os.Symlink("..data/f", path), os.Chmod(dir, 0o777))
		}},
	} {
		for _, key := range []string{"token", "authority"} {
			t.Run(name+", "+key, func(t *testing.T) {
				t.Parallel()
				if strings.Contains(name, "another") && os.Getuid() != 0 {
					t.Skip("needs root, to have files of another user")
				}
				top := t.TempDir()
				dir := filepath.Join(top, "d")
				path := filepath.Join(dir, "f")
				cert, private := certificate(t, "a")
				text, keys, want := "0123456789abcdef\n", "change_token: 'file:d/f'", c.token
				if key == "authority" {
					text, keys, want = cert, "tls: {cert: c.pem, key: k.pem, client_ca: d/f}", c.authority
				}
				must(t, os.Mkdir(dir, 0o755))
				for file, text := range map[string]string{
					path: text, filepath.Join(top, "c.pem"): cert, filepath.Join(top, "k.pem"): private, filepath.Join(top, "p.yaml"): "admin: {bind: '127.0.0.1:0', " + keys + "}" + smallest,
				} {
					must(t, os.WriteFile(file, []byte(text), 0o600))
				}
				must(t, os.Chmod(path, c.mode))
				if c.change != nil {
					must(t, c.change(dir, path))
				}
				cfg, problems := config.Load(filepath.Join(top, "p.yaml"), variables())
				if refused := strings.HasPrefix(want, "may "); refused != (cfg == nil) {
					t.Errorf("it is refused: %t", cfg == nil)
				}
				if cfg != nil {
					problems = cfg.Warnings
				}
				if want == "" && len(problems) > 0 || want != "" && (len(problems) != 1 || !strings.Contains(problems[0].Message, want)) {
					t.Errorf("%v, want %s", problems, want)
				}
			})
		}
	}
}

// TestWritableByOthers: there is a warning of each file that is read and that another user may write.
func TestWritableByOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	cert, private := certificate(t, "a")
	texts := map[string]string{
		"c.pem": cert, "clients.pem": cert, "ca.pem": cert, "more.yaml": "limits: {connections: 9}", "eps.yaml": "[]", "sorry": "sorry",
		"p.yaml": `
include: [more.yaml]
state_file: state
listeners: [{name: db, bind: "127.0.0.1:5432", upstream: pg, tls: {certificates: [{cert: c.pem, key: k.pem}], client_ca: clients.pem}}]
upstreams: [{name: pg, discover: {file: {path: eps.yaml}}, tls: {ca: ca.pem, sni: a}, fallback: {respond: sorry}}]
`,
	}
	for name, text := range texts {
		must(t, os.WriteFile(path(name), []byte(text), 0o600))
	}
	must(t, os.WriteFile(path("k.pem"), []byte(private), 0o600))
	must(t, os.WriteFile(path("state"), nil, 0o600))
	must(t, os.Chmod(path("state"), 0o606))
	for name := range texts {
		must(t, os.Chmod(path(name), 0o606))
		cfg, problems := config.Load(path("p.yaml"), variables())
		if cfg == nil || len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0].String(), path(name)+": another user could replace it") {
			t.Errorf("%s: %v, %+v", name, problems, cfg)
		}
		must(t, os.Chmod(path(name), 0o600))
	}
}

// TestSharedDirectory: nothing is written where every user may replace it.
func TestSharedDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "p.yaml")
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	for _, text := range []string{
		"admin: {bind: 'unix:d/s'}" + smallest, "session_log: {to: d/log}" + smallest, "state_file: d/state" + smallest,
		strings.Replace(smallest, `bind: ":5432"`, "bind: 'unix:d/s?mode=0600'", 1),
	} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		for mode, bad := range map[os.FileMode]bool{0o755: false, 0o777: true, 0o777 | os.ModeSticky: false} {
			must(t, os.Chmod(filepath.Join(dir, "d"), mode))
			_, problems := config.Load(path, variables())
			if refused := len(problems) == 1 && strings.Contains(problems[0].Message, "every user of this machine may write in "); refused != bad || !bad && problems != nil {
				t.Errorf("%v: %s: %v", mode, text, problems)
			}
		}
	}
}

// TestRefusedAtTheStart: there is a warning where the process would refuse to write a file, or to make a socket, because of another user.
func TestRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to have files of another user")
	}
	const nobody = 65534
	top := t.TempDir()
	in := func(name string) string { return filepath.Join(top, name) }
	must(t, errors.Join(os.Mkdir(in("shared"), 0o755), os.Chmod(in("shared"), 0o777|os.ModeSticky), os.MkdirAll(in("theirs/d"), 0o755), os.Chown(in("theirs"), nobody, nobody)))
	for _, name := range []string{"own", "file", "state"} {
		must(t, os.WriteFile(in("shared/"+name), nil, 0o600))
	}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: in("shared/socket"), Net: "unixgram"})
	must(t, err)
	defer socket.Close()
	must(t, syscall.Mkfifo(in("shared/fifo"), 0o600))
	for _, name := range []string{"shared/file", "shared/state", "shared/socket", "shared/fifo", "theirs/d"} {
		must(t, os.Chown(in(name), nobody, nobody))
	}
	bind := func(path string) string {
		return strings.Replace(smallest, `bind: ":5432"`, "bind: 'unix:"+path+"?mode=0600'", 1)
	}
	for text, want := range map[string]string{
		"session_log: {to: shared/own}" + smallest:                             "",
		"session_log: {to: shared/new}" + smallest:                             "",
		"session_log: {to: shared/file}" + smallest:                            "shared/file: another user could replace it: it belongs to uid 65534",
		"session_log: {to: shared/fifo}" + smallest:                            "shared/fifo: another user could replace it: it belongs to uid 65534",
		"session_log: {to: 'journald:" + in("shared/socket") + "'}" + smallest: "every user may write in its directory: remove the socket, or name a socket of root",
		"state_file: shared/state" + smallest:                                  "shared/state: another user could replace it: it belongs to uid 65534",
		bind("theirs/s"):                                                       "",
		bind("theirs/d/s"):                                                     "theirs/d/s: another user could replace it: uid 65534 owns a directory above it, and could exchange d: write a path in directories of root",
	} {
		must(t, os.WriteFile(in("p.yaml"), []byte(text), 0o600))
		cfg, problems := config.Load(in("p.yaml"), variables())
		if cfg == nil {
			t.Errorf("%s: %v", text, problems)
			continue
		}
		if w := cfg.Warnings; want == "" && len(w) > 0 || want != "" && (len(w) != 1 || !strings.Contains(w[0].Message, want)) {
			t.Errorf("%s: %v, want %q", text, w, want)
		}
	}
}

// TestCollectorURL: no message has the password of a URL.
func TestCollectorURL(t *testing.T) {
	for _, url := range []string{"http://u:s3cret@c:1", "https://s3cret@c", "http://u:s3cret@c:port", "http://u:s3cret@", "http://c:1/?key=s3cret", "http://c:1/#s3cret"} {
		_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": traced("endpoint: '" + url + "'")}, "/etc/p.yaml", variables())
		if len(problems) != 1 || strings.Contains(problems[0].String()+problems[0].Error(), "s3cret") {
			t.Errorf("%s: %v", url, problems)
		}
	}
}

// TestPasswordOfACheck: a check that logs in with a literal password is warned of, without showing it.
func TestPasswordOfACheck(t *testing.T) {
	for send, want := range map[string]int{`"AUTH s3cret\r\nPING\r\n"`: 1, `"PING\r\nPASS s3cret\r\n"`: 1, `"AUTH\r\n"`: 0, `"PING\r\n"`: 0, `"${S}"`: 0} {
		text := "listeners: [{name: a, bind: ':1', upstream: u}]\nupstreams: [{name: u, endpoints: ['h:1'], health_check: {send: " + send + ", expect: ok}}]\n"
		warnings := load(t, text, "S", "AUTH s3cret").Warnings
		if len(warnings) != want {
			t.Errorf("%s: %v", send, warnings)
		}
		for _, w := range warnings {
			if strings.Contains(w.String(), "s3cret") {
				t.Errorf("it is shown: %v", w.String())
			}
		}
	}
}

// TestSuggestionsFit: where a key is missing, or has a value that serves nobody, the one that is suggested serves somebody: nothing is wrong with it.
func TestSuggestionsFit(t *testing.T) {
	load := func(text string) (found []string) {
		cfg, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text}, "/etc/p.yaml", variables())
		if cfg != nil {
			problems = cfg.Warnings
		}
		for _, p := range problems {
			found = append(found, p.Fix)
		}
		return found
	}
	const rest = "\nlisteners: [{name: l, bind: ':80', upstream: u}]\nupstreams: [{name: u, endpoints: ['192.0.2.1:1']}]\n"
	for bind, c := range map[string]struct {
		allow  string // that is suggested
		v4, v6 bool   // allow: [10.0.0.0/8], and ["2001:db8::/32"], let somebody in
	}{
		":9464": {"10.0.0.0/8", true, true}, "[::]:9464": {"10.0.0.0/8", true, true}, "0.0.0.0:9464": {"10.0.0.0/8", true, true}, "192.0.2.1:9464": {"10.0.0.0/8", true, false},
		"127.0.0.1:9464": {"127.0.0.0/8", false, false}, "127.9.0.1:9464": {"127.0.0.0/8", false, false}, "[::ffff:127.0.0.1]:9464": {"127.0.0.0/8", false, false},
		"[::1]:9464": {"::1/128", false, false}, "[2001:db8::7]:9464": {"2001:db8::/32", false, true},
	} {
		metrics := func(more string) []string { return load("metrics: {bind: '" + bind + "'" + more + "}" + rest) }
		for given, want := range map[string]bool{"": false, ", allow: [10.0.0.0/8]": c.v4, ", allow: ['2001:db8::/32']": c.v6, ", allow: [all]": true} {
			found := metrics(given)
			if want && len(found) > 0 || !want && (len(found) != 1 || !strings.Contains(found[0], c.allow)) {
				t.Errorf("%s%s: %q, want %s", bind, given, found, c.allow)
			}
			for _, fix := range found {
				fix = strings.TrimSuffix(strings.TrimPrefix(fix, "write "), ", or another bind")
				if again := metrics(", " + fix); len(again) > 0 {
					t.Errorf("%s%s: %q, and then %q", bind, given, fix, again)
				}
			}
		}
	}
	for _, preread := range []string{"", ", timeouts: {preread: 100ms}"} {
		text := func(more string) string {
			return "listeners: [{name: l, bind: ':80', upstream: u, routes: [{match: {protocol: [silence]}, upstream: u}]" + preread + more + "}]\nupstreams: [{name: u, endpoints: ['192.0.2.1:1']}]\n"
		}
		found := load(text(""))
		if len(found) != 1 || !strings.HasPrefix(found[0], "write preread_silence: ") {
			t.Fatal(found)
		}
		if again := load(text(", " + strings.TrimSuffix(strings.TrimPrefix(found[0], "write "), " at the listener"))); len(again) > 0 {
			t.Errorf("%q, and then %q", found[0], again)
		}
	}
}
