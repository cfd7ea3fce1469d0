package report_test

import (
	"math"
	"strings"
	"testing"

	"github.com/penstock/penstock/bench/report"
)

// contender has one contestant's results in each round: GB/s and CPU seconds for a GB, at the
// machine's usual speed.
type contender struct {
	name    string
	gb, cpu []float64
}

// bulkRounds is a scenario in which each contender is paired with the baseline, which has 2 GB/s
// for 1 s per GB. The machine's speed varies from pair to pair.
func bulkRounds(baseline string, all ...contender) *report.Scenario {
	s := &report.Scenario{Name: "bulk-8", Workload: "bulk", Rounds: len(all[0].gb), Cells: []*report.Cell{{Contestant: baseline, Role: report.Baseline}}}
	for i, c := range all {
		s.Cells = append(s.Cells, &report.Cell{Contestant: c.name, Role: report.Contender})
		for round := range c.gb {
			mood, gb := 1/float64(1+i+round), c.gb[round]
			s.Trials = append(s.Trials,
				bulk(baseline, report.Baseline, round+1, c.name, 2*mood, 2*mood),
				bulk(c.name, report.Contender, round+1, c.name, gb*mood, c.cpu[round]*gb*mood))
		}
	}
	s.Summarize()
	return s
}

// standings judges a document of that scenario, and returns the standing for a figure among all
// peers, or among the named ones.
func standings(t *testing.T, baseline string, s *report.Scenario, figure, among string) (*report.Document, report.Standing) {
	t.Helper()
	d := &report.Document{Method: report.Method{Baseline: baseline, Rounds: s.Rounds}, Scenarios: []*report.Scenario{s}}
	d.Judge(report.Goals())
	for _, st := range d.Standings {
		if st.Figure == figure && st.Among == among {
			return d, st
		}
	}
	t.Fatalf("no standing to %s %s", figure, among)
	return nil, report.Standing{}
}

// everybody is Penstock at 1.1, a peer ahead of it, and others, for any baseline.
var everybody = []contender{
	{"penstock", []float64{2.2, 2.2, 2.2}, []float64{0.6, 0.6, 0.6}},
	{"nginx", []float64{2.75, 2, 2.75}, []float64{1.2, 1.2, 1.2}},
	{"haproxy-splice-1", []float64{1, 1, 1}, []float64{1, 1, 1}},
	{"io.Copy-copying", []float64{9, 9, 9}, []float64{0.1, 0.1, 0.1}}, // is no peer
	{"penstock-copy", []float64{9, 9, 9}, []float64{0.1, 0.1, 0.1}},   // is no peer either
	{"direct", []float64{4, 4, 4}, []float64{0, 0, 0}},
}

func TestTheWorstPeerCounts(t *testing.T) {
	s := bulkRounds("io.Copy", everybody...)
	_, st := standings(t, "io.Copy", s, "gigabytes_per_second", "")
	if st.Peer != "nginx" || st.Ratio == nil || !near(st.Ratio.Median, 0.8) || !near(st.Ratio.Low, 0.8) || !near(st.Ratio.High, 1.1) {
		t.Errorf("throughput: %+v", st)
	}
	if st.Verdict != report.Missed || st.Limit == nil || !near(st.Limit.Median, 4/2.75) {
		t.Errorf("throughput: %s, no proxy %+v", st.Verdict, st.Limit)
	}
	var names []string
	for _, p := range st.Beside {
		names = append(names, p.Peer)
		if paired := p.Peer == "io.Copy"; p.Paired != paired || len(p.Rounds) != 3 {
			t.Errorf("beside %s: %+v", p.Peer, p)
		}
	}
	if got := strings.Join(names, " "); got != "io.Copy nginx haproxy-splice-1" {
		t.Errorf("peers: %s", got)
	}
	if _, st = standings(t, "io.Copy", s, "cpu_seconds_per_gb", ""); st.Peer != "io.Copy" && st.Peer != "haproxy-splice-1" || st.Verdict != report.MustReached {
		t.Errorf("CPU: %+v", st)
	}
}

func TestTheAimIsMoreThanTheMust(t *testing.T) {
	for gb, want := range map[float64]report.Verdict{1.99: report.Missed, 2: report.MustReached, 2.19: report.MustReached, 2.21: report.AimReached} {
		s := bulkRounds("nginx", contender{"penstock", []float64{gb}, []float64{1}})
		if _, st := standings(t, "nginx", s, "gigabytes_per_second", ""); st.Verdict != want {
			t.Errorf("%v GB/s: %s, want %s", gb, st.Verdict, want)
		}
	}
}

func TestMemoryIsJudgedByItself(t *testing.T) {
	s := idleScenario()
	s.Cells = append(s.Cells, &report.Cell{Contestant: "haproxy-2", Role: report.Contender})
	rival := unmeasured("haproxy-2", report.Contender, 1, "")
	rival.Idle = &report.Idle{Sessions: 2000, RssAnonBytes: 6.8e6, SlabBytes: 16e6, Descriptors: 4000}
	s.Trials = append(s.Trials, rival)
	s.Summarize()
	_, st := standings(t, "io.Copy", s, "rss_anon_bytes_per_session", "")
	if !near(st.Value, 2500) || st.Verdict != report.Missed || st.Ratio != nil {
		t.Errorf("user memory: %+v", st)
	}
	_, st = standings(t, "io.Copy", s, "slab_bytes_per_session", "HAProxy's")
	if st.Peer != "haproxy-2" || !near(st.Ratio.Median, 1.25) || st.Verdict != report.Missed {
		t.Errorf("kernel memory: %+v", st)
	}
}

// Each goal is of a figure that its scenario has, and can be reached.
func TestGoalsAreOfFigures(t *testing.T) {
	workloads := map[string]string{"bulk": "bulk", "echo": "echo", "connections": "connect", "idle": "idle"}
	for _, g := range report.Goals() {
		beginning, _, _ := strings.Cut(g.Scenario, "-")
		found := false
		for _, f := range report.Figures(workloads[beginning]) {
			if f.Name != g.Figure {
				continue
			}
			found = true
			if g.Aim.Known() && (f.More && g.Aim < g.Must || !f.More && g.Aim > g.Must) {
				t.Errorf("%s, %s: the aim %v is less than the must %v", g.Scenario, g.Figure, g.Aim, g.Must)
			}
		}
		if !found || !g.Must.Known() || math.IsNaN(float64(g.Must)) {
			t.Errorf("no such figure: %+v", g)
		}
	}
}

// TestLaneGoals judges a run whose baseline has a lane, and one whose sessions have not left: its figures do not count.
func TestLaneGoals(t *testing.T) {
	for _, test := range []struct {
		void string
		want report.Verdict
	}{
		{"", report.AimReached},
		{"sessions stayed", report.Missed},
	} {
		s := bulkRounds("penstock-run-lane", contender{"nginx", []float64{1, 1}, []float64{2, 2}}, contender{"penstock-run", []float64{4, 4}, []float64{1, 1}})
		s.Cells[0].Void = test.void
		s.Summarize()
		d := &report.Document{Scenarios: []*report.Scenario{s}}
		d.Judge(report.LaneGoals())
		if len(d.Standings) != 2 {
			t.Fatalf("standings: %+v", d.Standings)
		}
		st := d.Standings[0]
		if st.Verdict != test.want || (st.Ratio == nil) != (test.void != "") || test.void == "" && st.Peer != "nginx" {
			t.Errorf("void %q: %+v", test.void, st)
		}
	}
}
