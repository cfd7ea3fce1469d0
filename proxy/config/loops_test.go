package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

// TestCircles: clients that listeners would send to each other without end.
func TestCircles(t *testing.T) {
	const fix = " | write another upstream, or another bind"
	for what, c := range map[string]struct {
		listeners, upstreams []string
		want                 []string
	}{
		"by another": {
			[]string{"{name: a, bind: ':1', upstream: u}", "{name: b, bind: '127.0.0.1:2', upstream: v}"},
			[]string{"{name: u, endpoints: ['127.0.0.1:2']}", "{name: v, endpoints: ['10.0.0.1:1', '[::1]:1']}"},
			[]string{"2:35: clients would go round in a circle: listener a → upstream u (127.0.0.1:2) → listener b → upstream v ([::1]:1) → listener a" + fix},
		},
		"by a zone, which the kernel ignores": {
			[]string{"{name: a, bind: '[::1]:1', upstream: u}"},
			[]string{"{name: u, endpoints: ['[::1%lo]:1']}"},
			[]string{"2:40: clients would go round in a circle: [::1%lo]:1 is an endpoint of u, and an address of this listener" + fix},
		},
		"by the number of an interface": {
			[]string{"{name: a, bind: '[fe80::1%lo]:1', upstream: u}"},
			[]string{"{name: u, endpoints: ['[fe80::1%1]:1']}"},
			[]string{"2:47: clients would go round in a circle: [fe80::1%1]:1 is an endpoint of u, and an address of this listener" + fix},
		},
		"by a link": {
			[]string{"{name: a, bind: 'unix:/x/s', upstream: u}"},
			[]string{"{name: u, endpoints: ['unix:/proc/self/root/x/s']}"},
			[]string{"2:42: clients would go round in a circle: unix:/proc/self/root/x/s is an endpoint of u, and an address of this listener" + fix},
		},
		"by a fallback": {
			[]string{"{name: a, bind: 'unix:/x/../s', upstream: u}", "{name: b, bind: '0.0.0.0:2', upstream: v}"},
			[]string{"{name: u, endpoints: ['h:1'], fallback: {upstream: w}}", "{name: v, endpoints: ['unix:/s']}", "{name: w, endpoints: ['LocalHost.:2']}"},
			[]string{"2:45: clients would go round in a circle: listener a → upstream u → upstream w (LocalHost.:2) → listener b → upstream v (unix:/s) → listener a" + fix},
		},
		"by a split, behind routes that a client without TLS does not take": {
			[]string{"{name: a, bind: '[::]:1', routes: [{match: {sni: [x.y]}, upstream: u}, {split: [{upstream: u, percent: 99}, {upstream: v, percent: 1}]}]}"},
			[]string{"{name: u, endpoints: ['h:1']}", "{name: v, endpoints: ['[::]:1']}"},
			[]string{"2:122: clients would go round in a circle: [::]:1 is an endpoint of v, and an address of this listener" + fix},
		},
		"by a mirror": {
			[]string{"{name: a, bind: ':1', upstream: u, mirror: {upstream: v}}", "{name: b, bind: ':2', routes: [{upstream: u, mirror: {upstream: w}}]}"},
			[]string{"{name: u, endpoints: ['h:1']}", "{name: v, endpoints: ['127.0.0.1:2']}", "{name: w, endpoints: ['127.0.0.1:1']}"},
			[]string{"2:57: clients would go round in a circle: listener a → upstream v (127.0.0.1:2) → listener b → upstream w (127.0.0.1:1) → listener a" + fix},
		},
		"none: a mirror of nobody": {
			[]string{"{name: a, bind: ':1', upstream: u, mirror: {upstream: v, percent: 0}}"},
			[]string{"{name: u, endpoints: ['h:1']}", "{name: v, endpoints: ['127.0.0.1:1']}"},
			nil,
		},
		"from outside into one of others": {
			[]string{"{name: a, bind: ':1', upstream: u}", "{name: b, bind: ':2', upstream: v}", "{name: c, bind: ':3', upstream: u}"},
			[]string{"{name: u, endpoints: ['127.0.0.1:2']}", "{name: v, endpoints: ['127.0.0.1:3']}"},
			[]string{"3:35: clients would go round in a circle: listener b → upstream v (127.0.0.1:3) → listener c → upstream u (127.0.0.1:2) → listener b" + fix},
		},
		"none: another family": {
			[]string{"{name: a, bind: '0.0.0.0:1', upstream: u}", "{name: b, bind: '[::]:2', upstream: v}"},
			[]string{"{name: u, endpoints: ['[::1]:1']}", "{name: v, endpoints: ['127.0.0.1:2']}"},
			nil,
		},
		"none: another way out": {
			[]string{"{name: a, bind: ':1', routes: [{match: {source: [127.0.0.0/8]}, upstream: v}], upstream: u}", "{name: b, bind: ':2', upstream: w}"},
			[]string{"{name: u, endpoints: ['127.0.0.1:2']}", "{name: v, endpoints: ['h:1']}", "{name: w, endpoints: ['127.0.0.1:1']}"},
			nil,
		},
		"none: one behind the other": {
			[]string{"{name: a, bind: ':1', upstream: u}", "{name: b, bind: '127.0.0.1:2', upstream: v}"},
			[]string{"{name: u, endpoints: ['127.0.0.1:2', 'localhost:2']}", "{name: v, endpoints: ['10.0.0.1:1']}"},
			nil,
		},
	} {
		text := "listeners:\n- " + strings.Join(c.listeners, "\n- ") + "\nupstreams:\n- " + strings.Join(c.upstreams, "\n- ") + "\n"
		_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text}, "/etc/p.yaml", nil)
		var got []string
		for _, p := range problems {
			if !p.Warning {
				got = append(got, short(p))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s got %s\nwant %s", what, text, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}
