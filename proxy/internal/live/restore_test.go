package live_test

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/live"
	"github.com/penstock/penstock/proxy/internal/state"
)

// TestNewerChangesStandBeforeRestored: a change that was made after another one had ended stays, and the
// other one is not restored beside it.
func TestNewerChangesStandBeforeRestored(t *testing.T) {
	e, err := config.NewEndpoint(&config.EndpointKeys{Address: "10.0.0.1:80", Name: "a", Weight: 1})
	if err != nil {
		t.Fatal(err)
	}
	cfg := &config.Config{Upstreams: []*config.Upstream{{Name: "u", Endpoints: []config.Endpoint{e}}}}
	at := time.Now()
	change := func(kind state.Kind, line, value string, later time.Duration) state.Change {
		return state.Change{Kind: kind, Upstream: "u", Endpoint: "a", Line: line, Value: value, Since: at.Add(later)}
	}
	weight := change(state.EndpointWeight, live.WeightLine(1), "5", 0)
	for name, tc := range map[string]struct {
		newer, ended state.Change
		want         string
	}{
		"the same thing":            {change(state.EndpointWeight, live.WeightLine(1), "7", 1), weight, "weight 7"},
		"the endpoint was removed":  {change(state.EndpointRemoved, live.EndpointLine(&e), "", 1), weight, "removed"},
		"it had been removed":       {weight, change(state.EndpointRemoved, live.EndpointLine(&e), "", -1), "weight 5"},
		"another thing":             {change(state.EndpointState, live.StateLine(&e), "drain", 1), weight, "weight 5, drain"},
		"another line":              {change(state.EndpointState, live.StateLine(&e), "drain", 1), change(state.EndpointWeight, live.WeightLine(3), "5", 0), "drain"},
		"an endpoint that is there": {weight, state.Change{Kind: state.EndpointAdded, Upstream: "u", Endpoint: "a", Added: &state.Endpoint{Address: "10.0.0.1:80", Name: "a", Weight: 1}}, "weight 5"},
	} {
		set, restored := live.NewSet([]state.Change{tc.newer}).Restore([]state.Change{tc.ended}, cfg)
		var got []string
		for _, c := range set.All() {
			got = append(got, strings.TrimPrefix(c.String(), "endpoint u/a: "))
		}
		if all := strings.Join(got, ", "); all != tc.want || len(restored) != len(got)-1 {
			t.Errorf("%s: in force are %s, and %d were restored, want %s", name, all, len(restored), tc.want)
		}
	}
}
