package main

import (
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

func TestSummary(t *testing.T) {
	t.Parallel()

	of := func(k config.Kind, a config.Action) config.Change { return config.Change{Kind: k, Action: a} }
	for want, changes := range map[string][]config.Change{
		"nothing":          nil,
		"lane changed":     {of(config.KindLane, config.Changed)},
		"1 listener added": {of(config.KindListener, config.Added)},
		"limits changed, admin added, 1 listener removed, 2 upstreams added, 1 changed, 1 endpoint added, 3 removed": {
			of(config.KindEndpoint, config.Removed), of(config.KindEndpoint, config.Removed), of(config.KindEndpoint, config.Removed),
			of(config.KindUpstream, config.Added), of(config.KindUpstream, config.Changed), of(config.KindUpstream, config.Added),
			of(config.KindListener, config.Removed), of(config.KindAdmin, config.Added), of(config.KindLimits, config.Changed), of(config.KindEndpoint, config.Added),
		},
	} {
		if got := summary(changes); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
