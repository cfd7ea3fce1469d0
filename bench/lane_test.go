package bench

import (
	"testing"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/report"
)

func TestInLane(t *testing.T) {
	warm := &contestant.Account{ClientToEndpoint: 500, EndpointToClient: 500, Copied: 600, Lane: 400}
	for _, test := range []struct {
		now  contestant.Account
		want float64
	}{
		{contestant.Account{ClientToEndpoint: 1000, EndpointToClient: 1000, Copied: 600, Lane: 1400}, 1},
		{contestant.Account{ClientToEndpoint: 1000, EndpointToClient: 1000, Copied: 1100, Lane: 900}, 0.5},
		{contestant.Account{ClientToEndpoint: 500, EndpointToClient: 500, Copied: 600, Lane: 400}, 0},
	} {
		if got := inLane(warm, &test.now); got != test.want {
			t.Errorf("%+v: %v, want %v", test.now, got, test.want)
		}
	}
}

// TestSessionsThatStayAreNoFigures: a trial of which too little has left makes its cell void, and the run a failure.
func TestSessionsThatStayAreNoFigures(t *testing.T) {
	for _, test := range []struct {
		workload load.Workload
		share    float64
		void     bool
	}{
		{load.Echo, 0.95, false},
		{load.Echo, 0.5, true},
		{load.Bulk, 0, true},
		{load.Connect, 0, false},
	} {
		all, least := report.Number(1), report.Number(test.share)
		out := &report.Scenario{Trials: []*report.Trial{
			{Contestant: contestant.LaneName, LaneShare: &all},
			{Contestant: contestant.LaneName, LaneShare: &least},
			{Contestant: directName},
		}}
		cell := &report.Cell{Role: report.Baseline}
		doc := new(report.Document)
		f := &field{
			runner: &runner{doc: doc}, scenario: &Scenario{Workload: test.workload}, out: out,
			entrants: []*entrant{{kind: &contestant.Kind{Name: contestant.LaneName}, cell: cell}},
		}
		f.judgeLane()
		if (cell.Void != "") != test.void || len(doc.Failures) > 0 != test.void || (len(cell.Notes) > 0) == test.void {
			t.Errorf("%s, %v: void %q, notes %q, failures %q", test.workload, test.share, cell.Void, cell.Notes, doc.Failures)
		}
	}
}
