package config_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/penstock/penstock/proxy/config"
	clients "github.com/penstock/penstock/proxy/internal/source"
)

// TestFirstBytes: conditions on first bytes that no client can meet, or that contradict the listener, are errors.
func TestFirstBytes(t *testing.T) {
	const tls = "tls: {certificates: [{cert: a.pem, key: a.key}]}, "
	for keys, want := range map[string][]string{
		"routes: [{match: {protocol: [http1, ssh], path: [/a/*]}, upstream: u}]":                                  nil,
		"routes: [{match: {protocol: [http2]}, upstream: u}, {match: {host: [a.b]}, upstream: u}]":                nil,
		"preread_silence: 1s, routes: [{match: {protocol: [silence]}, upstream: u}]":                              nil,
		"accept_proxy: {}, routes: [{match: {tlv: [{type: 0xE0}]}, upstream: u}], require_tls: true":              nil,
		"routes: [{match: {protocol: [ssh], host: [a.b]}, upstream: u}]":                                          {"this route is never taken: host and path belong to http1 | write protocol: [http1], or leave it out"},
		"routes: [{match: {protocol: [http1], user: [a]}, upstream: u}]":                                          {"this route is never taken: user and database belong to postgres | write protocol: [postgres], or leave it out"},
		"routes: [{match: {sni: [a.b], path: [/a]}, upstream: u}]":                                                {"this route is never taken: sni and alpn, host and path belong to different protocols | make a route for each"},
		"routes: [{match: {protocol: [silence]}, upstream: u}]":                                                   {"this route is never taken: nothing says how long a client must be silent | write preread_silence: 200ms at the listener"},
		"preread_silence: 1s, upstream: u":                                                                        {"preread_silence has no effect here: it needs a listener without tls, and routes that match a client's first bytes | leave it out"},
		"preread_silence: 1s, routes: [{match: {sni: [a.b]}, upstream: u}], upstream: u":                          nil,
		"preread_silence: 1s, routes: [{match: {protocol: [ssh]}, upstream: u}], upstream: u":                     nil,
		"routes: [{match: {sni: [a.b]}, upstream: u}, {match: {protocol: [tls_malformed]}, upstream: u}]":         nil,
		"preread_silence: 5s, routes: [{match: {protocol: [silence]}, upstream: u}]":                              {"preread_silence has no effect: timeouts.preread refuses silent clients after 5s | make preread_silence shorter, or timeouts.preread longer"},
		"preread_silence: 1s, connect: on_data, routes: [{match: {protocol: [silence]}, upstream: u}]":            {"connect: on_data waits for the first byte of a silent client | leave it out"},
		"preread_silence: 1s, routes: [{match: {protocol: [silence, ssh], bytes: [{text: a}]}, upstream: u}]":     {"a silent client has sent nothing that the other conditions could match | make a route for each"},
		"routes: [{match: {tlv: [{type: 1}]}, upstream: u}]":                                                      {"this route is never taken: no PROXY header is read | write accept_proxy: {versions: [2]} at the listener"},
		"accept_proxy: {versions: [1]}, routes: [{match: {tlv: [{type: 1}]}, upstream: u}]":                       {"this route is never taken: a PROXY header of version 1 has no TLVs | write versions: [2] in accept_proxy"},
		"accept_proxy: {}, routes: [{match: {tlv: [{type: 1, text: a, hex: '00'}]}, upstream: u}]":                {"text and hex cannot be used together | leave one of them out"},
		"routes: [{match: {sni: []}, upstream: u}]":                                                               {"sni is empty, so every client would meet it | write a value, or leave it out"},
		"routes: [{match: {alpn: []}, upstream: u}]":                                                              {"alpn is empty, so every client would meet it | write a value, or leave it out"},
		"routes: [{match: {source: []}, upstream: u}]":                                                            {"source is empty, so every client would meet it | write a value, or leave it out"},
		"routes: [{match: {protocol: []}, upstream: u}]":                                                          {"protocol is empty, so every client would meet it | write a value, or leave it out"},
		"routes: [{match: {host: []}, upstream: u}]":                                                              {"host is empty, so every client would meet it | write a value, or leave it out"},
		"routes: [{match: {path: []}, upstream: u}]":                                                              {"path is empty, so every client would meet it | write a value, or leave it out"},
		"routes: [{match: {user: []}, upstream: u}]":                                                              {"user is empty, so every client would meet it | write a value, or leave it out"},
		"routes: [{match: {database: []}, upstream: u}]":                                                          {"database is empty, so every client would meet it | write a value, or leave it out"},
		"routes: [{match: {bytes: []}, upstream: u}]":                                                             {"bytes is empty, so every client would meet it | write a value, or leave it out"},
		"routes: [{match: {tlv: []}, upstream: u}]":                                                               {"tlv is empty, so every client would meet it | write a value, or leave it out"},
		"routes: [{match: {bytes: [{offset: 1}]}, upstream: u}]":                                                  {"text or hex is missing | write text: or hex:"},
		"routes: [{match: {bytes: [{text: ab, mask: ff}]}, upstream: u}]":                                         {"the mask has 1 byte, but the pattern has 2 | write 2 bytes"},
		"routes: [{match: {bytes: [{text: a, mask: '00'}]}, upstream: u}]":                                        {"the mask is 0, so no bit of the pattern is compared | write ff for each byte to compare"},
		"routes: [{match: {bytes: [{hex: abc}]}, upstream: u}]":                                                   {`"abc" is not hexadecimal | write two digits for each byte, such as 0300ff`},
		"routes: [{match: {path: [/a/../b]}, upstream: u}]":                                                       {`"/a/../b" is not the path of a request | write /status, or /api/* for all paths below /api`},
		"routes: [{match: {path: [/a*]}, upstream: u}]":                                                           {`"/a*" is not the path of a request | write /status, or /api/* for all paths below /api`},
		"require_tls: true, routes: [{match: {protocol: [ssh]}, upstream: u}]":                                    {"require_tls refuses the clients of the route in line 1 | leave it out, and write protocol: [tls] at the routes for TLS"},
		tls + "routes: [{match: {host: [a.b]}, upstream: u}]":                                                     {"a route is chosen before TLS is terminated, but this route depends on bytes that are still encrypted | leave tls out, or route by sni and alpn"},
		"routes: [{match: {host: [a.b]}, upstream: u}, {match: {protocol: [ssh, http2]}, upstream: u}]":           {"HTTP/2 clients are refused: the route in line 1 may be meant for them, but their host and path are not read | put it before that route"},
		"routes: [{match: {protocol: [http1]}, upstream: u}, {match: {host: [a.b]}, upstream: u}]":                {"this route is never reached: the route in line 1 matches all its clients | put it before that route, or leave it out"},
		"routes: [{match: {path: [/a/*]}, upstream: u}, {match: {path: [/a/b, /a/c/*], host: [b]}, upstream: u}]": {"this route is never reached: the route in line 1 matches all its clients | put it before that route, or leave it out"},
		"routes: [{match: {bytes: [{text: a}]}, upstream: u}, {match: {bytes: [{hex: '61'}]}, upstream: u}]":      {"this route is never reached: the route in line 1 matches the same clients | leave it out, or match other clients"},
	} {
		text := "listeners: [{name: a, bind: ':1', " + keys + "}]\nupstreams: [{name: u, endpoints: ['h:1']}]\n"
		cfg, problems := config.LoadTree(config.Tree{"/p.yaml": text, "/a.pem": "x", "/a.key": "x"}, "/p.yaml", variables())
		var got []string
		if cfg != nil {
			problems = append(problems, cfg.Warnings...)
		}
		for _, p := range problems {
			if _, message, _ := strings.Cut(short(p), ": "); !strings.Contains(message, ".pem") && !strings.Contains(message, ".key") {
				got = append(got, message)
			}
		}
		slices.Sort(got)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", keys, d)
		}
	}
}

// TestSourceRules: each list of sources takes every kind of rule, in each way to write it,
// and is written as it was read.
func TestSourceRules(t *testing.T) {
	const rules = `[10.0.0.0/8, "::1", unix, unix:uid=0, "unix:gid=4294967294", all]`
	want := []config.Rule{
		clients.Prefix(netip.MustParsePrefix("10.0.0.0/8")), clients.Prefix(netip.MustParsePrefix("::1/128")),
		clients.UnixClients(), clients.UnixUser(0), clients.UnixGroup(1<<32 - 2), clients.All(),
	}
	text := strings.ReplaceAll(`
listeners:
- {name: a, bind: ["unix:/s", ":1"], allow: RULES, deny: RULES, accept_proxy: {from: RULES}, routes: [{match: {source: RULES}, upstream: u}]}
upstreams: [{name: u, endpoints: ["h:1"]}]
`, "RULES", rules)
	cfg := load(t, text)
	again := load(t, string(cfg.YAML()))
	for _, c := range []*config.Config{cfg, again} {
		ln := c.Listeners[0]
		for name, got := range map[string][]config.Rule{
			"allow": ln.Allow, "deny": ln.Deny, "from": ln.AcceptProxy.From, "source": ln.Routes[0].Match.Source,
		} {
			if !slices.Equal(got, want) {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	}
	if d := config.Diff(cfg, again); len(d) > 0 {
		t.Errorf("it differs: %v", d)
	}
}

// TestBadSourceRules: a source that names no clients is reported with a fix.
func TestBadSourceRules(t *testing.T) {
	const unix = " | write unix for all clients of unix sockets, unix:uid=1000 or unix:gid=1000 for some"
	for rule, want := range map[string]string{
		"any":                 `"any" is not an address or a CIDR | write 10.0.0.0/8, 2001:db8::/32, one address, unix or all`,
		"ALL":                 `"ALL" is not an address or a CIDR | write 10.0.0.0/8, 2001:db8::/32, one address, unix or all`,
		"uid=1000":            `"uid=1000" is not an address or a CIDR | write unix:uid=1000`,
		"unix:":               `"unix:" does not name clients` + unix,
		"unix:/run/s":         `"unix:/run/s" does not name clients` + unix,
		"unix:pid=1":          `"unix:pid=1" does not name clients` + unix,
		"unix:uid":            `"" is not the number of a user or a group | write a number, as id(1) prints it, such as unix:uid=1000`,
		"unix:uid=root":       `"root" is not the number of a user or a group | write a number, as id(1) prints it, such as unix:uid=1000`,
		"unix:gid=-1":         `"-1" is not the number of a user or a group | write a number, as id(1) prints it, such as unix:gid=1000`,
		"unix:gid=4294967295": `"4294967295" is not the number of a user or a group | write a number, as id(1) prints it, such as unix:gid=1000`,
		"unix,all":            `"unix,all" does not name clients` + unix,
	} {
		told(t, config.Tree{}, listener("allow: ['"+rule+"']"), []string{"1:56: " + want})
	}
}

// TestSourceWarnings: lists that probably forget some clients are reported, and nothing else.
func TestSourceWarnings(t *testing.T) {
	for _, x := range []struct{ bind, rest, want string }{
		{"unix:@a", "limits: {per_source: 1}", ""},
		{"unix:@a", "allow: [10.0.0.0/8]", "2:39: all clients of unix:@a are refused: allow has no unix | add unix to allow, or unix:uid=1000 for a user, or leave the socket out"},
		{"unix:@a', ':1", "allow: [10.0.0.0/8], deny: [unix:uid=0]", "2:45: all clients of unix:@a are refused: allow has no unix | add unix to allow, or unix:uid=1000 for a user, or leave the socket out"},
		{"unix:@a", "allow: [10.0.0.0/8, unix:gid=1]", ""},
		{"unix:@a", "allow: [all]", ""},
		{"unix:@a", "allow: [10.0.0.0/8], accept_proxy: {}", ""},
		{"unix:@a", "allow: [10.0.0.0/8], accept_proxy: {from: [unix:uid=0]}", ""},
		{"unix:@a", "accept_proxy: {from: [10.0.0.0/8]}", "2:53: no PROXY header is read from clients of unix:@a: from has no unix | add unix to from if these clients send a PROXY header"},
		{"unix:@a", "deny: [0.0.0.0/0, '::/0']", "2:38: clients of unix:@a are accepted: deny has no unix | write deny: [all]"},
		{"unix:@a", "deny: [0.0.0.0/0]", ""},
		{"unix:@a", "deny: [0.0.0.0/0, '::/0', unix]", ""},
		{"unix:@a", "deny: [all]", ""},
		{":1", "allow: [10.0.0.0/8], deny: [unix]", "2:55: unix matches no client: the listener a has no unix socket | leave it out, or bind a unix socket"},
		{":1", "accept_proxy: {from: [10.0.0.0/8, unix:uid=1]}", "2:61: unix:uid=1 matches no client: the listener a has no unix socket | leave it out, or bind a unix socket"},
		{":1", "routes: [{match: {source: [unix:gid=1]}, upstream: u}]", "2:54: unix:gid=1 matches no client: the listener a has no unix socket | leave it out, or bind a unix socket"},
		{":1", "allow: [all]", ""},
		{"systemd:x", "allow: [10.0.0.0/8, unix]", ""},
		{":1", "deny: ['::/0']", "2:33: IPv4 clients are accepted: ::/0 is only IPv6 | write all, or add 0.0.0.0/0"},
		{":1", "deny: ['::/0', 10.0.0.0/8]", ""},
		{":1", "deny: ['::/0'], allow: [10.0.0.0/8]", ""},
		{"[::]:1", "deny: ['::/0']", ""},
		{"0.0.0.0:1", "allow: ['::/0']", "2:41: all IPv4 clients are refused: ::/0 is only IPv6 | write all, or add 0.0.0.0/0"},
		{":1", "allow: ['::/0', 10.0.0.0/8]", ""},
		{":1", "allow: ['::/0', all]", ""},
	} {
		text := "listeners:\n- {name: a, bind: ['" + x.bind + "'], " + x.rest + ", upstream: u}\nupstreams: [{name: u, endpoints: ['h:1']}]\n"
		if x.want == "" {
			warned(t, text)
		} else {
			warned(t, text, x.want)
		}
	}
}

// TestEvadedNames: a warning says where clients that a route by name keeps out get to its endpoints.
func TestEvadedNames(t *testing.T) {
	const upstreams = `
upstreams:
- {name: a, endpoints: ['10.0.0.1:443', '10.0.0.2:443']}
- {name: same, endpoints: ['[::ffff:10.0.0.2]:443']}
- {name: b, endpoints: ['10.0.0.3:443']}
- {name: spare, endpoints: ['10.0.0.4:443'], fallback: {upstream: same}}
`
	for routes, want := range map[string]string{
		"upstream: same, routes: [{match: {sni: [a], source: [10.0.0.0/8]}, upstream: a}]":                                                                   "leads to the upstream same",
		"upstream: spare, routes: [{match: {sni: [a], source: [10.0.0.0/8]}, upstream: a}]":                                                                  "leads to the upstream same",
		"routes: [{match: {host: [a], source: [10.0.0.0/8]}, upstream: a}, {match: {sni: ['*']}, upstream: a}]":                                              "leads to the upstream a",
		"routes: [{match: {sni: [a], port: 1}, split: [{upstream: b, percent: 99}, {upstream: a, percent: 1}]}, {match: {protocol: [tls]}, upstream: same}]": "leads to the upstream same",
		"upstream: b, routes: [{match: {sni: [a], source: [10.0.0.0/8]}, upstream: a}]":                                                                      "",
		"upstream: a, routes: [{match: {sni: [a]}, upstream: a}]":                                                                                            "",
		"upstream: b, routes: [{match: {sni: [a], source: [10.0.0.0/8]}, upstream: a}, {match: {source: [10.0.0.0/8]}, upstream: a}]":                        "",
	} {
		warnedOnce(t, "listeners: [{name: l, bind: ':1', "+routes+"}]"+upstreams, "this route excludes", want)
	}
}

// TestServersThatSpeakFirst: a warning says where clients wait for a server that waits for them.
func TestServersThatSpeakFirst(t *testing.T) {
	for keys, want := range map[string]bool{
		"upstream: mail, routes: [{match: {sni: [a]}, upstream: web}]":                                       true,
		"upstream: greets, routes: [{match: {protocol: [ssh]}, upstream: web}]":                              true,
		"routes: [{match: {sni: [a]}, upstream: web}, {match: {alpn: [x]}, upstream: mail}]":                 true,
		"preread_silence: 200ms, upstream: mail, routes: [{match: {sni: [a]}, upstream: web}]":               false,
		"preread_silence: 0s, upstream: mail, routes: [{match: {sni: [a]}, upstream: web}]":                  false,
		"require_tls: true, upstream: mail, routes: [{match: {sni: [a]}, upstream: web}]":                    false,
		"upstream: mail, routes: [{match: {source: [10.0.0.0/8]}, upstream: web}]":                           false,
		"upstream: web, routes: [{match: {sni: [a]}, upstream: mail}, {match: {alpn: [h2]}, upstream: web}]": false,
	} {
		got := false
		for _, w := range load(t, "listeners: [{name: l, bind: ':1', "+keys+"}]\nupstreams: [{name: web, endpoints: ['h:443']}, {name: mail, endpoints: ['h:25']}, {name: greets, endpoints: ['h:7'], health_check: {expect: hi}}]").Warnings {
			got = got || strings.Contains(w.String(), "preread_silence: 200ms")
		}
		if got != want {
			t.Errorf("%s: warned %v, want %v", keys, got, want)
		}
	}
}

// TestDisguisedRequests: a warning says where clients of TLS or PostgreSQL get to endpoints of routes by host and path.
func TestDisguisedRequests(t *testing.T) {
	const upstreams = `
upstreams:
- {name: web, endpoints: ['10.0.0.1:80', '10.0.0.2:80']}
- {name: same, endpoints: ['[::ffff:10.0.0.2]:80']}
- {name: tls, endpoints: ['10.0.0.1:443']}
- {name: spare, endpoints: ['10.0.0.3:443'], fallback: {upstream: same}}
`
	for routes, want := range map[string]string{
		"upstream: web, routes: [{match: {host: [a]}, upstream: tls}]":                                                                           "", // TLS is refused
		"routes: [{match: {sni: [a]}, upstream: tls}, {match: {host: [a]}, upstream: web}]":                                                      "",
		"routes: [{match: {sni: [a]}, upstream: web}, {match: {host: [a]}, upstream: web}]":                                                      "of tls reach the upstream web",
		"routes: [{match: {path: [/a/*]}, upstream: web}, {match: {sni: [a]}, upstream: same}]":                                                  "of tls reach the upstream same",
		"routes: [{match: {path: [/a/*]}, upstream: web}, {match: {sni: [a]}, upstream: spare}]":                                                 "of tls reach the upstream same",
		"upstream: web, routes: [{match: {sni: [a]}, upstream: tls}, {match: {host: [a]}, upstream: web}]":                                       "of tls reach the upstream web",
		"upstream: web, routes: [{match: {protocol: [tls]}, upstream: tls}, {match: {host: [a]}, upstream: web}]":                                "",
		"upstream: web, routes: [{match: {user: [a]}, upstream: tls}, {match: {host: [a]}, upstream: web}]":                                      "of postgres reach the upstream web",
		"upstream: web, routes: [{match: {protocol: [postgres]}, upstream: tls}, {match: {host: [a]}, upstream: web}]":                           "",
		"routes: [{match: {sni: [a]}, upstream: tls}, {match: {host: [a]}, upstream: web}, {match: {source: [10.0.0.0/8]}, upstream: web}]":      "of tls reach the upstream web",
		"routes: [{match: {source: [10.0.0.0/8]}, upstream: tls}, {match: {host: [a]}, upstream: web}, {match: {sni: [a]}, upstream: tls}]":      "",
		"routes: [{match: {bytes: [{hex: '0300'}]}, upstream: web}, {match: {host: [a]}, upstream: web}, {match: {sni: [a]}, upstream: tls}]":    "",
		"routes: [{match: {sni: [a]}, split: [{upstream: tls, percent: 99}, {upstream: web, percent: 1}]}, {match: {host: [a]}, upstream: web}]": "of tls reach the upstream web",
	} {
		warnedOnce(t, "listeners: [{name: l, bind: ':1', "+routes+"}]"+upstreams, "for an HTTP request", want)
	}
}

// TestClientKeys: a property is one that there is, that the policy hashes, and that a client can have; and the values
// by which sessions are counted are few, and each is listed once.
func TestClientKeys(t *testing.T) {
	many := strings.Repeat("x%d.test, ", 65)
	numbers := make([]any, 65)
	for i := range numbers {
		numbers[i] = i
	}
	for _, c := range []struct {
		listener, upstream string
		want               []string
	}{
		{"", "balance: maglev, balance_on: sni", nil},
		{"", "balance: round_robin, balance_on: source", nil},
		{"", "balance_on: sni", []string{"balance: round_robin hashes nothing"}},
		{"", "balance: source_ip, balance_on: sni", []string{"balance: source_ip hashes the source"}},
		{"", "balance: maglev, balance_on: snj", []string{`"snj" is not a property of a client: did you mean "sni"?`}},
		{"", "balance: maglev, balance_on: tlv:256", []string{"is not a property of a client"}},
		{"", "balance: maglev, balance_on: tlv:0xe0", []string{"no client has a TLV"}},
		{", accept_proxy: {versions: [1]}", "balance: maglev, balance_on: tlv:0xe0", []string{"no client has a TLV"}},
		{", accept_proxy: {}", "balance: maglev, balance_on: tlv:0xe0", nil},
		{", metrics_by: {key: sni, values: [a.test, b.test]}", "", nil},
		{", metrics_by: {key: tlv:0xe0, values: [a]}", "", []string{"every session is counted as unknown"}},
		{", metrics_by: {key: source, values: [a]}", "", []string{"metrics_by cannot count by source"}},
		{", metrics_by: {key: sni}", "", []string{"values is missing"}},
		{", metrics_by: {key: sni, values: []}", "", []string{"values is empty"}},
		{", metrics_by: {key: sni, values: [a.test, A.test]}", "", []string{`"a.test" is listed twice`}},
		{", metrics_by: {key: sni, values: [other]}", "", []string{"other is the name for clients with any other value"}},
		{", metrics_by: {key: sni, values: [\"*.a.test\"]}", "", []string{`"*.a.test" is not the server name of a client`}},
		{", metrics_by: {key: sni, values: [bücher.test]}", "", []string{`"bücher.test" is not the server name of a client`}},
		{", metrics_by: {key: sni, values: [a.test.]}", "", []string{`"a.test." is not the server name of a client`}},
		{", metrics_by: {key: sni, values: [" + fmt.Sprintf(many, numbers...) + "]}", "", []string{"there are 65 values"}},
		{", metrics_by: {key: sni, values: [" + strings.Repeat("a", 256) + "]}", "", []string{"is not a value"}},
	} {
		text := "listeners: [{name: a, bind: ':1', upstream: u" + c.listener + "}]\nupstreams: [{name: u, endpoints: ['h:1'], " + c.upstream + "}]"
		_, problems := said(text)
		contain(t, c.listener+", "+c.upstream, problems, c.want)
	}
}

// TestPostgres: a listener that speaks PostgreSQL has the keys that it needs, and no route or property that no client has.
func TestPostgres(t *testing.T) {
	const terminate = "postgres: terminate, tls: {certificates: [{cert: c, key: k}]}"
	for _, c := range []struct {
		listener, upstream string
		want               string // in the only problem; empty: there is none
	}{
		{"postgres: passthrough", "", ""},
		{"postgres: passthrough, routes: [{match: {user: [ann]}, upstream: u}]", "", ""},
		{"postgres: terminate", "", "TLS cannot end here: tls is missing"},
		{"postgres: passthrough", "tls: {}", "the upstream u has tls, and TLS is passed through"},
		{"postgres: passthrough, connect: on_data", "", "the first message is always read"},
		{"postgres: yes", "", `postgres must be one of none, passthrough, terminate, not "yes"`},
		{"routes: [{match: {user: [ann]}, upstream: u}]", "", ""},
		{"postgres: passthrough, routes: [{match: {protocol: [ssh]}, upstream: u}]", "", "protocol, host, path and bytes do not apply"},
		{"postgres: passthrough, require_tls: true, routes: [{match: {database: [shop]}, upstream: u}]", "", "TLS is passed through, and hides user and database"},
		{"postgres: passthrough", "balance: maglev, balance_on: user", ""},
		{"postgres: passthrough, require_tls: true", "balance: maglev, balance_on: user", "no client has a user"},
		{"metrics_by: {key: database, values: [shop]}", "", "no client has a database"},
		{"postgres: passthrough", "starttls: postgres", "starttls: postgres has no effect"},
		{"postgres: passthrough", "starttls: postgres, health_check: {tls: true}", ""},
	} {
		text := "listeners: [{name: a, bind: ':1', upstream: u, " + c.listener + "}]\nupstreams: [{name: u, endpoints: ['h:1'], " + c.upstream + "}]"
		_, problems := said(text)
		if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.Contains(problems[0].Error(), c.want)) {
			t.Errorf("%s, %s: %v, want %q", c.listener, c.upstream, problems, c.want)
		}
	}
	_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": "listeners: [{name: a, bind: ':1', upstream: u, " + strings.Replace(terminate, "terminate", "passthrough", 1) + "}]\nupstreams: [{name: u, endpoints: ['h:1']}]"}, "/etc/p.yaml", nil)
	if !slices.ContainsFunc(problems, func(p config.Problem) bool { return strings.Contains(p.Error(), "tls has no effect") }) {
		t.Errorf("tls with passthrough: %v", problems)
	}
	for more, want := range map[string]bool{"": true, "require_tls: true, ": false} {
		text := "listeners: [{name: a, bind: ':1', upstream: u, " + more + strings.Replace(terminate, "tls: {", "tls: {client_ca: a, ", 1) + "}]\nupstreams: [{name: u, endpoints: ['h:1']}]"
		_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text}, "/etc/p.yaml", nil)
		if got := slices.ContainsFunc(problems, func(p config.Problem) bool { return strings.Contains(p.Error(), "clients may connect without TLS") }); got != want {
			t.Errorf("client_ca, %s: %v", more, problems)
		}
	}
}

const congested = `listeners: [{name: a, bind: ':1', upstream: u, socket: {congestion: %A}}]
upstreams: [{name: u, endpoints: ['h:1'], socket: {congestion: %B}}]
`

func congestedBy(listener, upstream string) string {
	return strings.NewReplacer("%A", listener, "%B", upstream).Replace(congested)
}

// TestCongestion: a name that the kernel does not list is a problem that lists those there are; so is
// one that takes a privilege which the process lacks.
func TestCongestion(t *testing.T) {
	const privilege = ":PLACE: the congestion control cubic needs CAP_NET_ADMIN, and this process does not have it | write one of bbr, reno, or give this process CAP_NET_ADMIN"
	for _, c := range []struct {
		listener, upstream string
		root               bool
		want               []string
	}{
		{"bbr", "reno", false, nil},
		{"''", "''", false, nil},
		{"cubic", "cubic", true, nil},
		{"cubic", "bbr", false, []string{"1" + strings.Replace(privilege, "PLACE", "69", 1)}},
		{"bbr", "cubic", false, []string{"2" + strings.Replace(privilege, "PLACE", "64", 1)}},
		{"bbr2", "vegas", true, []string{
			"1:69: this kernel does not have the congestion control bbr2 | write one of bbr, cubic, reno, or load the module tcp_bbr2",
			"2:64: this kernel does not have the congestion control vegas | write one of bbr, cubic, reno, or load the module tcp_vegas",
		}},
		{"'a b'", "sixteen_letters_", true, []string{
			`1:69: "a b" is not the name of a congestion control | write a name of at most 15 letters, digits, _ or -, such as bbr`,
			`2:64: "sixteen_letters_" is not the name of a congestion control | write a name of at most 15 letters, digits, _ or -, such as bbr`,
		}},
	} {
		tree := config.Tree{"/etc/p.yaml": congestedBy(c.listener, c.upstream)}
		if c.root {
			tree["/root"] = ""
		}
		_, problems := config.LoadTree(tree, "/etc/p.yaml", nil)
		got := shorts(problems)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s, %s:\n got %s\nwant %s", c.listener, c.upstream, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

// TestCongestionUnknown: a kernel that cannot be asked is no reason to refuse a name, and is said.
func TestCongestionUnknown(t *testing.T) {
	const fix = " | look into /proc/sys/net/ipv4/tcp_available_congestion_control on the machine where penstock will run. If that kernel does not have it, sockets use the system's congestion control"
	for file, c := range map[string]struct{ name, why string }{"/unreadable": {"vegas", "open /proc/c: permission denied"}, "/full": {"cubic", "too many open files"}} {
		cfg := loadTree(t, config.Tree{"/etc/p.yaml": congestedBy(c.name, "''"), file: ""})
		if len(cfg.Warnings) != 1 || short(cfg.Warnings[0]) != "1:69: it is unknown whether this kernel has the congestion control "+c.name+": "+c.why+fix {
			t.Errorf("%s: %v", file, cfg.Warnings)
		}
	}
}

// traced is a file with traces, in its first line.
func traced(traces string) string { return "traces: {" + traces + "}" + smallest }

// TestTraces: the errors of traces, each with its fix.
func TestTraces(t *testing.T) {
	cert, key := certificate(t, "a.example")
	for traces, want := range map[string]string{
		"sample: 1":                                                           "1:9: endpoint is missing | write endpoint: \"http://127.0.0.1:4317\"",
		"endpoint: 'c:4317'":                                                  `1:20: "c:4317" is not a URL of a collector | write http://127.0.0.1:4317 or https://collector.example:4317`,
		"endpoint: 'http://c'":                                                `1:20: "http://c" has no port | write http://c:4317, or :4318 for http/protobuf`,
		"endpoint: 'http://localhost:5432'":                                   "1:20: localhost:5432 is the listener db: each export would be a client of this process | write the address of a collector",
		"endpoint: 'http://a b:1'":                                            `1:20: "http://a b:1" is not a URL of a collector | write http://127.0.0.1:4317 or https://collector.example:4317`,
		"endpoint: 'http://u:p@c:1'":                                          `1:20: the URL must have only a host and a path | write a token as an entry of headers`,
		"endpoint: 'http://c:1/v1/traces'":                                    `1:20: gRPC has no path "/v1/traces" | leave the path out, or write protocol: http/protobuf`,
		"endpoint: 'http://c:1', protocol: http":                              `1:44: protocol must be one of grpc, http/protobuf, not "http" | write grpc or http/protobuf`,
		"endpoint: 'http://c:1', sample: 1%":                                  `1:42: sample must be a number: "1%" is not a number | write it without %: 1`,
		"endpoint: 'http://c:1', resource: x":                                 `1:44: "x" is not KEY=VALUE | write service.name=edge`,
		"endpoint: 'http://c:1', tls: {}":                                     "1:39: tls has no effect with http:// | write https:// in endpoint, or leave tls out",
		"endpoint: 'https://c', tls: {cert: a}":                               "1:45: key is missing | write key: and the PEM file of its private key",
		"endpoint: 'https://c', tls: {cert: a, key: k}":                       "",
		"endpoint: 'https://c', tls: {ca: k}":                                 "1:43: there is no certificate in /etc/k | write a PEM file of certificates",
		"endpoint: 'https://c', headers: [{name: 'a b', value: '${T}'}]":      `1:50: "a b" is not the name of a header | write a name such as Authorization`,
		"endpoint: 'https://c', headers: [{name: TE, value: '${T}'}]":         `1:50: the exporter sets TE itself | leave it out`,
		"endpoint: 'https://c', headers: [{name: A, value: 'file:/etc/k'}]":   "1:60: the value of A has 5 lines | leave only one line in /etc/k",
		"endpoint: 'https://c:1', headers: [{name: A, value: 'Bearer ${T}'}]": "",
	} {
		_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": traced(traces), "/etc/a": cert, "/etc/k": key}, "/etc/p.yaml", variables("T", "t0ken"))
		got := shorts(problems)
		if text := strings.Join(got, "\n"); text != want {
			t.Errorf("%s\n got %s\nwant %s", traces, text, want)
		}
	}
	got := shorts(withToken(t, traced("endpoint: 'http://collector.example:4317', headers: [{name: A, value: 'file:b'}], sample: 0, max_queue_size: 1, max_export_batch_size: 2")).Warnings)
	if want := []string{
		"1:63: the headers may contain secrets, and go over the network in clear text | write https://",
		"1:100: with sample: 0 no client is traced | leave traces out, or write a percentage",
		"1:145: max_export_batch_size is 2, but at most 1 spans wait (max_queue_size) | write 1 or less",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func withToken(t *testing.T, text string) *config.Config {
	t.Helper()
	return loadTree(t, config.Tree{"/etc/p.yaml": text, "/etc/b": "t0ken"})
}
