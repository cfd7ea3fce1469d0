package config_test

import (
	"strings"
	"testing"
)

// TestRefusesAll: a listener that refuses every client knows the reason.
func TestRefusesAll(t *testing.T) {
	for keys, want := range map[string]string{
		"upstream: u": "",
		"":            "there is neither a route nor an upstream",
		"routes: [{match: {sni: [a.example]}, upstream: u}]":                  "",
		"upstream: u, allow: [10.0.0.0/8], deny: [10.1.0.0/16]":               "",
		"upstream: u, allow: [10.0.0.0/8], deny: [10.0.0.0/7]":                "deny has all that allow has",
		"upstream: u, allow: [all], deny: [all]":                              "deny has all that allow has",
		"upstream: u, deny: [all]":                                            "deny has every source",
		"upstream: u, deny: ['0.0.0.0/0', '::/0']":                            "deny has every source",
		"upstream: u, deny: ['0.0.0.0/0', '::/0', 10.0.0.0/8]":                "deny has every source",
		"upstream: u, deny: ['0.0.0.0/0']":                                    "",
		"upstream: u, deny: ['0.0.0.0/0', '::/0'], also: unix":                "",
		"upstream: u, deny: ['0.0.0.0/0', '::/0', unix], also: unix":          "deny has every source",
		"upstream: u, deny: ['0.0.0.0/0', '::/0'], also: systemd":             "",
		"upstream: u, deny: [all], also: systemd":                             "deny has every source",
		"upstream: u, allow: [10.0.0.0/8], only: unix":                        "allow has no unix, and it has unix sockets alone",
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
