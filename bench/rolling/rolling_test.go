package rolling

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/report"
)

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
}
