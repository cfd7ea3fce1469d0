package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/penstock/penstock/proxy/config"
)

// TestFirstBytes: conditions on first bytes that no client can meet, or that contradict the listener, are errors.
func TestFirstBytes(t *testing.T) {
	const tls = "tls: {certificates: [{cert: a.pem, key: a.key}]}, "
	for keys, want := range map[string][]string{
		"routes: [{match: {protocol: [http1, ssh], path: [/a/*]}, upstream: u}]":                                  nil,
		"routes: [{match: {protocol: [http2]}, upstream: u}, {match: {host: [a.b]}, upstream: u}]":                nil,
		"preread_silence: 1s, routes: [{match: {protocol: [silence]}, upstream: u}]":                              nil,
		"accept_proxy: {}, routes: [{match: {tlv: [{type: 0xE0}]}, upstream: u}], require_tls: true":              nil,
		"routes: [{match: {protocol: [ssh], host: [a.b]}, upstream: u}]":                                          {"this route is never taken: host and path are those of http1 | write protocol: [http1], or leave it out"},
		"routes: [{match: {protocol: [http1], user: [a]}, upstream: u}]":                                          {"this route is never taken: user and database are those of postgres | write protocol: [postgres], or leave it out"},
		"routes: [{match: {sni: [a.b], path: [/a]}, upstream: u}]":                                                {"this route is never taken: sni and alpn, host and path are those of different protocols | make a route for each"},
		"routes: [{match: {protocol: [silence]}, upstream: u}]":                                                   {"this route is never taken: it is not known how long a client is to be silent | write preread_silence: 200ms at the listener"},
		"preread_silence: 1s, upstream: u":                                                                        {"preread_silence changes nothing: silent clients are served at once, or never | leave it out"},
		"preread_silence: 1s, routes: [{match: {sni: [a.b]}, upstream: u}], upstream: u":                          nil,
		"preread_silence: 1s, routes: [{match: {protocol: [ssh]}, upstream: u}], upstream: u":                     nil,
		"routes: [{match: {sni: [a.b]}, upstream: u}, {match: {protocol: [tls_malformed]}, upstream: u}]":         nil,
		"preread_silence: 5s, routes: [{match: {protocol: [silence]}, upstream: u}]":                              {"no client is found to be silent: it is refused after 5s, the preread timeout | make it shorter, or timeouts.preread longer"},
		"preread_silence: 1s, connect: on_data, routes: [{match: {protocol: [silence]}, upstream: u}]":            {"connect: on_data waits for the first byte of a silent client | leave it out"},
		"preread_silence: 1s, routes: [{match: {protocol: [silence, ssh], bytes: [{text: a}]}, upstream: u}]":     {"a silent client has sent nothing that the other conditions are about | make a route for each"},
		"routes: [{match: {tlv: [{type: 1}]}, upstream: u}]":                                                      {"this route is never taken: no PROXY header is read | write accept_proxy: {versions: [2]} at the listener"},
		"accept_proxy: {versions: [1]}, routes: [{match: {tlv: [{type: 1}]}, upstream: u}]":                       {"this route is never taken: a PROXY header of version 1 has no TLVs | write versions: [2] in accept_proxy"},
		"accept_proxy: {}, routes: [{match: {tlv: [{type: 1, text: a, hex: '00'}]}, upstream: u}]":                {"text and hex exclude each other | leave one of them out"},
		"routes: [{match: {bytes: [{offset: 1}]}, upstream: u}]":                                                  {"text or hex is missing | write text: or hex:"},
		"routes: [{match: {bytes: [{text: ab, mask: ff}]}, upstream: u}]":                                         {"the mask has 1 bytes, and the pattern 2 | write 2 bytes"},
		"routes: [{match: {bytes: [{text: a, mask: '00'}]}, upstream: u}]":                                        {"no bit of the pattern counts | write ff for each byte that counts"},
		"routes: [{match: {bytes: [{hex: abc}]}, upstream: u}]":                                                   {`"abc" is not hexadecimal | write two digits for each byte, such as 0300ff`},
		"routes: [{match: {path: [/a/../b]}, upstream: u}]":                                                       {`"/a/../b" is not the path of a request | write /status, or /api/* for all paths below /api`},
		"routes: [{match: {path: [/a*]}, upstream: u}]":                                                           {`"/a*" is not the path of a request | write /status, or /api/* for all paths below /api`},
		"require_tls: true, routes: [{match: {protocol: [ssh]}, upstream: u}]":                                    {"require_tls refuses the clients that the route in line 1 is for | leave it out, and write protocol: [tls] at the routes for TLS"},
		tls + "routes: [{match: {host: [a.b]}, upstream: u}]":                                                     {"a route is chosen before TLS is terminated: this one depends on bytes that are encrypted until then | leave tls out, or route by sni and alpn"},
		"routes: [{match: {host: [a.b]}, upstream: u}, {match: {protocol: [ssh, http2]}, upstream: u}]":           {"clients of HTTP/2 are refused: their host and path are not read, so the route in line 1 may be theirs | put it before that one"},
		"routes: [{match: {protocol: [http1]}, upstream: u}, {match: {host: [a.b]}, upstream: u}]":                {"this route is never reached: all its clients are matched by the one in line 1 | put it before that one, or leave it out"},
		"routes: [{match: {path: [/a/*]}, upstream: u}, {match: {path: [/a/b, /a/c/*], host: [b]}, upstream: u}]": {"this route is never reached: all its clients are matched by the one in line 1 | put it before that one, or leave it out"},
		"routes: [{match: {bytes: [{text: a}]}, upstream: u}, {match: {bytes: [{hex: '61'}]}, upstream: u}]":      {"this route is never reached: the one in line 1 matches the same clients | leave it out, or match other clients"},
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
