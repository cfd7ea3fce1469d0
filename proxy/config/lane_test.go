package config_test

import (
	"slices"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

// TestLaneDefault: listeners that write no lane have that of the section, a change of which takes no restart.
func TestLaneDefault(t *testing.T) {
	text := func(value string) string {
		return "lane: {default: " + value + "}\nlisteners: [{name: a, bind: ':1', upstream: u}, {name: b, bind: ':2', upstream: u, lane: require}, {name: c, bind: ':3', upstream: u, lane: off}]\nupstreams: [{name: u, endpoints: ['h:1']}]\n"
	}
	for value, want := range map[string][]string{
		config.LaneAuto: {config.LaneAuto, config.LaneRequire, config.LaneOff}, config.LaneOff: {config.LaneOff, config.LaneRequire, config.LaneOff},
	} {
		var got []string
		for _, ln := range load(t, text(value)).Listeners {
			got = append(got, ln.Lane)
		}
		if !slices.Equal(got, want) {
			t.Errorf("default: %s: %v, want %v", value, got, want)
		}
	}
	old, next := load(t, text(config.LaneAuto)), load(t, text(config.LaneOff))
	if keys := old.Lane.Lasting(&next.Lane); len(keys) != 0 {
		t.Errorf("after a restart: %v", keys)
	}
	var changed []string
	for _, c := range config.Diff(old, next) {
		changed = append(changed, c.String())
	}
	if want := []string{"lane changed: default: auto → off", "listener a changed: lane: auto → off"}; !slices.Equal(changed, want) {
		t.Errorf("%q, want %q", changed, want)
	}
}
