package config_test

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

const upstreams = "\nupstreams: [{name: u, endpoints: ['h:1']}, {name: v, endpoints: ['h:1']}]\n"

func listener(keys string) string {
	return "listeners: [{name: a, bind: ':1', upstream: u, " + keys + "}]" + upstreams
}

func upstream(keys string) string {
	return "listeners: [{name: a, bind: ':1', upstream: u}]\nupstreams: [{name: u, " + keys + "}]\n"
}

// beginning is the suggested beginning of a file.
const beginning = `listeners: [{name: web, bind: ":8080", upstream: app}]`

// An expected problem is LINE:COLUMN: message | fix.
func short(p config.Problem) string {
	return fmt.Sprintf("%d:%d: %s | %s", p.Pos.Line, p.Pos.Column, p.Message, p.Fix)
}

func shorts(problems []config.Problem) (texts []string) {
	for _, p := range problems {
		texts = append(texts, short(p))
	}
	return texts
}

// said is all that is said about a text: its problems, or else its warnings.
func said(text string, files ...string) (cfg *config.Config, all []config.Problem) {
	tree := config.Tree{"/etc/p.yaml": text}
	for i := 0; i < len(files); i += 2 {
		tree[files[i]] = files[i+1]
	}
	cfg, all = config.LoadTree(tree, "/etc/p.yaml", nil)
	if cfg != nil {
		all = append(all, cfg.Warnings...)
	}
	return cfg, all
}

// contain fails the test unless there are as many problems as wanted texts, each with its text.
func contain(t *testing.T, what string, problems []config.Problem, want []string) {
	t.Helper()
	ok := len(problems) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.Contains(problems[i].Error(), want[i])
	}
	if !ok {
		t.Errorf("%s: %v, want %q", what, problems, want)
	}
}

// warnedOnce fails the test unless one warning of a text that is about something contains a text; "": there is none.
func warnedOnce(t *testing.T, text, about, want string) {
	t.Helper()
	list := slices.DeleteFunc(load(t, text).Warnings, func(w config.Problem) bool { return !strings.Contains(w.String(), about) })
	var texts []string
	if want != "" {
		texts = []string{want}
	}
	contain(t, text, list, texts)
}

func admin(text string) string { return "admin: {" + text + "}\n" + smallest }

func TestProblems(t *testing.T) {
	cert, key := certificate(t, "a")
	_, otherKey := certificate(t, "b")
	for _, c := range []struct {
		text string
		want []string
	}{
		{"lane: {leave: true}\n" + listener("lane: auto"), []string{"1:15: sessions can continue without this process only if they are pinned | write pins: and a directory of a BPF file system, or leave it out"}},
		{"lane: {devices: [\"\"]}\n" + listener("lane: auto"), []string{"1:17: the name of a device is empty | write a name such as eth0, or leave the entry out"}},
		{"lane: {devices: [lo, eth0, lo]}\n" + listener("lane: auto"), []string{"1:17: the device lo is named twice | write it once"}},
		// Keys.
		{"listners: []\n" + smallest, []string{`1:1: unknown key "listners" | did you mean "listeners"?`}},
		{listener("time_outs: {}"), []string{`1:48: unknown key "time_outs" | did you mean "timeouts"?`}},
		{listener("idle: 5s"), []string{`1:48: unknown key "idle" | write timeouts: {idle: …}`}},
		{listener("acl: [x]"), []string{`1:48: unknown key "acl" | use routes, deny or allow`}},
		{upstream("endpoints: ['a:1'], option: {httpchk: /}"), []string{`2:43: unknown key "option" | did you mean "health_check"?`}},
		{upstream("endpoints: ['a:1'], on-marked-down: reset, send-proxy-v2: 2"), []string{`2:43: unknown key "on-marked-down" | did you mean "on_unhealthy"?`, `2:66: unknown key "send-proxy-v2" | did you mean "send_proxy"?`}},
		{upstream("endpoints: [{address: 'a:1', send-proxy-v2: 2}]"), []string{`2:52: unknown key "send-proxy-v2" | write send_proxy, a key of upstreams`}},
		{"listeners: [{name: l, listen: ':1', upstream: u}]\nupstreams: [{name: u, endpoints: ['a:1']}]\n", []string{`1:23: unknown key "listen" | did you mean "bind"?`}},
		{listener("maxconn: 5"), []string{`1:48: unknown key "maxconn" | write limits: {connections: …}`}},
		{listener("reject: [10.0.0.0/8]"), []string{`1:48: unknown key "reject" | did you mean "deny"?`}},
		{listener("timeouts: {client: 5s}"), []string{`1:59: unknown key "client" | did you mean "idle"?`}},
		{listener("inspect-delay: 5s"), []string{`1:48: unknown key "inspect-delay" | did you mean "preread_silence"?`}},
		{listener("timeouts: {inspect-delay: 5s}"), []string{`1:59: unknown key "inspect-delay" | did you mean "preread"?`}},
		{listener("timeouts: {server: 5s}"), []string{`1:59: unknown key "server" | did you mean "idle"?`}},
		{listener("timeouts: {preread_silence: 5s}"), []string{`1:59: unknown key "preread_silence" | it is a key of listeners`}},
		{listener("timeouts: {queue: 10s}"), []string{`1:59: unknown key "queue" | write queue: {timeout: 10s}, a key of upstreams`}},
		{listener("timeout: {queue: 10s}"), []string{`1:48: unknown key "timeout" | write queue: {timeout: 10s}, a key of upstreams`}},
		{upstream("endpoints: ['a:1'], timeouts: {queue: 10s}"), []string{`2:43: unknown key "timeouts" | write queue: {timeout: 10s}, a key of upstreams`}},
		{upstream("endpoints: ['a:1'], timeout: {queue: 10s}"), []string{`2:43: unknown key "timeout" | write queue: {timeout: 10s}, a key of upstreams`}},
		{upstream("endpoints: ['a:1'], queue: 10s"), []string{`2:50: queue must be a group of keys, not text | write queue: {timeout: 10s}, a key of upstreams`}},
		{listener("slow_start: 5s"), []string{`1:48: unknown key "slow_start" | it is a key of upstreams`}},
		{listener("default_upstream: u"), []string{`1:48: unknown key "default_upstream" | did you mean "upstream"?`}},
		{"servers: []\n" + smallest, []string{`1:1: unknown key "servers" | write upstreams: [{endpoints: …}]`}},
		{listener("zzzzzzzz: 5s"), []string{`1:48: unknown key "zzzzzzzz" | leave it out, or use name, bind, allow, deny, accept_proxy, transparent, routes, upstream, limits, timeouts, connect, tls, …`}},
		{"listeners: [{name: a, name: b, bind: ':1', upstream: u}]" + upstreams, []string{`1:23: name is written twice | leave it out here or in line 1`}},
		{"listeners: [{}]" + upstreams, []string{
			"1:13: bind is missing | write bind: \":443\"",
			"1:13: name is missing | write name: web",
		}},
		{listener("? [x] : y"), []string{`1:50: a key must be a word, not a list | write one of name, bind, allow, deny, accept_proxy, transparent, routes, upstream, limits, timeouts, connect, tls, …`}},
		{listener("<<: 5"), []string{"1:52: << can merge only a group of keys, not a number | write an alias of a group of keys"}},
		// Types.
		{"5\n", []string{"1:1: a file must be a group of keys, not a number | write YAML that begins like " + beginning}},
		{"[]\n", []string{"1:1: a file must be a group of keys, not a list | write listeners: or upstreams: before it, and indent it"}},
		{"- {name: a, bind: ':1'}\n", []string{"1:1: a file must be a group of keys, not a list | write listeners: or upstreams: before it, and indent it"}},
		{"hello\n", []string{"1:1: a file must be a group of keys, not text | write YAML that begins like " + beginning}},
		// Configurations of other programs.
		{"# ours\nglobal\n  maxconn 10\nfrontend web\n  bind *:80\n", []string{"2:1: this looks like a configuration of HAProxy | write YAML that begins like " + beginning + "; docs/haproxy.md translates the keys"}},
		{"backend app # ours\n  server a 10.0.0.1:80\n", []string{"1:1: this looks like a configuration of HAProxy | write YAML that begins like " + beginning + "; docs/haproxy.md translates the keys"}},
		{"user www;\nstream {\n  server { listen 80; }\n}\n", []string{"2:1: this looks like a configuration of nginx | write YAML that begins like " + beginning}},
		{"static_resources:\n  listeners: []\n", []string{"1:1: this looks like a configuration of Envoy | write YAML that begins like " + beginning}},
		{"[entryPoints]\n  [entryPoints.web]\n    address = ':80'\n", []string{"1:1: this looks like a configuration of Traefik | write YAML that begins like " + beginning}},
		{"listeners: {a: 1}\n", []string{"1:12: listeners must be a list, not a group of keys | write listeners: [{name: web, bind: \":443\"}]"}},
		{listener("timeouts: 5s"), []string{"1:58: timeouts must be a group of keys, not text | write {preread: …}"}},
		{listener("timeouts:"), []string{"1:57: timeouts has no value | write timeouts: {preread: …}, or leave the key out"}},
		{listener("allow: 10.0.0.0/8"), []string{"1:55: allow must be a list, not text | write allow: [10.0.0.0/8]"}},
		{listener("transparent: yes"), []string{`1:61: transparent must be a boolean: "yes" is not true or false | write true`}},
		{listener("transparent: 1"), []string{"1:61: transparent must be a boolean, not a number | write transparent: true"}},
		{listener("connect: [on_data]"), []string{"1:57: connect must be text, not a list | write connect: immediately"}},
		{listener("connect: on-data"), []string{`1:57: connect "on-data" is unknown | did you mean "on_data"?`}},
		{listener("connect: never"), []string{`1:57: connect must be one of immediately, on_data, not "never" | write immediately or on_data`}},
		{listener(`socket: {backlog: "5"}`), []string{`1:66: backlog must be a whole number, not text | write it without quotes: 5`}},
		{listener("socket: {backlog: 1.5}"), []string{`1:66: backlog must be a whole number, not "1.5" | write 1 or 2`}},
		{listener("tls: {certificates: [{cert: a, key: k}], min_version: 1.2}"), []string{`1:102: min_version must be text, not a number | write it in quotes: "1.2"`}},
		{"listeners: [{name: 5, bind: 80, upstream: u}]" + upstreams, []string{
			`1:20: name must be text, not a number | write it in quotes: "5"`,
			"1:29: bind must be an address to listen on, not a number | write :80, or 127.0.0.1:80 for this machine only",
		}},
		// Off, and on.
		{upstream("endpoints: ['h:1'], health_check: no, outlier_detection: none, circuit_breaker: , retry: off, queue: never"), []string{
			"2:57: health_check must be a group of keys, not text | write health_check: off",
			"2:80: outlier_detection must be a group of keys, not text | write outlier_detection: off",
			"2:103: circuit_breaker has no value | write circuit_breaker: off, or leave the key out",
			"2:112: retry must be a group of keys, not text | write retry: {attempts: 0}",
			"2:124: queue must be a group of keys, not text | write queue: {size: 0}",
		}},
		{upstream("endpoints: ['h:1'], health_check: true, outlier_detection: 5, fallback: none, slow_start: off, send_proxy: false, drain_timeout: never"), []string{
			"2:57: health_check must be a group of keys, not true | leave it out: it is on by default, unless you write off",
			"2:82: outlier_detection must be a group of keys, not a number | write {consecutive_failures: …}, or off",
			"2:95: fallback must be a group of keys, not text | leave it out: then it is off",
			`2:113: "off" is not a duration | write 0`,
			`2:130: send_proxy must be a whole number, not "false" | write 0`,
			`2:152: "never" is not a duration | write 250ms, 5s, 1m30s or 2h`,
		}},
		// Units.
		{listener("timeouts: {idle: 5}"), []string{`1:65: "5" has no unit | write 5s, or 5ms`}},
		{listener("timeouts: {idle: 1d}"), []string{`1:65: "1d": there is no unit for days | write 24h`}},
		{listener("timeouts: {idle: -5s}"), []string{`1:65: "-5s" is not a duration | write 250ms, 5s, 1m30s or 2h`}},
		{listener("limits: {bandwidth: 64kib}"), []string{`1:68: "64kib" is not a size | write 65536, 64KiB or 1MiB`}},
		{listener("limits: {bandwidth: 9999999999999999999KiB}"), []string{`1:68: "9999999999999999999KiB" is not a size | write 65536, 64KiB or 1MiB`}},
		{listener("limits: {bandwidth: 2PiB, bandwidth_per_connection: off}"), []string{
			"1:68: bandwidth is 2PiB, more than 1PiB | write 1PiB or less", `1:100: "off" is not a size | write 0`,
		}},
		{listener("limits: {bandwidth: [1MiB], bandwidth_per_connection: {up: 5, upload: 6, burst: 1MiB/s}}"), []string{
			"1:68: bandwidth must be a group of keys, not a list | write bandwidth: 64MiB",
			`1:110: unknown key "upload" | leave it out, or use both, up, down or burst`,
			`1:128: "1MiB/s" is not a size but a rate | write it without /s: 1MiB`,
		}},
		// Ranges.
		{listener("timeouts: {idle: 8761h}"), []string{"1:65: idle is 8761h, more than 8760h | write 8760h or less"}},
		{listener("timeouts: {preread: 0}"), []string{"1:68: preread is 0s, less than 1ms | write 1ms or more"}},
		{listener("limits: {connections: -1}"), []string{"1:70: connections is -1, less than 0 | write 0 or more"}},
		{listener("limits: {source_prefix: [33, 129]}"), []string{
			"1:73: source_prefix is 33, more than 32 | write 32 or less",
			"1:77: source_prefix is 129, more than 128 | write 128 or less",
		}},
		{listener("limits: {source_prefix: [24]}"), []string{"1:72: source_prefix has 2 values, not 1 | write source_prefix: [32, 64]"}},
		{upstream("endpoints: ['h:1'], send_proxy: 3"), []string{"2:55: send_proxy is 3, more than 2 | write 2 or less"}},
		{upstream("endpoints: [{address: 'h:1', weight: 257}]"), []string{"2:60: weight is 257, more than 256 | write 256 or less"}},
		{"admin: {bind: '127.0.0.1:9', change_token: 'file:token'}\n" + upstream("endpoints: ['h:1', 'localhost:9']"), []string{"3:42: localhost:9 is the address of the admin API: every client could control this process | write another address"}},
		{upstream("endpoints: ['192.0.2.2:1', '192.0.2.3:1']"), []string{"1:45: connections would go in a circle: 192.0.2.2:1 is an endpoint of u, and an address of this listener | write another upstream, or another bind"}},
		{"admin: {bind: '[::1]:9', change_token: 'file:token'}\n" + upstream("endpoints: ['[::1%lo]:9']"), []string{"3:35: [::1%lo]:9 is the address of the admin API: every client could control this process | write another address"}},
		{"metrics: {bind: ':9', allow: [all]}\n" + upstream("endpoints: ['h:1', 'localhost:9']"), []string{"3:42: localhost:9 is the address of the metrics: every client could read them, with the address of this machine | write another address"}},
		{"admin: {bind: 'unix:/a'}\n" + upstream("endpoints: ['unix:/b', {address: 'unix:/a'}]"), []string{"3:56: unix:/a is the address of the admin API: every client could control this process | write another address"}},
		{upstream("endpoints: ['h:1', 'unix:/b', '127.0.0.1:9'], health_check: {port: 1}"), []string{
			"2:90: 127.0.0.1:1 is the listener a: checks of 127.0.0.1:9 would be its clients | write another port, or leave it out",
			"2:90: the endpoint unix:/b is a unix socket, which has no port | leave it out",
		}},
		{"admin: {bind: '[::1]:9', change_token: 'file:token'}\n" + upstream("endpoints: ['localhost:2'], health_check: {port: 9}"), []string{"3:72: localhost:9 is the address of the admin API: checks of localhost:2 would be its clients | write another port, or leave it out"}},
		{upstream("endpoints: ['h:1'], panic_below: 50"), []string{"2:56: panic_below is 50, more than 1 | write 0.5 for 50 in 100"}},
		{upstream("endpoints: ['h:1'], panic_below: 500"), []string{"2:56: panic_below is 500, more than 1 | write 1 or less"}},
		{upstream("endpoints: ['h:1'], health_check: {type: https}"), []string{`2:64: type must be one of tcp, http, not "https" | write type: http, and tls: true`}},
		{upstream("endpoints: ['h:1'], panic_below: 50%"), []string{`2:56: panic_below must be a number: "50%" is not a number | write it as a fraction of 1: 0.5`}},
		{upstream("endpoints: ['h:1'], circuit_breaker: {failure_percentage: 50%}"), []string{`2:81: failure_percentage must be a number: "50%" is not a number | write it without %: 50`}},
		{upstream("endpoints: ['h:1'], panic_below: .inf"), []string{`2:56: ".inf" is not a number | write a number such as 0.5`}},
		{upstream("endpoints: ['h:1'], circuit_breaker: {failure_percentage: 101}"), []string{"2:81: failure_percentage is 101, more than 100 | write 100 or less"}},
		// Addresses and names.
		{listener("allow: [10.0.0.0/33, 10.0.0.1/8, '::ffff:1.2.3.4', 10.0.0.1]"), []string{
			`1:56: "10.0.0.0/33" is not an address or a CIDR | write 10.0.0.0/8, 2001:db8::/32, one address, unix or all`,
			`1:69: "10.0.0.1/8" has bits beyond its length | write 10.0.0.0/8, or 10.0.0.1/32`,
			`1:81: "::ffff:1.2.3.4" is an IPv4 address within IPv6 | write it as IPv4`,
		}},
		{"listeners: [{name: 'a b', bind: [x, '1:', 'systemd:', 'a:1,b:2', 'unix:'], upstream: u}]" + upstreams, []string{
			`1:20: "a b" is not a name | write letters, digits, _, . or -, the first a letter, digit or _`,
			`1:34: "x" is not an address | write host:port, such as 127.0.0.1:8080, :8080 or [::1]:8080, or unix:/path`,
			`1:37: "1:" is not an address | write the port as a number`,
			`1:43: "systemd:" names no socket | write the name that FileDescriptorName= gives it, such as systemd:web`,
			`1:55: "a:1,b:2" is not an address | write a list: [a:1, b:2]`,
			`1:66: "unix:" is not an address | write unix:/path, or unix:@name for an abstract socket`,
		}},
		{upstream("endpoints: [':1', 'h:0', 'unix:/s?mode=0600']"), []string{
			`2:35: ":1" has no host | write 127.0.0.1:1 for this machine`,
			`2:41: "h:0" has no port | write the port after the colon, 1 to 65535`,
			`2:48: "unix:/s?mode=0600" is an address to connect to, which has no mode | write it without ?mode=`,
		}},
		{upstream("endpoints: [80, '8080', db, 10.0.0.1, '*:80', '1.2.3:80', '1.2.3.256:80', 'a/b:80', 'ä:80', '[fe80::1]:80', '224.0.0.1:80', 'unix:/d/']"), []string{
			`2:35: "80" is not an address | write the host too, such as 127.0.0.1:80`,
			`2:39: "8080" is not an address | write the host too, such as 127.0.0.1:8080`,
			`2:47: "db" is not an address | write the port too, such as db:8080`,
			`2:51: "10.0.0.1" is not an address | write the port too, such as 10.0.0.1:8080`,
			`2:61: "*:80" has no host: "*" is neither an IP address nor a name | write 10.0.0.12:80, [2001:db8::12]:80 or db.example:80`,
			`2:69: "1.2.3" is not an IP address | write the four numbers of an IPv4 address, from 0 to 255`,
			`2:81: "1.2.3.256" is not an IP address | write the four numbers of an IPv4 address, from 0 to 255`,
			`2:97: "a/b:80" has no host: "a/b" is neither an IP address nor a name | write 10.0.0.12:80, [2001:db8::12]:80 or db.example:80`,
			`2:107: "ä:80" has no host: "ä" is neither an IP address nor a name | write it in Punycode (xn--…)`,
			`2:115: "fe80::1" is an address that every interface can have | write its interface too, such as [fe80::1%eth0]:80`,
			`2:131: "224.0.0.1" is a multicast address, and TCP cannot connect to it | write another address`,
			`2:147: "/d/" is a directory | write the path of a socket, such as unix:/run/penstock/web.sock`,
		}},
		{"listeners: [{name: a, bind: ['*:9', 'eth0:9', 'web.test:9', '127.1:9', '[fe80::1]:9', '[ff02::1]:9', 'unix:/', 'unix:.', 'localhost:8', '127.0.0.1:8', '[fe80::1%lo]:9', '[::%lo]:9'], upstream: u}]" + upstreams, []string{
			`1:30: "*:9" is not an address: * is not a host | write :9, or 0.0.0.0:9 for IPv4 only`,
			`1:37: "eth0" is not an IP address | write an address of this machine, such as 10.0.0.5:9, or :9 for all its addresses`,
			`1:47: "web.test" is not an IP address | write an address of this machine, such as 10.0.0.5:9, or :9 for all its addresses`,
			`1:61: "127.1" is not an IP address | write an address of this machine, such as 10.0.0.5:9, or :9 for all its addresses`,
			`1:72: "fe80::1" is an address that every interface can have | write its interface too, such as [fe80::1%eth0]:9`,
			`1:87: "ff02::1" is a multicast address, and TCP cannot connect to it | write another address`,
			`1:102: "/" is a directory | write the path of a socket, such as unix:/run/penstock/web.sock`,
			`1:112: "." is a directory | write the path of a socket, such as unix:/run/penstock/web.sock`,
			"1:137: 127.0.0.1:8 overlaps with the address of listener a in /etc/p.yaml:1:122 | write another address or port, or leave one of them out",
			`1:170: "::%lo" does not name addresses of an interface | write [::]:9 for all interfaces, or an address that lo has`,
		}},
		{listener("routes: [{match: {sni: ['*', 'a.*.b', 'ä.de', '*.x', '-a', '*.b.c.d']}, upstream: u}]"), []string{
			`1:77: "a.*.b": * must be the whole part before the first dot | write a name, *. and a name, or only *`,
			`1:86: "ä.de" is not a server name | write it in Punycode (xn--…)`,
			`1:101: "-a" is not a server name | write a name such as shop.example.com`,
		}},
		{upstream("endpoints: ['h:1'], source_address: localhost"), []string{`2:59: "localhost" is not an IP address | write 10.0.0.1 or 2001:db8::1`}},
		{upstream("endpoints: ['h:1'], health_check: {type: http, http: {path: foo}}"), []string{`2:83: "foo" does not begin with / | write /foo`}},
		// References.
		{"listeners: [{name: a, bind: ':1', upstream: tenant}]\nupstreams: [{name: tenants, endpoints: ['h:1']}]", []string{`1:45: there is no upstream tenant | did you mean "tenants"?`}},
		{"listeners: [{name: a, bind: ':1', upstream: x}]", []string{"1:45: there is no upstream x | define it under upstreams"}},
		{listener("routes: [{match: {port: 1}, upstream: www}, {split: [{upstream: xxx, percent: 100}]}]"), []string{
			"1:86: there is no upstream www | define it, or write u or v",
			"1:112: there is no upstream xxx | define it, or write u or v",
		}},
		{upstream("endpoints: ['h:1'], fallback: {upstream: w}"), []string{`2:64: there is no upstream w | define it, or write u`}},
		{upstream("endpoints: ['h:1'], fallback: {upstream: u}"), []string{"2:64: fallbacks go in a circle: u → u | leave one of these fallbacks out, or write another upstream"}},
		{`listeners: [{name: a, bind: ':1', upstream: x}]
upstreams:
- {name: x, endpoints: ['h:1'], fallback: {upstream: a}}
- {name: a, endpoints: ['h:1'], fallback: {upstream: b}}
- {name: b, endpoints: ['h:1'], fallback: {upstream: c}}
- {name: c, endpoints: ['h:1'], fallback: {upstream: a}}
`, []string{"6:54: fallbacks go in a circle: a → b → c → a | leave one of these fallbacks out, or write another upstream"}},
		// Duplicates.
		{"listeners: [{name: a, bind: ':1', upstream: u}, {name: a, bind: ':2', upstream: u}]" + upstreams, []string{
			"1:56: the listener a is already defined in /etc/p.yaml:1:20 | write another name",
		}},
		{"listeners: [{name: a, bind: ':1', upstream: u}]\nupstreams: [{name: u, endpoints: ['h:1', 'h:1', {name: x, address: 'h:1'}, {name: x, address: 'h:2'}]}, {name: u, endpoints: ['h:1']}]", []string{
			"2:42: the endpoint h:1 is already defined in /etc/p.yaml:2:35 | leave one out, and give the other more weight",
			"2:83: the endpoint x is already defined in /etc/p.yaml:2:56 | write another name",
			"2:112: the upstream u is already defined in /etc/p.yaml:2:20 | write another name",
		}},
		// Binds.
		{"admin: {bind: '127.0.0.1:2', change_token: 'file:token'}\n" + "listeners: [{name: a, bind: [':1', '10.0.0.1:1', '[::1]:1'], upstream: u}, {name: b, bind: ['127.0.0.1:2', 'systemd:x', ':0', ':0'], upstream: u}, {name: c, bind: ['systemd:x', 'unix:/a/../b', '10.0.0.1:3', '10.0.0.2:3', '0.0.0.0:3', '10.0.0.1:3', 'unix:@n', 'unix:@n'], upstream: u}, {name: d, bind: 'unix:/b?mode=0600', upstream: u}]" + upstreams, []string{
			"2:36: 10.0.0.1:1 overlaps with the address of listener a in /etc/p.yaml:2:30 | write another address or port, or leave one of them out",
			"2:50: [::1]:1 overlaps with the address of listener a in /etc/p.yaml:2:30 | write another address or port, or leave one of them out",
			"2:93: 127.0.0.1:2 overlaps with the address of admin in /etc/p.yaml:1:15 | write another address or port, or leave one of them out",
			"2:165: systemd:x overlaps with the address of listener b in /etc/p.yaml:2:108 | write another address or port, or leave one of them out",
			"2:222: 0.0.0.0:3 overlaps with the address of listener c in /etc/p.yaml:2:194 | write another address or port, or leave one of them out",
			"2:235: 10.0.0.1:3 overlaps with the address of listener c in /etc/p.yaml:2:194 | write another address or port, or leave one of them out",
			"2:260: unix:@n overlaps with the address of listener c in /etc/p.yaml:2:249 | write another address or port, or leave one of them out",
			"2:302: unix:/b?mode=0600 overlaps with the address of listener c in /etc/p.yaml:2:178 | write another address or port, or leave one of them out",
		}},
		{"listeners: [{name: a, bind: ['0.0.0.0:1', '[::]:1', '127.0.0.1:1', '[::1]:1', 'g:1', ':1'], upstream: u}, {name: b, bind: ['[::1]:2', '0.0.0.0:2', '[::]:2', '[::ffff:1.2.3.4]:2'], upstream: u}]" + upstreams, []string{
			"1:53: 127.0.0.1:1 overlaps with the address of listener a in /etc/p.yaml:1:30 | write another address or port, or leave one of them out",
			"1:68: [::1]:1 overlaps with the address of listener a in /etc/p.yaml:1:43 | write another address or port, or leave one of them out",
			`1:79: "g" is not an IP address | write an address of this machine, such as 10.0.0.5:1, or :1 for all its addresses`,
			"1:86: :1 overlaps with the address of listener a in /etc/p.yaml:1:30 | write another address or port, or leave one of them out",
			"1:148: [::]:2 overlaps with the address of listener b in /etc/p.yaml:1:124 | write another address or port, or leave one of them out",
			"1:158: [::ffff:1.2.3.4]:2 overlaps with the address of listener b in /etc/p.yaml:1:135 | write another address or port, or leave one of them out",
		}},
		{"admin: {bind: ':9'}\nlisteners: [{name: a, bind: ':1', upstream: u}]" + upstreams, []string{
			"1:15: :9 is open to other machines | write unix:/path or 127.0.0.1:PORT, or add tls",
			"1:15: everybody who can connect to :9 could change everything | add one of change_token: file:PATH, read_token: file:PATH, tls: {client_ca: PATH}; or write unix:/path",
		}},
		{"admin: {bind: 'unix:@n'}\nlisteners: [{name: a, bind: ':1', upstream: u}]" + upstreams, []string{
			"1:15: an abstract socket is open to every user of this machine | write unix:/path",
		}},
		{"admin: {bind: 'systemd:x'}\nlisteners: [{name: a, bind: ':1', upstream: u}]" + upstreams, []string{
			"1:15: the admin API cannot use a socket of systemd | write unix:/path",
		}},
		{admin("bind: '127.0.0.1:9'"), []string{
			"1:15: everybody who can connect to 127.0.0.1:9 could change everything | add one of change_token: file:PATH, read_token: file:PATH, tls: {client_ca: PATH}; or write unix:/path",
		}},
		{admin("bind: ':9', tls: {cert: a, key: k}"), []string{
			"1:15: everybody who can connect to :9 could change everything | add one of change_token: file:PATH, read_token: file:PATH, tls: {client_ca: PATH}; or write unix:/path",
		}},
		{admin("bind: ':9', tls: {cert: a, key: k, client_ca: a}"), nil},
		{admin("bind: ':9', tls: {cert: a, key: k}, read_token: 'file:token'"), nil},
		{admin("bind: ':9', tls: {cert: a, key: k2, client_ca: k}"), []string{
			"1:41: /etc/a and /etc/k2 do not belong together: private key does not match public key | write a certificate and its private key, both as PEM files",
			"1:56: there is no certificate in /etc/k | write a PEM file of certificates",
		}},
		{admin("bind: '127.0.0.1:9', change_token: 'file:public'"), []string{
			"1:44: every user of this machine may use /etc/public (mode 0644) | chmod o= /etc/public",
		}},
		{admin("bind: '127.0.0.1:9', change_token: 'file:lines', read_token: 'file:short'"), []string{
			"1:44: the token has 2 lines | leave only one line in /etc/lines",
			"1:70: the token of read_token has fewer than 16 characters | write a longer token: openssl rand -hex 32",
		}},
		{admin("bind: '127.0.0.1:9', change_token: 'file:token', read_token: 'file:token'"), []string{
			"1:70: read_token and change_token are equal: a client that may read could also change | write another token, or leave read_token out",
		}},
		{admin("bind: '127.0.0.1:9', change_token: 0123456789abcdef, read_token: 'file:empty'"), []string{
			"1:44: the token is written in the configuration, which other users may read | write file:PATH or ${VARIABLE}",
			"1:74: the token is empty | write it into /etc/empty, or leave it out",
		}},
		{admin("bind: '127.0.0.1:9', change_token: 'file:token', group: ops"), []string{
			"1:65: group has no effect over TCP: the kernel does not say which user connects | leave it out, or write unix:/path as bind",
		}},
		{admin("bind: 'unix:/s', group: ops"), nil},
		{admin("bind: 'unix:/s', change_token: 'file:token'"), []string{
			"1:40: tokens have no effect over a unix socket: the user of the client decides | leave it out, or write host:port as bind",
		}},
		{admin("bind: 'unix:/s', tls: {cert: a, key: k}"), []string{
			"1:31: a unix socket has no TLS | leave it out, or write host:port as bind",
		}},
		// Metrics.
		{"metrics: {bind: 'unix:/s', allow: [unix], token: 'x'}\nlisteners: [{name: a, bind: ':1', upstream: u}]" + upstreams, []string{
			"1:17: the metrics need a TCP address | write 127.0.0.1:9464, or scrape the admin API",
			"1:35: unix matches only clients of unix sockets, and the metrics have no unix socket | leave it out",
			"1:50: the token is written in the configuration, which other users may read | write file:PATH or ${VARIABLE}",
		}},
		{"metrics: {bind: ':1', allow: [], token: ''}\nlisteners: [{name: a, bind: ':1', upstream: u}]" + upstreams, []string{
			"1:30: allow is empty, so no source may scrape | write the sources of the scrapers, or all",
			"2:29: :1 overlaps with the address of metrics in /etc/p.yaml:1:17 | write another address or port, or leave one of them out",
		}},
		{"metrics: {bind: ':9'}\nlisteners: [{name: a, bind: ':1', upstream: u}]" + upstreams, []string{"1:10: allow is missing | write allow: [10.0.0.0/8]"}},
		// Routes.
		{listener("routes: [{split: [{upstream: u, percent: 95}, {upstream: v, percent: 4.99}]}]"), []string{"1:65: the percentages add up to 99.99, not to 100 | write percent: 5 for v"}},
		{listener("routes: [{split: [{upstream: u, percent: 33.333}, {upstream: v, percent: 66.667}]}]"), []string{
			"1:89: 33.333 % has more than two decimals | write 33.33", "1:121: 66.667 % has more than two decimals | write 66.67",
		}},
		{listener("routes: [{split: [{upstream: u, percent: 50}, {upstream: u, percent: 50}]}]"), []string{"1:105: the upstream u has two shares | add its percentages"}},
		{listener("routes: [{upstream: u, split: [{upstream: u, percent: 100}]}, {upstream: v}]"), []string{
			"1:57: upstream and split cannot be used together | leave one of them out",
			"1:110: this route is never reached | put it before the route in line 1, which matches every client",
		}},
		{listener("routes: [{match: {sni: [a.b], alpn: [h2]}, upstream: u}, {match: {alpn: [h2]}, upstream: u}, {match: {alpn: [h2], sni: [A.b]}, upstream: u}]"), []string{
			"1:141: this route is never reached: the route in line 1 matches the same clients | leave it out, or match other clients",
		}},
		{"listeners: [{name: a, bind: [':80', 'unix:/s'], upstream: u}, {name: b, bind: '10.0.0.1:81', upstream: u}, {name: c, bind: '10.0.0.1:82', upstream: u}]\n" +
			"upstreams: [{name: u, endpoints: ['[::1]:80', '10.0.0.1:81', 'localhost:82', 'unix:/t']}]", []string{
			"1:59: connections would go in a circle: [::1]:80 is an endpoint of u, and an address of this listener | write another upstream, or another bind",
			"1:104: connections would go in a circle: 10.0.0.1:81 is an endpoint of u, and an address of this listener | write another upstream, or another bind",
		}},
		{listener("routes: [{match: {port: 1}}]"), []string{"1:57: upstream or split is missing | write upstream: and the name of an upstream"}},
		{listener("routes: [{match: {port: 2}, upstream: u}]"), []string{"1:72: this route is never taken: the listener is not bound to port 2 | write a port that bind has"}},
		{"listeners: [{name: a, bind: [], upstream: u}, {name: b, bind: ['unix:/s'], transparent: true}]" + upstreams, []string{
			"1:29: there is no address to listen on | write bind: \":443\"",
			"1:64: a unix socket cannot be transparent | leave out this address or transparent",
		}},
		{listener("accept_proxy: {versions: []}"), []string{"1:73: no version of the PROXY header is accepted | write versions: [1, 2]"}},
		{listener("accept_proxy: {versions: [1, 1]}"), []string{"1:73: a version is listed twice | write versions: [1, 2]"}},
		// TLS.
		{listener("tls: {}"), []string{`1:53: certificates is missing | write certificates: [{cert: a.pem, key: a.key}]`}},
		{listener("tls: {certificates: []}"), []string{"1:68: TLS cannot be terminated without a certificate | write certificates: [{cert: a.pem, key: a.key}], or leave tls out"}},
		{listener("tls: {certificates: [{cert: none, key: k}, {cert: a, key: none}, {cert: a, key: k2}, {cert: k, key: k}, {cert: a, key: k}], client_ca: k}"), []string{
			"1:76: open /etc/none: file does not exist | use the name of an existing file",
			"1:106: open /etc/none: file does not exist | use the name of an existing file",
			"1:128: /etc/a and /etc/k2 do not belong together: private key does not match public key | write a certificate and its private key, both as PEM files",
			"1:148: /etc/k and /etc/k do not belong together: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched | write a certificate and its private key, both as PEM files",
			"1:183: there is no certificate in /etc/k | write a PEM file of certificates",
		}},
		{upstream("endpoints: ['unix:/s'], tls: {cert: a, ca: none}"), []string{
			"2:52: the endpoint unix:/s is a unix socket, and its address has no name to verify | write sni: and the name in its certificate",
			"2:59: key is missing | write key: and the PEM file of its private key",
			"2:66: open /etc/none: file does not exist | use the name of an existing file",
		}},
		// Upstreams.
		{upstream("balance: first"), []string{`2:13: endpoints or discover is missing | write endpoints: ["10.0.0.11:443"]`}},
		{upstream("endpoints: [{address: 'h:1', weight: 0}, {address: 'h:2', weight: 0, backup: true}]"), []string{
			"2:34: every endpoint has weight 0: none can be chosen | write weight: 1 at an endpoint, or a fallback",
		}},
		{upstream("endpoints: ['h:1'], discover: {dns: {name: x}}"), []string{"2:13: endpoints and discover cannot be used together | leave one of them out"}},
		{upstream("endpoints: []"), []string{`2:34: endpoints is empty | write endpoints: ["10.0.0.11:443"]`}},
		{upstream("endpoints: [], discover: {dns: {name: x}}"), nil},
		{listener("routes: [{split: []}]"), []string{"1:65: split is empty | write upstream: and the name of an upstream"}},
		{upstream("discover: {}"), []string{"2:33: dns or file is missing | write dns: {name: _pg._tcp.db.example}"}},
		{upstream("discover: {dns: {name: x, type: A, servers: ['ns:53', '1.2.3.4:53'], min_ttl: 1h}}"), []string{
			"2:39: A records have no port: port is missing | write port: 443, or type: SRV",
			"2:68: the address of a name server cannot be a name | write an IP address and a port, such as 10.0.0.2:53",
			"2:101: min_ttl is 1h0m0s, longer than max_ttl (5m0s) | make min_ttl shorter or max_ttl longer",
		}},
		{upstream("discover: {dns: {name: x, port: 1}}"), []string{"2:55: SRV records have their own ports | leave it out, or write type: A"}},
		{upstream("endpoints: ['h:1'], health_check: {type: http, send: x, expect: y, http: {status: []}, sni: x}"), []string{
			"2:76: an http check does not use send, but sends a request | leave it out, or write type: tcp",
			"2:87: an http check does not use expect, but http.body | write http: {body: …}",
			"2:105: status is empty, so every check would fail | write status: [200]",
			"2:115: sni has no effect without TLS | write tls: true as well, or leave it out",
		}},
		{upstream("endpoints: ['h:1'], health_check: {http: {path: /x}, fast_interval: 1m}"), []string{
			"2:64: http has no effect on a tcp check | write type: http as well, or leave http out",
			"2:91: fast_interval is 1m0s, longer than interval (5s) | make fast_interval shorter or interval longer",
		}},
		{upstream("endpoints: ['unix:/s'], health_check: {port: 80}"), []string{"2:68: the endpoint unix:/s is a unix socket, which has no port | leave it out"}},
		{upstream("endpoints: ['10.0.0.1:1'], source_address: '::1'"), []string{"2:66: ::1 cannot connect to the endpoint 10.0.0.1:1 | write an address of the same family"}},
		{upstream("endpoints: ['h:1'], retry: {backoff: 1s}, outlier_detection: {max_ejection_time: 1s}"), []string{
			"2:60: backoff is 1s, longer than max_backoff (250ms) | make backoff shorter or max_backoff longer",
			"2:104: base_ejection_time is 30s, longer than max_ejection_time (1s) | make base_ejection_time shorter or max_ejection_time longer",
		}},
		{upstream("endpoints: ['h:1'], fallback: {}"), []string{"2:53: upstream or respond is missing | write upstream: and the name of an upstream"}},
		{upstream("endpoints: ['h:1'], fallback: {respond: none}"), []string{"2:63: open /etc/none: file does not exist | use the name of an existing file"}},
		// Files and variables.
		{upstream("endpoints: ['h:1'], health_check: {send: 'file:none', expect: 'file:${NOT}'}"), []string{
			"2:64: open /etc/none: file does not exist | use the name of an existing file",
			"2:91: the variable NOT is not set in the environment | set NOT, or write $${ for ${",
		}},
		{"listeners: [{name: '${', bind: '${a-b}:${NOT}', upstream: '${}'}]", []string{
			"1:21: } is missing after ${ | write ${NAME}, or $$ for a $",
			"1:33: ${a-b} names no variable | write letters, digits and _, or $$ for a $",
			"1:40: the variable NOT is not set in the environment | set NOT, or write $${ for ${",
			"1:60: ${} names no variable | write letters, digits and _, or $$ for a $",
		}},
		{"include: ['', d]\n" + smallest, []string{
			"1:11: the name of the file to include is empty | write conf.d/*.yaml, or leave it out",
			"1:15: there is no file /etc/d | use the name of an existing file, or a pattern",
		}},
		{"include: [none.yaml, 'a[', 'x*/y.yaml', a.pem]\n" + smallest, []string{
			"1:11: there is no file /etc/none.yaml | use the name of an existing file, or a pattern",
			`1:22: "a[" is not a pattern | write conf.d/*.yaml, with \ before a special character`,
			`1:28: the directory in "x*/y.yaml" must not be a pattern | write conf.d/*.yaml`,
			"1:41: there is no file /etc/a.pem | use the name of an existing file, or a pattern",
		}},
		// No YAML.
		{"a: [1", []string{"1:4: this [ is not closed | write ] at its end"}},
		{"a: [1,\n2,\n{b: [],\n", []string{"3:1: this { is not closed | write } at its end"}},
		{"a: [x\nb: {}", []string{"2:2: a , or ] is missing before this: the bracket is in line 1 | write it, or write the text in quotes"}},
		{"a:\n\tb: 1", []string{"2:1: a tab cannot indent | indent with spaces instead of tabs"}},
		{"a: b: c", []string{"1:5: mapping values are not allowed in this context | write text with a colon in quotes, or begin a new line"}},
		{"a:\n  - \"b:1\" weight=2\n", []string{"2:11: there is text after the value | leave it out, or write a group in braces: {address: …, weight: …}"}},
		{"a: @x", []string{"1:4: no value begins with this character | write it in quotes"}},
		{"a: *x", []string{"1:4: unknown anchor 'x' referenced | define the anchor above, with &, or write * and its name in quotes if it is text"}},
		{"ab: ä\xff", []string{"1:6: the byte 0xff is not UTF-8 | write the file in UTF-8"}},
		{"a:\nb: \x01", []string{`2:4: the character U+0001 is not allowed in text | write "\u0001" in quotes`}},
		{"a: 1\n---\nb: 2", []string{"2:1: a file is one document: a second one begins here | leave this line out, or include the rest as another file"}},
		{"# first\n---\n# second\n--- {a: 1}\n", []string{"4:1: a file is one document: a second one begins here | leave this line out, or include the rest as another file"}},
		{"a: 1\n...\nb: 2", []string{"0:0: expected single document, found multiple | leave out ... and the rest, or include the rest as another file"}},
		{"---\n", []string{"0:0: there are no listeners | write " + beginning}},
		{listener("routes: [{match: {sni: [*.b.c]}, upstream: u}]"), []string{`1:72: without quotes a word that begins with * is an alias | write it in quotes: "*.b.c"`}},
		{listener("routes: [{match: {sni: [*]}, upstream: u}]"), []string{`1:72: without quotes a word that begins with * is an alias | write it in quotes: "*"`}},
		{"listeners:\n- name: a\n  bind: *:80\n", []string{`3:9: without quotes a word that begins with * is an alias | write it in quotes: "*:80"`}},
		{strings.Repeat("[", 100), []string{"1:33: while increasing flow level: exceeded max depth of 32 | write fewer levels"}},
		{"", []string{`0:0: there are no listeners | write listeners: [{name: web, bind: ":8080", upstream: app}]`}},
		{"# nothing\n", []string{`0:0: there are no listeners | write listeners: [{name: web, bind: ":8080", upstream: app}]`}},
	} {
		_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": c.text, "/etc/a": cert, "/etc/k": key, "/etc/k2": otherKey, "/etc/token": "0123456789abcdef\n", "/etc/public": "fedcba9876543210", "/etc/lines": "0123456789abcdef\n\n", "/etc/short": "0123456789abcde", "/etc/empty": "\n"}, "/etc/p.yaml", variables())
		got := shorts(problems)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s\n got %s\nwant %s", c.text, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

func TestProblemsOfIncludedFiles(t *testing.T) {
	_, problems := config.LoadTree(config.Tree{
		"/etc/p.yaml": "include: [b.yaml, c.yaml]\nlimits: {}\nlisteners: [{name: a, bind: ':1', upstream: w}]\n",
		"/etc/b.yaml": "limits: {connections: 5}\nupstreams:\n- {name: u, endpoints: ['h:1'], weight: 1}\n",
		"/etc/c.yaml": "listeners:\n- {name: a, bind: '1.2.3.4:1', upstream: u}\nupstreams: [",
	}, "/etc/p.yaml", nil)
	var got []string
	for _, p := range problems {
		got = append(got, p.Error())
	}
	want := []string{
		`/etc/b.yaml:1:9: limits is also in /etc/p.yaml:2:9: leave it out in one of the places`,
		`/etc/b.yaml:3:33: unknown key "weight": write endpoints: [{weight: …}]`,
		`/etc/c.yaml:3:12: this [ is not closed: write ] at its end`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func problem(t *testing.T, text string) config.Problem {
	t.Helper()
	_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text}, "/etc/p.yaml", nil)
	if len(problems) != 1 {
		t.Fatalf("%d problems: %v", len(problems), problems)
	}
	return problems[0]
}

// TestWhatIsShown: the caret is below the text of the problem, whatever the line contains.
func TestWhatIsShown(t *testing.T) {
	long := strings.Repeat("x", 3000)
	for _, c := range []struct{ name, text, marked string }{
		{"plain", "listeners: [{name: a, bind: ':1', upstream: u, connect: never}]" + upstreams, "never"},
		{"quotes", "listeners: [{name: a, bind: ':1', upstream: u, connect: \"never\"}]" + upstreams, `"never"`},
		{"an alias", "x-a: &anchor never\nlisteners: [{name: a, bind: ':1', upstream: u, connect: *anchor}]" + upstreams, "*anchor"},
		{"other alphabets before", "listeners: [{name: a, bind: ':1', upstream: u, allow: [], tls: äöü😀, connect: on_data}]" + upstreams, "äöü😀"},
		{"tabs", "listeners: [{name: a,\tbind: ':1',\tupstream: u,\tconnect:\tnever}]" + upstreams, "never"},
		{"a long line", "listeners: [{name: a, bind: ':1', upstream: u, x: " + long + "}]" + upstreams, "x"},
		{"the end of a long line", "x-a: " + long + "ä\nlisteners: [{x-b: [" + long + "], name: a, bind: ':1', upstream: u, connect: on_data}]" + upstreams, "x-b"},
		{"a key of another group", "listeners: [{name: a, bind: ':1', upstream: u, idle: 5s}]" + upstreams, "idle"},
	} {
		p := problem(t, c.text)
		lines := strings.Split(p.String(), "\n")
		if len(lines) != 3 || !strings.HasPrefix(lines[0], p.Pos.String()+": "+p.Message) {
			t.Fatalf("%s: %s", c.name, p.String())
		}
		shown, carets := []rune(lines[1]), []rune(lines[2])
		from := slices.Index(carets, '^')
		to := from
		for to < len(carets) && carets[to] == '^' {
			to++
		}
		if got := string(shown[from:min(to, len(shown))]); got != c.marked {
			t.Errorf("%s: %q is marked, not %q\n%s", c.name, got, c.marked, p.String())
		}
		if !strings.HasSuffix(lines[2], p.Fix) || len(shown) > 250 {
			t.Errorf("%s:\n%s", c.name, p.String())
		}
	}
}

// TestDidYouMean: a likely correction is suggested.
func TestDidYouMean(t *testing.T) {
	for written, meant := range map[string]string{
		"timeout": "timeouts", "timeoust": "timeouts", "acceptProxy": "accept_proxy", "accept-proxy": "accept_proxy", "UPSTREAM": "upstream",
		"route": "routes", "sokcet": "socket", "limit": "limits", "dney": "deny", "transparency": "transparent", "http": "",
		strings.Repeat("a", 10000): "", "*": "",
	} {
		p := problem(t, listener(fmt.Sprintf("%q: {}", written)))
		if want := fmt.Sprintf("did you mean %q?", meant); (meant != "") != (p.Fix == want) {
			t.Errorf("%.20s: %s, want %q", written, p.Fix, meant)
		}
	}
}

// TestManyProblems: they are sorted, and their number is limited.
func TestManyProblems(t *testing.T) {
	_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": "upstreams:\n" + strings.Repeat("- {x: 1}\n", 1500)}, "/etc/p.yaml", nil)
	last := problems[len(problems)-1]
	if len(problems) != 1001 || !strings.HasPrefix(last.String(), "and ") || !strings.HasSuffix(last.Message, " more") {
		t.Errorf("%d problems, the last one %v", len(problems), last)
	}
	line := 0
	for _, p := range problems[:1000] {
		if p.Pos.Line < line {
			t.Fatalf("line %d comes after line %d", p.Pos.Line, line)
		}
		line = p.Pos.Line
	}
}

// told compares the problems of a text, in short form, with the expected ones.
func told(t *testing.T, tree config.Tree, text string, want []string) {
	t.Helper()
	tree["/etc/p.yaml"] = text
	_, problems := config.LoadTree(tree, "/etc/p.yaml", variables())
	got := shorts(problems)
	if !slices.Equal(got, want) {
		t.Errorf("%s\n got %s\nwant %s", text, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// TestNothingFollows: a value that was written but cannot be read is not reported as missing,
// and errors that follow from its default are not reported.
func TestNothingFollows(t *testing.T) {
	const l = "listeners: [{name: a, bind: ':1', upstream: u}]\n"
	for _, c := range []struct {
		text string
		want []string
	}{
		// Names.
		{l + "upstreams: [{name: 'u v', endpoints: ['h:1']}]", []string{`2:20: "u v" is not a name | write letters, digits, _, . or -, the first a letter, digit or _`}},
		{l + "upstreams: [{nmae: u, endpoints: ['h:1']}]", []string{`2:14: unknown key "nmae" | did you mean "name"?`}},
		{l + "upstreams: [{nmae: u/v, endpoints: ['h:1']}]", []string{`2:14: unknown key "nmae" | did you mean "name"?`}},
		{l + "upstreams: [{endpoints: ['h:1']}]", []string{"2:13: name is missing | write name: tenants"}},
		{l + "upstreams: u", []string{`2:12: upstreams must be a list, not text | write upstreams: [{name: tenants}]`}},
		{l + "upstreams: [u]", []string{"2:13: each of upstreams must be a group of keys, not text | write {name: tenants}"}},
		{l + "upstrems: [{name: u, endpoints: ['h:1']}]", []string{`2:1: unknown key "upstrems" | did you mean "upstreams"?`}},
		{l + "upstrems: [{name: u, endpoints: 5}]", []string{`2:1: unknown key "upstrems" | did you mean "upstreams"?`}},
		{l + "upstreams:", []string{`2:11: upstreams has no value | write upstreams: [{name: tenants}], or leave the key out`}},
		// Included files.
		{"include: [bad.yaml]\n" + l, []string{"1:12: this [ is not closed | write ] at its end"}},
		{"include: [none.yaml]\n" + l, []string{"1:11: there is no file /etc/none.yaml | use the name of an existing file, or a pattern"}},
		{"include: ['${DIR}/a.yaml']\n" + l, []string{"1:12: the variable DIR is not set in the environment | set DIR, or write $${ for ${"}},
		{"include: none.yaml\n" + l, []string{"1:10: include must be a list, not text | write include: [none.yaml]"}},
		{"include: ['']\n" + l, []string{"1:11: the name of the file to include is empty | write conf.d/*.yaml, or leave it out", "2:45: there is no upstream u | define it under upstreams"}},
		{"include: [good.yaml]\n" + l, []string{"2:45: there is no upstream u | define it, or write uu"}},
		{"listeners: [{name: a, bind: ':1', upstream: u, x: 1}]\nupstreams: [{name: yyyy, endpoints: ['h:1']}]", []string{
			"1:45: there is no upstream u | define it, or write yyyy",
			`1:48: unknown key "x" | leave it out, or use name, bind, allow, deny, accept_proxy, transparent, routes, upstream, limits, timeouts, connect, tls, …`,
		}},
		// Required and exclusive keys.
		{upstream("endpoints: 'a:1'"), []string{`2:34: endpoints must be a list, not text | write endpoints: ["a:1"]`}},
		{upstream("discover: dns"), []string{"2:33: discover must be a group of keys, not text | write {dns: …}"}},
		{upstream("discover: {dns: }"), []string{"2:39: dns has no value | write dns: {name: _pg._tcp.db.example}, or leave the key out"}},
		{upstream("discover: "), []string{"2:33: discover has no value | write discover: {dns: …}, or leave the key out"}},
		{upstream("discover: {dns: x}"), []string{"2:39: dns must be a group of keys, not text | write {name: _pg._tcp.db.example}"}},
		{upstream("discover: {dsn: {name: x}}"), []string{`2:34: unknown key "dsn" | did you mean "dns"?`}},
		{upstream("discover: {dns: {name: x, type: SVR, port: 5}}"), []string{`2:55: type "SVR" is unknown | did you mean "SRV"?`}},
		{upstream("discover: {dns: {name: x, type: A, port: 70000}}"), []string{`2:64: port is 70000, more than 65535 | write 65535 or less`}},
		{upstream("endpoints: [{adress: 'h:1'}]"), []string{`2:36: unknown key "adress" | did you mean "address"?`}},
		{upstream("endpoints: ['h:1'], fallback: {respond: '${NOT}'}"), []string{"2:64: the variable NOT is not set in the environment | set NOT, or write $${ for ${"}},
		{upstream("endpoints: ['h:1'], fallback: sorry.txt"), []string{"2:53: fallback must be a group of keys, not text | write {upstream: …}"}},
		{upstream("endpoints: ['h:1'], retry: {backoff: 1s, max_backoff: 5}"), []string{`2:77: "5" has no unit | write 5s, or 5ms`}},
		{upstream("endpoints: ['h:1'], health_check: {type: htp, http: {path: /x}}"), []string{`2:64: type "htp" is unknown | did you mean "http"?`}},
		{upstream("endpoints: ['h:1'], health_check: {tls: yes, sni: x}"), []string{`2:63: tls must be a boolean: "yes" is not true or false | write true`}},
		{upstream("endpoints: ['h:1'], tls: {cert: a.pem, key: [x]}"), []string{
			"2:55: open /etc/a.pem: file does not exist | use the name of an existing file",
			"2:67: key must be a path, not a list | write key: client.key",
		}},
		// Listeners and their routes.
		{"listeners: [{name: a, bind: ':1', upstrem: u}]" + upstreams, []string{`1:35: unknown key "upstrem" | did you mean "upstream"?`}},
		{"listeners: [{name: a, bind: ':1', upstrem: v2}]" + upstreams, []string{
			`1:35: unknown key "upstrem" | did you mean "upstream"?`, "1:44: there is no upstream v2 | did you mean \"v\"?",
		}},
		{"listeners: [{name: a, bnid: ':1', upstream: u}]" + upstreams, []string{`1:23: unknown key "bnid" | did you mean "bind"?`}},
		{"listeners: [{name: a, bind: {}, upstream: u, routes: [{match: {port: 5}, upstream: u}]}]" + upstreams, []string{
			`1:29: bind must be a list, not a group of keys | write bind: ":443"`,
		}},
		{"listeners: [{name: a, bind: 'x:y:z', upstream: u, routes: [{match: {port: 5}, upstream: u}]}]" + upstreams, []string{
			`1:29: "x:y:z" is not an address | write host:port, such as 127.0.0.1:8080, :8080 or [::1]:8080, or unix:/path`,
		}},
		{listener("routes: [{match: {port: 70000}, upstream: u}]"), []string{"1:72: port is 70000, more than 65535 | write 65535 or less"}},
		{listener("routes: [{match: {prot: 5}, upstream: v}, {match: {sni: [x]}, upstream: u}]"), []string{
			`1:66: unknown key "prot" | did you mean "port"?`,
			"1:72: this route is never taken: the listener is not bound to port 5 | write a port that bind has",
		}},
		{listener("routes: [{match: {agents: [x]}, upstream: v}, {match: {sni: [x]}, upstream: u}]"), []string{
			`1:66: unknown key "agents" | leave it out, or use sni, alpn, source, port, protocol, host, path, user, database, bytes or tlv`,
		}},
		{"listeners: [{name: a, bind: '127.0.0.1:1', routes: [{match: {agents: [x]}, upstream: u}], upstream: v}]\nupstreams: [{name: u, endpoints: ['127.0.0.1:1']}, {name: v, endpoints: ['h:1']}]", []string{
			`1:62: unknown key "agents" | leave it out, or use sni, alpn, source, port, protocol, host, path, user, database, bytes or tlv`,
		}},
		{listener("routes: [{match: x, upstream: v}, {match: {sni: [x]}, upstream: u}]"), []string{
			"1:65: match must be a group of keys, not text | write {sni: …}",
		}},
		{listener("routes: [{match: {sni: x.y}, upstream: v}, {match: {sni: [x]}, upstream: u}]"), []string{
			"1:71: sni must be a list, not text | write sni: [x.y]",
		}},
		{listener("routes: [{match: {sni: ['ä']}, upstream: v}, {match: {sni: ['ö']}, upstream: u}]"), []string{
			`1:72: "ä" is not a server name | write it in Punycode (xn--…)`, `1:108: "ö" is not a server name | write it in Punycode (xn--…)`,
		}},
		{listener("routes: [x, {split: u}, {splt: [{upstream: u, percent: 100}]}]"), []string{
			"1:57: each of routes must be a group of keys, not text | write {match: …}",
			"1:68: split must be a list, not text | write split: [{upstream: shop-next, percent: 5}]",
			"1:72: this route is never reached | put it before the route in line 1, which matches every client",
			`1:73: unknown key "splt" | did you mean "split"?`,
		}},
		{"listeners: [x]" + upstreams, []string{"1:13: each of listeners must be a group of keys, not text | write {name: web, bind: \":443\"}"}},
		{listener("routes: [{splt: [{upstream: nope, percent: x}]}]"), []string{`1:58: unknown key "splt" | did you mean "split"?`}},
		{listener("routes: [{split: [{upstream: u, percent: 50}, {upstream: v, percent: half}]}]"), []string{
			`1:117: percent must be a number: "half" is not a number | write a number such as 0.5`,
		}},
		{listener("accept_proxy: {versions: [x, y]}"), []string{
			`1:74: versions must be a whole number, not "x" | write 1 or 2`, `1:77: versions must be a whole number, not "y" | write 1 or 2`,
		}},
		{listener("tls: {certificates: a.pem}"), []string{"1:68: certificates must be a list, not text | write certificates: [{cert: a.pem, key: a.key}]"}},
	} {
		told(t, config.Tree{"/etc/bad.yaml": "upstreams: [", "/etc/good.yaml": "upstreams: [{name: uu, endpoints: ['h:1']}]"}, c.text, c.want)
	}
}

// TestBothOfAPair: a certificate and its key are both looked at, whatever the other is.
func TestBothOfAPair(t *testing.T) {
	const missing = "file does not exist | use the name of an existing file"
	told(t, config.Tree{}, listener("tls: {certificates: [{cert: c, key: k}, {cert: d}, {}]}"), []string{
		"1:76: open /etc/c: " + missing, "1:84: open /etc/k: " + missing,
		"1:88: key is missing | write key: a.key", "1:95: open /etc/d: " + missing,
		"1:99: cert is missing | write cert: a.pem", "1:99: key is missing | write key: a.key",
	})
	told(t, config.Tree{}, upstream("endpoints: ['h:1'], tls: {cert: c, key: k}"), []string{
		"2:55: open /etc/c: " + missing, "2:63: open /etc/k: " + missing,
	})
}

// TestAdvice: every suggested fix is valid.
func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{upstream("endpoints: ['h:1'], send_proxy: v2"), []string{`2:55: send_proxy must be a whole number, not "v2" | write 0, 1 or 2`}},
		{upstream("endpoints: ['h:1'], send_proxy: true"), []string{`2:55: send_proxy must be a whole number, not "true" | write 1 or 2`}},
		{upstream("endpoints: ['h:1'], send_proxy: false"), []string{`2:55: send_proxy must be a whole number, not "false" | write 0`}},
		{upstream("endpoints: [{address: 'h:1', weight: on}]"), []string{`2:60: weight must be a whole number, not "on" | write a whole number from 1 to 256`}},
		{upstream("endpoints: [{address: 'h:1', weight: heavy}]"), []string{`2:60: weight must be a whole number, not "heavy" | write a whole number from 0 to 256`}},
		{listener("limits: {connections: 1e3}"), []string{`1:70: connections must be written as an integer, not "1e3" | write 1000`}},
		{listener("limits: {connections: 1.0}"), []string{`1:70: connections must be written as an integer, not "1.0" | write 1`}},
		{listener("limits: {connections: 2.5}"), []string{`1:70: connections must be a whole number, not "2.5" | write 2 or 3`}},
		{listener("limits: {connections: 99999999999999999999}"), []string{`1:70: connections is 99999999999999999999, more than 100000000 | write 100000000 or less`}},
		{listener("limits: {connections: 0xfffffffffffffffffff}"), []string{`1:70: connections must be a whole number: "0xfffffffffffffffffff" is too large | write a whole number from 0 to 100000000`}},
		{listener("limits: {connections: -1e300}"), []string{`1:70: connections is -1e300, less than 0 | write 0 or more`}},
		{listener("limits: {connections: 1e999}"), []string{`1:70: connections must be a whole number, not "1e999" | write a whole number from 0 to 100000000`}},
		{listener("limits: {connections: .nan}"), []string{`1:70: connections must be a whole number, not ".nan" | write a whole number from 0 to 100000000`}},
		{listener("limits: {source_prefix: [0, 0]}"), []string{
			"1:73: source_prefix is 0, less than 1 | write 1 or more", "1:76: source_prefix is 0, less than 1 | write 1 or more",
		}},
		{upstream("endpoints: 'a:1'"), []string{`2:34: endpoints must be a list, not text | write endpoints: ["a:1"]`}},
		{upstream("endpoints: 'a:1, b:2'"), []string{`2:34: endpoints must be a list, not text | write endpoints: ["a:1", "b:2"]`}},
		{upstream("endpoints: nonsense"), []string{`2:34: endpoints must be a list, not text | write endpoints: ["nonsense:8080"]`}},
		{upstream("endpoints: non/sense"), []string{`2:34: endpoints must be a list, not text | write endpoints: ["10.0.0.12:443"]`}},
		{upstream("endpoints: 5"), []string{`2:34: endpoints must be a list, not a number | write endpoints: ["127.0.0.1:5"]`}},
		{listener("allow: 10.1.0.0/16"), []string{"1:55: allow must be a list, not text | write allow: [10.1.0.0/16]"}},
		{listener("accept_proxy: true"), []string{"1:62: accept_proxy must be a group of keys, not true | write {versions: [1, 2]}"}},
		{listener("tls: False"), []string{"1:53: tls must be a group of keys, not false | leave it out: then it is off"}},
		{upstream("endpoints: [{address: 'h:1', name: 'h:2'}, {address: 'h:2', name: b}]"), []string{"2:58: the endpoint at h:1 has the address of another endpoint as its name: h:2 | write another name, or leave it out"}},
		{upstream("endpoints: [{address: 'h:1', name: 'H:1'}, {address: 'H:1', name: b}]"), nil}, // it is the same server
		{upstream("endpoints: ['h:1', 'h:1']"), []string{"2:42: the endpoint h:1 is already defined in /etc/p.yaml:2:35 | leave one out, and give the other more weight"}},
		{"listeners:\n- {name: a, bind: [[::]:80], upstream: u}\n" + upstreams, []string{`2:20: bind must be an address to listen on, not a group of keys | write it in quotes: "[::]:80"`}},
		{"listeners:\n- name: a\n  bind: [::1]:80\n", []string{`3:14: a key is expected here | write it in quotes: "[::1]:80"`}},
		// No YAML.
		{"a: {weight: ${W}}", []string{`1:14: a , or } is missing before this | write it in quotes: "${W}"`}},
		{"a: {b: host-${H}:${P}, c: 1}", []string{`1:14: a , or } is missing before this | write it in quotes: "host-${H}:${P}"`}},
		{"a: {b: x{y}}", []string{`1:9: a , or } is missing before this | write it, or write the text in quotes`}},
		{"a: [x, ${W}]", []string{`1:9: a , or ] is missing before this | write it in quotes: "${W}"`}},
		{"a: [x, ${W", []string{`1:9: a , or ] is missing before this | write it in quotes: "${W"`}},
		{`{"a": 1,, "b": 2}`, []string{"1:9: a value is missing before this | write a value before the comma, or leave the comma out"}},
		{`{"a": [,1]}`, []string{"1:8: a value is missing before this | write a value before the comma, or leave the comma out"}},
		{"a: [1,", []string{"1:4: this [ is not closed | write ] at its end"}},
		{"a: {b: c}}", []string{"1:10: a key is expected here | leave the } out"}},
		{"a: ]", []string{"1:4: a value is missing before this | leave the ] out"}},
	} {
		told(t, config.Tree{}, c.text, c.want)
	}
}

// TestMend: the advice for a file that cannot be read is for its cause.
func TestMend(t *testing.T) {
	t.Parallel()

	for cause, want := range map[error]string{
		syscall.EMFILE: "LimitNOFILE=", syscall.ENFILE: "fs.file-max", syscall.EACCES: "let this user read it", syscall.ENOENT: "existing file", os.ErrDeadlineExceeded: "until it answers", syscall.EISDIR: "write the name of a file",
	} {
		if got := config.Mend(&fs.PathError{Op: "open", Path: "/c", Err: cause}, 1); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", cause, got, want)
		}
	}
}
