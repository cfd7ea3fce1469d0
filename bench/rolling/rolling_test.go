package rolling

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/bench/standin"
	"github.com/penstock/penstock/internal/testutil/child"
	"github.com/penstock/penstock/internal/testutil/must"
)

// childName is the first argument of a test binary that runs as a child.
const childName = "penstock-rolling-test"

// self is this program.
var self = contestant.Program{Path: "/proc/self/exe", Name: childName, Part: []string{"part"}, Run: []string{"run"}}

func TestMain(m *testing.M) { child.Main(m, childName, run) }

// run does the work of the program with these arguments.
func run(args []string) error {
	ctx := context.Background()
	switch {
	case args[0] == "run":
		return standin.Serve(ctx, args[2], 10_000)
	case args[1] == endpoint.Part:
		return endpoint.RunPart(ctx, os.Stdin, os.Stdout)
	}
	return endpoint.RunLoad(ctx, os.Stdin, os.Stdout)
}

// setup is a run that takes seconds, with these contestants.
func setup(t *testing.T, names ...string) Setup {
	t.Helper()
	g := process.NewGroup()
	t.Cleanup(g.Close)
	s := Setup{
		Setup:     rounds.Setup{Group: g, Rounds: 1},
		Setting:   contestant.Setting{Program: self, Dir: t.TempDir(), Patience: time.Minute},
		Scenarios: Scenarios(200 * ms), Away: 200 * ms, Rate: 50, Timeout: 500 * ms, Bytes: 100,
	}
	for _, k := range contestant.Balancing(2) {
		if slices.Contains(names, k.Name) {
			s.Kinds = append(s.Kinds, k)
		}
	}
	return s
}

// TestMeasure runs each scenario with Penstock alone. All clients are accounted for, and those of
// an endpoint that does not answer are lost.
func TestMeasure(t *testing.T) {
	t.Parallel()
	s := setup(t, contestant.BalancingName)
	var seen []string
	s.Watch = func(p rounds.Progress) { seen = append(seen, p.Case) }
	r := must.Get(Measure(t.Context(), s))(t)
	if got := strings.Join(seen, " "); got != "rolling pair brief single refusing resetting mute frozen" || len(r.Standings) != len(seen) {
		t.Errorf("%s; %+v", got, r.Standings)
	}
	for i, res := range r.Scenarios {
		f := res.Cells[0].Total
		length := s.Scenarios[i].Length
		want := int64(length.Seconds() * s.Rate)
		if f == nil || f.Clients < want || f.Clients > want+1 || f.Lost+f.UnderWay >= f.Clients || !(f.Longest > 0) {
			t.Errorf("%s, %v: %+v", res.Scenario, length, f)
		}
		if res.Scenario == "mute" && f.Reasons["timed out"] == 0 {
			t.Errorf("mute: no client timed out: %+v", f)
		}
		if s := r.Standings[i]; s.Verdict != report.Unjudged {
			t.Errorf("without peers: %+v", s)
		}
	}
	text, err := json.Marshal(r)
	for _, key := range []string{`"clients_per_second":50,`, `"scenario":"frozen"`, `"lost_under_way":`, `"longest_seconds":`} {
		if err != nil || !strings.Contains(string(text), key) {
			t.Errorf("no %s in %s, %v", key, text, err)
		}
	}
}

// TestPeers: each peer is started with its endpoints, serves, and manages without one of them.
func TestPeers(t *testing.T) {
	t.Parallel()
	names := []string{contestant.BalancingName, "haproxy", "haproxy-observe", "nginx", "nginx-tuned", contestant.CheckingName, "haproxy-checks"}
	s := setup(t, names...)
	s.Scenarios, _ = Named(s.Scenarios, []string{"refusing"})
	s.Rate, s.Timeout = 20, time.Minute
	r := must.Get(Measure(t.Context(), s))(t)
	for _, why := range r.Missing {
		if os.Getenv("CI") != "" {
			t.Fatal(why)
		}
		t.Log(why)
	}
	for i, c := range r.Scenarios[0].Cells {
		if f := c.Total; f.Lost > 0 || f.Clients < 10 {
			t.Errorf("%s: %+v\n%s", c.Contestant, f, r.Contestants[i].Config)
		}
	}
	if len(r.Missing) > 0 {
		t.Skipf("without %s", strings.Join(r.Missing, "; "))
	}
	if len(r.Contestants) != len(names) || r.Contestants[1].Version == "" {
		t.Errorf("%+v", r.Contestants)
	}
}

func TestJudge(t *testing.T) {
	cell := func(name string, lost ...int64) Cell {
		c := Cell{Contestant: name}
		for _, n := range lost {
			c.add(&Figures{Clients: 100, Lost: n, P50: 0.1, P99: 0.1, Longest: report.Number(n)})
		}
		return c
	}
	r := &Report{Scenarios: []Result{
		{Scenario: "a", Cells: []Cell{cell("penstock", 3, 2), cell("haproxy", 4, 4), cell("nginx", 1, 2), cell("haproxy-checks", 0, 0)}},
		{Scenario: "b", Cells: []Cell{cell("penstock", 9), cell("nginx", 4), cell("penstock-checks", 1), cell("haproxy-checks", 0)}},
		{Scenario: "c", Cells: []Cell{cell("penstock", 0), cell("nginx", 0)}},
		{Scenario: "d", Cells: []Cell{cell("penstock"), cell("nginx")}},
	}}
	r.judge()
	want := []Standing{
		{"a", "penstock", 5, "nginx", 3, report.MustReached}, // the difference may be chance
		{"b", "penstock", 9, "nginx", 4, report.Missed},
		{"b", "penstock-checks", 1, "haproxy-checks", 0, report.Missed}, // not next to one that lost none
		{"c", "penstock", 0, "nginx", 0, report.MustReached},
	}
	if !slices.Equal(r.Standings, want) {
		t.Errorf("%+v", r.Standings)
	}
	if total := r.Scenarios[0].Cells[0].Total; total.Clients != 200 || total.Longest != 3 {
		t.Errorf("%+v", total)
	}
}

const ms = time.Millisecond

// Each client is counted once: as served, lost, or lost in flight.
func TestSum(t *testing.T) {
	got := sum([]endpoint.Outcome{
		{Began: 0, Ended: 9 * ms, First: 3 * ms},
		{Began: 10 * ms, Ended: 19 * ms, First: 1 * ms},
		{Began: 20 * ms, Ended: 140 * ms, First: 2 * ms}, // connected at the event, and served
		{Began: 30 * ms, Ended: 99 * ms, Lost: "reset"},  // over before the event
		{Began: 40 * ms, Ended: 100 * ms, Lost: "reset"},
		{Began: 102 * ms, Ended: 150 * ms, Lost: "reset"},
		{Began: 103 * ms, Ended: 150 * ms, Lost: "refused"}, // began after the event
		{Began: 104 * ms, Ended: 150 * ms, Lost: "refused"},
		{Began: 150 * ms, Ended: 250 * ms, Lost: "reset"}, // connected at the second event
	}, []moment{{100 * ms, 102 * ms}, {200 * ms, 201 * ms}})
	want := &Figures{
		Clients: 9, Lost: 3, UnderWay: 3, Reasons: map[string]int64{"reset": 1, "refused": 2}, P50: 0.002, P99: 0.003, Longest: 0.003,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if none := sum(nil, nil); none.Longest.Known() || none.P50.Known() {
		t.Errorf("without clients, the longest wait is %v", none.Longest)
	}
}

// All events happen in their order and during the load. The schedule of a single endpoint is as
// promised.
func TestScenarios(t *testing.T) {
	all := Scenarios(4 * time.Second)
	for _, s := range all {
		state := make(map[int]endpoint.Failure)
		last := time.Duration(0)
		for _, x := range s.steps {
			if x.at < last || x.at <= 0 || x.at >= s.Length || x.endpoint < 0 || x.endpoint >= s.Endpoints || x.state == state[x.endpoint] {
				t.Errorf("%s: %+v after %v", s.Name, x, last)
			}
			state[x.endpoint], last = x.state, x.at
		}
		if s.Name == "single" && (s.steps[3].at-s.steps[2].at >= 2*time.Second || s.steps[3].state != endpoint.Healthy) {
			t.Errorf("the only endpoint is away for %v", s.steps[3].at-s.steps[2].at)
		}
	}
	some, err := Named(all, []string{"frozen", "pair", "pair"})
	if err != nil || len(some) != 2 || some[0].Name != "pair" || some[1].Name != "frozen" {
		t.Errorf("%v, %v", some, err)
	}
	if _, err := Named(all, []string{"odd"}); err == nil || !strings.Contains(err.Error(), "write rolling, pair, brief,") {
		t.Errorf("got %v", err)
	}
}
