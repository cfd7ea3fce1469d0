package config_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

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
