package report_test

import (
	"math"
	"testing"

	"github.com/penstock/penstock/bench/report"
	"pgregory.net/rapid"
)

// figure returns one figure of the cell of a name and role.
func figure(t *testing.T, s *report.Scenario, contestant string, role report.Role, name string) report.Summary {
	t.Helper()
	for _, c := range s.Cells {
		if c.Contestant == contestant && c.Role == role {
			return c.Figures[name]
		}
	}
	t.Fatalf("no cell of %s, %s", contestant, role)
	return report.Summary{}
}

func near(x report.Number, want float64) bool { return math.Abs(float64(x)-want) < 1e-9 }

// The machine becomes half as fast in the second round. That changes medians, but not ratios.
func TestRatiosAreOfPairs(t *testing.T) {
	s := bulkScenario()
	s.Summarize()
	f := figure(t, s, "penstock", report.Contender, "gigabytes_per_second")
	if !near(f.Median, 1.65) || !near(f.Low, 1.1) || !near(f.High, 2.2) {
		t.Errorf("throughput: %+v", f)
	}
	if r := f.Ratio; r == nil || !near(r.Median, 1.1) || !near(r.Low, 1.1) || !near(r.High, 1.1) || r.Values != 2 {
		t.Errorf("ratio: %+v", r)
	}
	if f := figure(t, s, "io.Copy", report.Baseline, "gigabytes_per_second"); f.Ratio != nil || !near(f.Median, 1.5) {
		t.Errorf("the baseline: %+v", f)
	}
	if f := figure(t, s, "io.Copy", report.Again, "gigabytes_per_second"); f.Ratio == nil || !near(f.Ratio.Median, 1.05) {
		t.Errorf("the noise floor: %+v", f)
	}
}

func TestVoidAndFailedCellsHaveNoFigures(t *testing.T) {
	s := bulkScenario()
	s.Cells[2].Void = "it spliced nothing"
	s.Cells[3].Failed = "it fell over"
	s.Summarize()
	for _, c := range s.Cells[2:4] {
		if c.Figures != nil || c.Rounds != nil {
			t.Errorf("%s: %+v", c.Contestant, c)
		}
	}
}

func restTrial(name string, role report.Role, round int, slab report.Number) *report.Trial {
	t := unmeasured(name, role, round, "")
	t.Idle = &report.Idle{Sessions: 10, RssAnonBytes: 100, SlabBytes: slab, Descriptors: 20}
	return t
}

func TestIdleIsComparedWithBothBaselinesOfTheRound(t *testing.T) {
	s := &report.Scenario{Workload: "idle", Rounds: 3}
	again := &report.Cell{Contestant: "io.Copy", Role: report.Again}
	s.Cells = []*report.Cell{{Contestant: "io.Copy", Role: report.Baseline}, {Contestant: "penstock", Role: report.Contender}, again}
	for i, slab := range [][3]report.Number{
		{300, 200, 500},                                 // the first baseline, penstock, the second
		{400, -100, 400},                                // below 0: no ratio
		{report.Unmeasured(), 100, 400},                 // of the known one
		{report.Unmeasured(), 100, report.Unmeasured()}, // of no known one
	} {
		s.Trials = append(s.Trials, restTrial("io.Copy", report.Baseline, i+1, slab[0]),
			restTrial("penstock", report.Contender, i+1, slab[1]), restTrial("io.Copy", report.Again, i+1, slab[2]))
	}
	s.Summarize()
	f := figure(t, s, "penstock", report.Contender, "slab_bytes_per_session")
	if f.Ratio == nil || f.Ratio.Values != 2 || !near(f.Ratio.High, 0.5) || !near(f.Ratio.Low, 0.25) {
		t.Errorf("penstock: %+v", f.Ratio)
	}
	if f := again.Figures["slab_bytes_per_session"]; f.Ratio == nil || f.Ratio.Values != 2 || !near(f.Ratio.High, 5./3) || !near(f.Ratio.Low, 1) {
		t.Errorf("again: %+v", f.Ratio)
	}
}

func TestStray(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := report.Sample(rapid.SliceOf(rapid.Float64Range(-10, 10)).Draw(t, "sample"))
		low, high := s.Stray()
		if len(s) == 0 {
			if !math.IsNaN(low) || !math.IsNaN(high) {
				t.Fatalf("of no values: %v, %v", low, high)
			}
			return
		}
		least, greatest := s.Range()
		if m := s.Median(); !(least <= low && low <= m && m <= high && high <= greatest) {
			t.Fatalf("%v <= %v <= %v <= %v <= %v", least, low, m, high, greatest)
		}
		if len(s) < 10 && (low != least || high != greatest) {
			t.Fatalf("few values: %v, %v of %v", low, high, s)
		}
	})
	hundred := make(report.Sample, 101)
	for i := range hundred {
		hundred[i] = float64(i)
	}
	if low, high := hundred.Stray(); low != 10 || high != 90 {
		t.Errorf("percentiles %v and %v", low, high)
	}
}
