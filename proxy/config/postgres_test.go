package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

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
		{"postgres: yes", "", `postgres is one of none, passthrough, terminate, not "yes"`},
		{"routes: [{match: {user: [ann]}, upstream: u}]", "", ""},
		{"postgres: passthrough, routes: [{match: {protocol: [ssh]}, upstream: u}]", "", "protocol, host, path and bytes do not apply"},
		{"postgres: passthrough, require_tls: true, routes: [{match: {database: [shop]}, upstream: u}]", "", "TLS is passed through, and hides user and database"},
		{"postgres: passthrough", "balance: maglev, balance_on: user", ""},
		{"postgres: passthrough, require_tls: true", "balance: maglev, balance_on: user", "no client has a user"},
		{"metrics_by: {key: database, values: [shop]}", "", "no client has a database"},
		{"postgres: passthrough", "starttls: postgres", "starttls: postgres is of no use"},
		{"postgres: passthrough", "starttls: postgres, health_check: {tls: true}", ""},
	} {
		text := "listeners: [{name: a, bind: ':1', upstream: u, " + c.listener + "}]\nupstreams: [{name: u, endpoints: ['h:1'], " + c.upstream + "}]"
		cfg, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text}, "/etc/p.yaml", nil)
		if cfg != nil {
			problems = append(problems, cfg.Warnings...)
		}
		if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.Contains(problems[0].Error(), c.want)) {
			t.Errorf("%s, %s: %v, want %q", c.listener, c.upstream, problems, c.want)
		}
	}
	_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": "listeners: [{name: a, bind: ':1', upstream: u, " + strings.Replace(terminate, "terminate", "passthrough", 1) + "}]\nupstreams: [{name: u, endpoints: ['h:1']}]"}, "/etc/p.yaml", nil)
	if !slices.ContainsFunc(problems, func(p config.Problem) bool { return strings.Contains(p.Error(), "tls is of no use") }) {
		t.Errorf("tls with passthrough: %v", problems)
	}
}
