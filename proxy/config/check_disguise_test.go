package config_test

import (
	"strings"
	"testing"
)

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
		var got []string
		for _, w := range load(t, "listeners: [{name: l, bind: ':1', "+routes+"}]"+upstreams).Warnings {
			if text := w.String(); strings.Contains(text, "keeps out") {
				got = append(got, text)
			}
		}
		if n := len(got); n > 1 || (n == 0) != (want == "") || n == 1 && !strings.Contains(got[0], want) {
			t.Errorf("%s: %q, want %q", routes, got, want)
		}
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
		"routes: [{match: {sni: [a]}, upstream: web}, {match: {host: [a]}, upstream: web}]":                                                      "of tls get to the upstream web",
		"routes: [{match: {path: [/a/*]}, upstream: web}, {match: {sni: [a]}, upstream: same}]":                                                  "of tls get to the upstream same",
		"routes: [{match: {path: [/a/*]}, upstream: web}, {match: {sni: [a]}, upstream: spare}]":                                                 "of tls get to the upstream same",
		"upstream: web, routes: [{match: {sni: [a]}, upstream: tls}, {match: {host: [a]}, upstream: web}]":                                       "of tls get to the upstream web",
		"upstream: web, routes: [{match: {protocol: [tls]}, upstream: tls}, {match: {host: [a]}, upstream: web}]":                                "",
		"upstream: web, routes: [{match: {user: [a]}, upstream: tls}, {match: {host: [a]}, upstream: web}]":                                      "of postgres get to the upstream web",
		"upstream: web, routes: [{match: {protocol: [postgres]}, upstream: tls}, {match: {host: [a]}, upstream: web}]":                           "",
		"routes: [{match: {sni: [a]}, upstream: tls}, {match: {host: [a]}, upstream: web}, {match: {source: [10.0.0.0/8]}, upstream: web}]":      "of tls get to the upstream web",
		"routes: [{match: {source: [10.0.0.0/8]}, upstream: tls}, {match: {host: [a]}, upstream: web}, {match: {sni: [a]}, upstream: tls}]":      "",
		"routes: [{match: {bytes: [{hex: '0300'}]}, upstream: web}, {match: {host: [a]}, upstream: web}, {match: {sni: [a]}, upstream: tls}]":    "",
		"routes: [{match: {sni: [a]}, split: [{upstream: tls, percent: 99}, {upstream: web, percent: 1}]}, {match: {host: [a]}, upstream: web}]": "of tls get to the upstream web",
	} {
		var got []string
		for _, w := range load(t, "listeners: [{name: l, bind: ':1', "+routes+"}]"+upstreams).Warnings {
			if text := w.String(); strings.Contains(text, "for a method of HTTP") {
				got = append(got, text)
			}
		}
		if n := len(got); n > 1 || (n == 0) != (want == "") || n == 1 && !strings.Contains(got[0], want) {
			t.Errorf("%s: %q, want %q", routes, got, want)
		}
	}
}
