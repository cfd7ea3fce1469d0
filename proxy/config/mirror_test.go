package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

// TestMirrors: a mirror leads to an upstream that there is, and that does not serve its clients itself, not
// even as a fallback; and warnings say so where it is of no use.
func TestMirrors(t *testing.T) {
	const more = `
upstreams:
  - {name: u, endpoints: ["h:1"], fallback: {upstream: f}}
  - {name: v, endpoints: ["h:2"]}
  - {name: f, endpoints: ["h:3"]}
  - {name: s, endpoints: ["h:4"], tls: {}}
`
	for _, c := range []struct {
		listener string
		want     []string
	}{
		{"upstream: u, mirror: {upstream: v, percent: 0.01, patience: 1ms}", nil},
		{"routes: [{upstream: u, mirror: {upstream: v}}]", nil},
		{"upstream: u, mirror: {upstream: w}", []string{"there is no upstream w"}},
		{"upstream: u, mirror: {percent: 5}", []string{"upstream is missing"}},
		{"upstream: u, mirror: {upstream: v, percent: 0.001}", []string{"0.001 % is finer than a hundredth"}},
		{"upstream: u, mirror: {upstream: v, percent: 101}", []string{"percent is 101"}},
		{"upstream: u, mirror: {upstream: v, patience: 0s}", []string{"patience is 0s"}},
		{"upstream: u, mirror: {upstream: s}", []string{"the upstream s has tls: a mirror sends bytes as they are"}},
		{"upstream: u, mirror: {upstream: u}", []string{"the upstream u serves these clients itself: it would get their bytes twice"}},
		{"upstream: u, mirror: {upstream: f}", []string{"the upstream f serves these clients itself"}},
		{"upstream: u, mirror: {upstream: u, percent: 0}", nil},
		{"routes: [{split: [{upstream: u, percent: 50}, {upstream: v, percent: 50}], mirror: {upstream: v}}]", []string{"the upstream v serves these clients itself"}},
		{"upstream: u, mirror: {upstream: v}, routes: [{match: {port: 1}, upstream: v}]", []string{"the upstream v serves these clients itself"}},
		{"upstream: u, mirror: {upstream: v}, routes: [{match: {port: 1}, upstream: v, mirror: {upstream: u, percent: 0}}]", nil},
		{"upstream: u, mirror: {upstream: v, compare: true}, rewrite: {direction: down, mask: [card]}", []string{"the answers to these clients are rewritten"}},
		{"upstream: u, mirror: {upstream: v, compare: true}, rewrite: {direction: up, mask: [card]}", nil},
		{"upstream: u, postgres: passthrough, mirror: {upstream: v}", nil},
		{"upstream: u, mirror: {upstream: v}, routes: [{match: {sni: [a.b]}, upstream: u}]", []string{"TLS is passed through: the mirror v cannot decrypt"}},
	} {
		text := "listeners: [{name: a, bind: ':1', " + c.listener + "}]" + more
		cfg, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text}, "/etc/p.yaml", nil)
		if cfg != nil {
			problems = append(problems, cfg.Warnings...)
		}
		problems = slices.DeleteFunc(problems, func(p config.Problem) bool { return strings.Contains(p.Error(), "no client gets to") })
		if len(problems) != len(c.want) {
			t.Errorf("%s: %v", c.listener, problems)
			continue
		}
		for i, p := range problems {
			if !strings.Contains(p.Error(), c.want[i]) {
				t.Errorf("%s: %v, want %s", c.listener, p, c.want[i])
			}
		}
	}
}

// TestMirrorsDiffer: a change of a mirror is a change of its listener.
func TestMirrorsDiffer(t *testing.T) {
	with := func(keys string) *config.Config {
		return load(t, "listeners: [{name: a, bind: ':1', upstream: u, "+keys+"}]"+upstreams)
	}
	old := with("mirror: {upstream: v, percent: 5}")
	for keys, want := range map[string]string{
		"mirror: {upstream: v, percent: 5, patience: 1s}": "",
		"mirror: {upstream: v, percent: 6}":               "listener a changed: mirror.percent: 5 → 6",
		"require_tls: false":                              "listener a changed: mirror: present → absent",
	} {
		next, got := with(keys), ""
		for _, c := range config.Diff(old, next) {
			got += c.String()
		}
		if got != want || old.Listeners[0].Same(next.Listeners[0]) != (want == "") {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
}
