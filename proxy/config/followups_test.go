package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

// told compares the problems of a text, in short form, with the expected ones.
func told(t *testing.T, tree config.Tree, text string, want []string) {
	t.Helper()
	tree["/etc/p.yaml"] = text
	_, problems := config.LoadTree(tree, "/etc/p.yaml", variables())
	var got []string
	for _, p := range problems {
		got = append(got, short(p))
	}
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
		{l + "upstreams: u", []string{`2:12: upstreams is a list, not text | write upstreams: [{name: tenants}]`}},
		{l + "upstreams: [u]", []string{"2:13: each of upstreams takes a group of keys, not text | write {name: tenants}"}},
		{l + "upstrems: [{name: u, endpoints: ['h:1']}]", []string{`2:1: unknown key "upstrems" | did you mean "upstreams"?`}},
		{l + "upstrems: [{name: u, endpoints: 5}]", []string{`2:1: unknown key "upstrems" | did you mean "upstreams"?`}},
		{l + "upstreams:", []string{`2:11: upstreams has no value | write upstreams: [{name: tenants}], or leave the key out`}},
		// Included files.
		{"include: [bad.yaml]\n" + l, []string{"2:1: while parsing a flow node: did not find expected node content | close the open bracket, with ] or }"}},
		{"include: [none.yaml]\n" + l, []string{"1:11: there is no file /etc/none.yaml | write the name of a file that is there, or a pattern"}},
		{"include: ['${DIR}/a.yaml']\n" + l, []string{"1:12: the variable DIR is not set in the environment | set DIR, or write $${ for ${"}},
		{"include: none.yaml\n" + l, []string{"1:10: include is a list, not text | write include: [none.yaml]"}},
		{"include: ['']\n" + l, []string{"1:11: this includes nothing | write conf.d/*.yaml, or leave it out", "2:45: there is no upstream u | there are no upstreams: define it"}},
		{"include: [good.yaml]\n" + l, []string{"2:45: there is no upstream u | define it, or write uu"}},
		{"listeners: [{name: a, bind: ':1', upstream: u, x: 1}]\nupstreams: [{name: yyyy, endpoints: ['h:1']}]", []string{
			"1:45: there is no upstream u | define it, or write yyyy",
			`1:48: unknown key "x" | leave it out, or write name, bind, allow, deny, accept_proxy, transparent, routes, upstream, limits, timeouts, connect, tls, …`,
		}},
		// Required and exclusive keys.
		{upstream("endpoints: 'a:1'"), []string{`2:34: endpoints is a list, not text | write endpoints: ["a:1"]`}},
		{upstream("discover: dns"), []string{"2:33: discover takes a group of keys, not text | write {dns: …}"}},
		{upstream("discover: {dns: }"), []string{"2:39: dns has no value | write dns: {name: _pg._tcp.db.example}, or leave the key out"}},
		{upstream("discover: "), []string{"2:33: discover has no value | write discover: {dns: …}, or leave the key out"}},
		{upstream("discover: {dns: x}"), []string{"2:39: dns takes a group of keys, not text | write {name: _pg._tcp.db.example}"}},
		{upstream("discover: {dsn: {name: x}}"), []string{`2:34: unknown key "dsn" | did you mean "dns"?`}},
		{upstream("discover: {dns: {name: x, type: SVR, port: 5}}"), []string{`2:55: type is one of A, AAAA, A+AAAA, SRV, not "SVR" | did you mean "SRV"?`}},
		{upstream("discover: {dns: {name: x, type: A, port: 70000}}"), []string{`2:64: port is 70000, more than 65535 | write 65535 or less`}},
		{upstream("endpoints: [{adress: 'h:1'}]"), []string{`2:36: unknown key "adress" | did you mean "address"?`}},
		{upstream("endpoints: ['h:1'], fallback: {respond: '${NOT}'}"), []string{"2:64: the variable NOT is not set in the environment | set NOT, or write $${ for ${"}},
		{upstream("endpoints: ['h:1'], fallback: sorry.txt"), []string{"2:53: fallback takes a group of keys, not text | write {upstream: …}"}},
		{upstream("endpoints: ['h:1'], retry: {backoff: 1s, max_backoff: 5}"), []string{`2:77: "5" has no unit | write 5s, or 5ms`}},
		{upstream("endpoints: ['h:1'], health_check: {type: htp, http: {path: /x}}"), []string{`2:64: type is one of tcp, http, not "htp" | did you mean "http"?`}},
		{upstream("endpoints: ['h:1'], health_check: {tls: yes, sni: x}"), []string{`2:63: tls is a boolean: "yes" is not true or false | write true`}},
		{upstream("endpoints: ['h:1'], tls: {cert: a.pem, key: [x]}"), []string{
			"2:55: open /etc/a.pem: file does not exist | write the name of a file that is there",
			"2:67: key is a path, not a list | write key: client.key",
		}},
		// Listeners and their routes.
		{"listeners: [{name: a, bind: ':1', upstrem: u}]" + upstreams, []string{`1:35: unknown key "upstrem" | did you mean "upstream"?`}},
		{"listeners: [{name: a, bind: ':1', upstrem: v2}]" + upstreams, []string{
			`1:35: unknown key "upstrem" | did you mean "upstream"?`, "1:44: there is no upstream v2 | did you mean \"v\"?",
		}},
		{"listeners: [{name: a, bnid: ':1', upstream: u}]" + upstreams, []string{`1:23: unknown key "bnid" | did you mean "bind"?`}},
		{"listeners: [{name: a, bind: {}, upstream: u, routes: [{match: {port: 5}, upstream: u}]}]" + upstreams, []string{
			`1:29: bind is a list, not a group of keys | write bind: ":443"`,
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
			`1:66: unknown key "agents" | leave it out, or write sni, alpn, source, port, protocol, host, path, user, database, bytes or tlv`,
		}},
		{"listeners: [{name: a, bind: '127.0.0.1:1', routes: [{match: {agents: [x]}, upstream: u}], upstream: v}]\nupstreams: [{name: u, endpoints: ['127.0.0.1:1']}, {name: v, endpoints: ['h:1']}]", []string{
			`1:62: unknown key "agents" | leave it out, or write sni, alpn, source, port, protocol, host, path, user, database, bytes or tlv`,
		}},
		{listener("routes: [{match: x, upstream: v}, {match: {sni: [x]}, upstream: u}]"), []string{
			"1:65: match takes a group of keys, not text | write {sni: …}",
		}},
		{listener("routes: [{match: {sni: x.y}, upstream: v}, {match: {sni: [x]}, upstream: u}]"), []string{
			"1:71: sni is a list, not text | write sni: [x.y]",
		}},
		{listener("routes: [{match: {sni: ['ä']}, upstream: v}, {match: {sni: ['ö']}, upstream: u}]"), []string{
			`1:72: "ä" is not a server name | write it in Punycode (xn--…)`, `1:108: "ö" is not a server name | write it in Punycode (xn--…)`,
		}},
		{listener("routes: [x, {split: u}, {splt: [{upstream: u, percent: 100}]}]"), []string{
			"1:57: each of routes takes a group of keys, not text | write {match: …}",
			"1:68: split is a list, not text | write split: [{upstream: shop-next, percent: 5}]",
			"1:72: this route is never reached | put it before the one in line 1, which matches every client",
			`1:73: unknown key "splt" | did you mean "split"?`,
		}},
		{"listeners: [x]" + upstreams, []string{"1:13: each of listeners takes a group of keys, not text | write {name: web, bind: \":443\"}"}},
		{listener("routes: [{splt: [{upstream: nope, percent: x}]}]"), []string{`1:58: unknown key "splt" | did you mean "split"?`}},
		{listener("routes: [{split: [{upstream: u, percent: 50}, {upstream: v, percent: half}]}]"), []string{
			`1:117: percent is a number: "half" is not a number | write a number such as 0.5`,
		}},
		{listener("accept_proxy: {versions: [x, y]}"), []string{
			`1:74: versions is an integer: "x" is not a whole number | write 1 or 2`, `1:77: versions is an integer: "y" is not a whole number | write 1 or 2`,
		}},
		{listener("tls: {certificates: a.pem}"), []string{"1:68: certificates is a list, not text | write certificates: [{cert: a.pem, key: a.key}]"}},
	} {
		told(t, config.Tree{"/etc/bad.yaml": "upstreams: [", "/etc/good.yaml": "upstreams: [{name: uu, endpoints: ['h:1']}]"}, c.text, c.want)
	}
}

// TestBothOfAPair: a certificate and its key are both looked at, whatever the other is.
func TestBothOfAPair(t *testing.T) {
	const missing = "file does not exist | write the name of a file that is there"
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
		{upstream("endpoints: ['h:1'], send_proxy: v2"), []string{`2:55: send_proxy is an integer: "v2" is not a whole number | write 0, 1 or 2`}},
		{upstream("endpoints: ['h:1'], send_proxy: true"), []string{`2:55: send_proxy is an integer, not "true" | write 1 or 2`}},
		{upstream("endpoints: ['h:1'], send_proxy: false"), []string{`2:55: send_proxy is an integer, not "false" | write 0`}},
		{upstream("endpoints: [{address: 'h:1', weight: on}]"), []string{`2:60: weight is an integer, not "on" | write a whole number from 1 to 256`}},
		{upstream("endpoints: [{address: 'h:1', weight: heavy}]"), []string{`2:60: weight is an integer: "heavy" is not a whole number | write a whole number from 0 to 256`}},
		{listener("limits: {connections: 1e3}"), []string{`1:70: connections is an integer: "1e3" is not written as one | write 1000`}},
		{listener("limits: {connections: 1.0}"), []string{`1:70: connections is an integer: "1.0" is not written as one | write 1`}},
		{listener("limits: {connections: 2.5}"), []string{`1:70: connections is an integer: "2.5" is not a whole number | write 2 or 3`}},
		{listener("limits: {connections: 99999999999999999999}"), []string{`1:70: connections is 99999999999999999999, more than 100000000 | write 100000000 or less`}},
		{listener("limits: {connections: 0xfffffffffffffffffff}"), []string{`1:70: connections is an integer: "0xfffffffffffffffffff" is too large | write a whole number from 0 to 100000000`}},
		{listener("limits: {connections: -1e300}"), []string{`1:70: connections is -1e300, less than 0 | write 0 or more`}},
		{listener("limits: {connections: 1e999}"), []string{`1:70: connections is an integer: "1e999" is not a whole number | write a whole number from 0 to 100000000`}},
		{listener("limits: {connections: .nan}"), []string{`1:70: connections is an integer: ".nan" is not a whole number | write a whole number from 0 to 100000000`}},
		{listener("limits: {source_prefix: [0, 0]}"), []string{
			"1:73: source_prefix is 0, less than 1 | write 1 or more", "1:76: source_prefix is 0, less than 1 | write 1 or more",
		}},
		{upstream("endpoints: 'a:1'"), []string{`2:34: endpoints is a list, not text | write endpoints: ["a:1"]`}},
		{upstream("endpoints: 'a:1, b:2'"), []string{`2:34: endpoints is a list, not text | write endpoints: ["a:1", "b:2"]`}},
		{upstream("endpoints: nonsense"), []string{`2:34: endpoints is a list, not text | write endpoints: ["nonsense:8080"]`}},
		{upstream("endpoints: non/sense"), []string{`2:34: endpoints is a list, not text | write endpoints: ["10.0.0.12:443"]`}},
		{upstream("endpoints: 5"), []string{`2:34: endpoints is a list, not a number | write endpoints: ["127.0.0.1:5"]`}},
		{listener("allow: 10.1.0.0/16"), []string{"1:55: allow is a list, not text | write allow: [10.1.0.0/16]"}},
		{listener("accept_proxy: true"), []string{"1:62: accept_proxy takes a group of keys, not true | write {versions: [1, 2]}"}},
		{listener("tls: False"), []string{"1:53: tls takes a group of keys, not false | leave it out: without it there is none"}},
		{upstream("endpoints: ['h:1', 'h:1']"), []string{"2:42: the endpoint h:1 is defined in /etc/p.yaml:2:35 already | leave one out, and give the other more weight"}},
		{"listeners:\n- {name: a, bind: [[::]:80], upstream: u}\n" + upstreams, []string{`2:20: bind is an address to listen on, not a group of keys | write it in quotes: "[::]:80"`}},
		{"listeners:\n- name: a\n  bind: [::1]:80\n", []string{`3:14: while parsing a block mapping: did not find expected key | write it in quotes: "[::1]:80"`}},
		// No YAML.
		{"a: {weight: ${W}}", []string{`1:14: while parsing a flow mapping: did not find expected ',' or '}' | write it in quotes: "${W}"`}},
		{"a: {b: host-${H}:${P}, c: 1}", []string{`1:14: while parsing a flow mapping: did not find expected ',' or '}' | write it in quotes: "host-${H}:${P}"`}},
		{"a: {b: x{y}}", []string{`1:9: while parsing a flow mapping: did not find expected ',' or '}' | write , or } before`}},
		{"a: [x, ${W}]", []string{`1:9: while parsing a flow sequence: did not find expected ',' or ']' | write it in quotes: "${W}"`}},
		{"a: [x, ${W", []string{`1:9: while parsing a flow sequence: did not find expected ',' or ']' | write it in quotes: "${W"`}},
		{`{"a": 1,, "b": 2}`, []string{"1:9: while parsing a flow node: did not find expected node content | write a value before the comma, or leave the comma out"}},
		{`{"a": [,1]}`, []string{"1:8: while parsing a flow node: did not find expected node content | write a value before the comma, or leave the comma out"}},
		{"a: [1,", []string{"2:1: while parsing a flow node: did not find expected node content | close the open bracket, with ] or }"}},
		{"a: {b: c}}", []string{"1:10: while parsing a block mapping: did not find expected key | leave the } out"}},
		{"a: ]", []string{"1:4: while parsing a block node: did not find expected node content | leave the ] out"}},
	} {
		told(t, config.Tree{}, c.text, c.want)
	}
}
