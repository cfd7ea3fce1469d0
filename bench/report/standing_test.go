package report_test

import (
	"bytes"
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
	d.Judge()
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

// HAProxy's pipe size decides the verdict, so there is a standing for each size.
func TestHAProxyIsJudgedByBothSizesOfPipes(t *testing.T) {
	const own, large = "HAProxy's with splicing, pipes of its own size", "HAProxy's with splicing, pipes of 1 MiB"
	s := bulkRounds("io.Copy", append(everybody[:len(everybody):len(everybody)],
		contender{"haproxy-splice-1-defaults", []float64{1, 1, 1}, []float64{1.5, 1.5, 1.5}},
		contender{"haproxy-splice-2-defaults", []float64{1, 1, 1}, []float64{1.25, 1.25, 1.25}})...)
	d, st := standings(t, "io.Copy", s, "cpu_seconds_per_gb", own)
	if st.Peer != "haproxy-splice-2-defaults" || len(st.Beside) != 2 || !near(st.Ratio.Median, 0.6/1.25) || st.Verdict != report.MustReached {
		t.Errorf("own size: %+v", st)
	}
	_, st = standings(t, "io.Copy", s, "cpu_seconds_per_gb", large)
	if st.Peer != "haproxy-splice-1" || len(st.Beside) != 1 || !near(st.Ratio.Median, 0.6) || st.Verdict != report.Missed {
		t.Errorf("1 MiB: %+v", st)
	}
	if _, st = standings(t, "io.Copy", s, "gigabytes_per_second", ""); len(st.Beside) != 5 {
		t.Errorf("among all: %+v", st.Beside)
	}
	var b bytes.Buffer
	if err := d.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"| bulk-8: CPU s/GB of " + own + " | haproxy-splice-2-defaults | 0.48 (0.48–0.48) | ≤ 0.50 | – | met |",
		"| bulk-8: CPU s/GB of " + large + " | haproxy-splice-1 | 0.60 (0.60–0.60) | ≤ 0.50 | – | missed |",
	} {
		if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), row) {
			t.Errorf("no row %s in\n%s", row, b.String())
		}
	}
}

// With Penstock as the baseline, its ratio to a peer is the inverse of a pair's.
func TestAgainstABaselineOfOurOwn(t *testing.T) {
	_, st := standings(t, "penstock", bulkRounds("penstock", everybody[1], everybody[2]), "gigabytes_per_second", "")
	if st.Peer != "nginx" || !near(st.Ratio.Median, 2/2.75) || !near(st.Ratio.High, 1) || !st.Beside[0].Paired {
		t.Errorf("%+v", st)
	}
	if st.Limit != nil {
		t.Errorf("without direct: %+v", st.Limit)
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

func TestWithoutPeersNothingIsJudged(t *testing.T) {
	_, st := standings(t, "direct", bulkRounds("direct", everybody[0]), "gigabytes_per_second", "")
	if st.Verdict != report.Unjudged || st.Ratio != nil || st.Peer != "" || st.Limit != nil {
		t.Errorf("%+v", st)
	}
	d := &report.Document{Scenarios: []*report.Scenario{bulkRounds("io.Copy", everybody[1])}}
	if d.Judge(); len(d.Standings) > 0 {
		t.Errorf("without Penstock: %+v", d.Standings)
	}
}

// A round that only one of the two contestants has is left out.
func TestARoundIsLeftOutThatOneLacks(t *testing.T) {
	s := bulkRounds("io.Copy", everybody[:2]...)
	for _, trial := range s.Trials {
		if trial.Contestant == "nginx" && trial.Round == 2 {
			trial.ReceivedBytes = 0
		}
	}
	s.Summarize()
	_, st := standings(t, "io.Copy", s, "gigabytes_per_second", "")
	p := st.Beside[1]
	if p.Band.Values != 2 || !near(p.Band.High, 0.8) || p.Rounds[1].Known() || !p.Rounds[2].Known() {
		t.Errorf("%+v", p)
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

// Each kind of Penstock is judged by its own goal.
func TestBusyPollingHasAGoalOfItsOwn(t *testing.T) {
	s := &report.Scenario{Name: "echo-64-1", Workload: "echo", Rounds: 1}
	for name, latency := range map[string]report.Number{"penstock": 20e-6, "penstock-busy-poll": 14e-6, "nginx": 20e-6} {
		role := report.Contender
		if name == "penstock" {
			role = report.Baseline
		} else {
			base := unmeasured("penstock", report.Baseline, 1, name)
			base.LatencyP50Seconds = 20e-6
			s.Trials = append(s.Trials, base)
		}
		s.Cells = append(s.Cells, &report.Cell{Contestant: name, Role: role})
		if role == report.Contender {
			trial := unmeasured(name, role, 1, name)
			trial.LatencyP50Seconds = latency
			s.Trials = append(s.Trials, trial)
		}
	}
	s.Summarize()
	d := &report.Document{Scenarios: []*report.Scenario{s}}
	d.Judge()
	want := map[string]report.Verdict{"penstock": report.MustReached, "penstock-busy-poll": report.MustReached}
	if len(d.Standings) != len(want) {
		t.Fatalf("%+v", d.Standings)
	}
	for _, st := range d.Standings {
		if st.Verdict != want[st.Subject] || st.Peer != "nginx" || len(st.Beside) != 1 || st.Beside[0].Paired != (st.Subject == "penstock") {
			t.Errorf("%+v", st)
		}
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
		d.JudgeBy(report.LaneGoals())
		if len(d.Standings) != 2 {
			t.Fatalf("standings: %+v", d.Standings)
		}
		st := d.Standings[0]
		if st.Verdict != test.want || (st.Ratio == nil) != (test.void != "") || test.void == "" && st.Peer != "nginx" {
			t.Errorf("void %q: %+v", test.void, st)
		}
	}
}
