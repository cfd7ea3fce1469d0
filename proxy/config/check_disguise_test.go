package config_test

import (
	"strings"
	"testing"
)

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
