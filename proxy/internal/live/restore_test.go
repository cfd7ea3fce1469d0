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

// TestSplitOfAnotherRoute: a change of a split does not go over to another route that has taken the number of its route.
func TestSplitOfAnotherRoute(t *testing.T) {
	t.Parallel()

	route := func(names ...string) config.Route {
		return config.Route{Match: config.Match{SNI: names}, Split: []config.Share{{Upstream: "u", Percent: 90}, {Upstream: "v", Percent: 10}}}
	}
	of := func(routes ...config.Route) *config.Config {
		return &config.Config{Listeners: []*config.Listener{{Name: "l", Routes: routes}}}
	}
	a, b, all := route("a"), route("b"), route()
	for name, tc := range map[string]struct {
		of    config.Route // at 0
		later *config.Config
		ends  string
	}{
		"it is still there":          {a, of(a, all), ""},
		"its route was removed":      {a, of(b, all), `the line has changed from "sni: [a]" to "sni: [b]"`},
		"a route was added before":   {all, of(a, all), `the line has changed from "every client" to "sni: [a]"`},
		"every route but it is gone": {all, of(all), ""},
	} {
		c := state.Change{Kind: state.Split, Listener: "l", Match: live.MatchLine(&tc.of), Line: live.SplitLine(tc.of.Split), Value: "u:0,v:100"}
		left, ended := live.NewSet([]state.Change{c}).Under(tc.later)
		if tc.ends == "" && len(left.All()) != 1 || tc.ends != "" && (len(ended) != 1 || ended[0].Why != tc.ends) {
			t.Errorf("%s: %v go on, and %+v have ended", name, left.All(), ended)
		}
	}
}
