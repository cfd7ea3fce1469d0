package report_test

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/report"
)

// unmeasured is a trial without results.
func unmeasured(contestant string, role report.Role, round int, beside string) *report.Trial {
	t := &report.Trial{Contestant: contestant, Role: role, Round: round, Beside: beside, ElapsedSeconds: 1}
	for _, n := range []*report.Number{
		&t.LatencyP50Seconds, &t.LatencyP99Seconds, &t.CPUSeconds, &t.MachineCPUSeconds,
		&t.ContextSwitches, &t.SystemCalls, &t.SplicedBytes,
	} {
		*n = report.Unmeasured()
	}
	return t
}

func bulk(contestant string, role report.Role, round int, beside string, gb, cpu float64) *report.Trial {
	t := unmeasured(contestant, role, round, beside)
	t.ReceivedBytes, t.SentBytes = int64(gb*1e9), 100
	t.MachineCPUSeconds = 1.5
	if contestant != "direct" {
		t.CPUSeconds, t.ContextSwitches, t.SplicedBytes = report.Number(cpu), 5000, report.Number(gb*1e9)
	}
	return t
}

// speeds are the speeds of the contestants beside a baseline of 2 GB/s.
var speeds = []struct {
	name    string
	gb, cpu float64
}{
	{"direct", 4, 0}, {"penstock", 2.2, 0.4}, {"<rival> & \"co\"", 1, 1.5},
}

// bulkScenario is two rounds in which the machine becomes half as fast.
func bulkScenario() *report.Scenario {
	s := &report.Scenario{Name: "bulk-8", Title: "8 connections that stream", Workload: "bulk", Connections: 8, Rounds: 2, TrialSeconds: 1}
	s.Cells = []*report.Cell{{Contestant: "io.Copy", Role: report.Baseline}}
	for _, x := range speeds {
		s.Cells = append(s.Cells, &report.Cell{Contestant: x.name, Role: report.Contender})
	}
	s.Cells = append(s.Cells, &report.Cell{Contestant: "io.Copy", Role: report.Again})
	for round := 1; round <= 2; round++ {
		mood := 1 / float64(round)
		for _, x := range speeds {
			pair := []*report.Trial{
				bulk("io.Copy", report.Baseline, round, x.name, 2*mood, 0.5*mood),
				bulk(x.name, report.Contender, round, x.name, x.gb*mood, x.cpu*mood),
			}
			if round == 2 {
				pair[0], pair[1] = pair[1], pair[0]
			}
			s.Trials = append(s.Trials, pair...)
		}
		s.Trials = append(s.Trials,
			bulk("io.Copy", report.Baseline, round, "again", 2*mood, 0.5*mood),
			bulk("io.Copy", report.Again, round, "again", 2.1*mood, 0.5*mood))
	}
	for i, name := range []string{"penstock", "io.Copy"} {
		t := bulk(name, report.Counting, 1, "", 0.5, 9)
		t.SystemCalls = report.Number(1000 * (i + 1))
		s.Trials = append(s.Trials, t)
	}
	return s
}

// idleScenario is one round without pairs.
func idleScenario() *report.Scenario {
	s := &report.Scenario{Name: "idle", Title: "2,000 sessions at rest", Workload: "idle", Connections: 2000, Rounds: 1, TrialSeconds: report.Unmeasured()}
	for _, x := range []struct {
		name      string
		role      report.Role
		rss, slab report.Number
	}{
		{"io.Copy", report.Baseline, 20e6, 40e6},
		{"direct", report.Contender, report.Unmeasured(), 10e6},
		{"penstock", report.Contender, 5e6, 20e6},
	} {
		t := unmeasured(x.name, x.role, 1, "")
		t.Idle = &report.Idle{Sessions: 2000, RssAnonBytes: x.rss, SlabBytes: x.slab, Descriptors: 4000}
		s.Trials = append(s.Trials, t)
		s.Cells = append(s.Cells, &report.Cell{Contestant: x.name, Role: x.role})
	}
	return s
}

func lostScenario() *report.Scenario {
	return &report.Scenario{
		Name: "echo-64-1", Title: "64 bytes there and back", Workload: "echo", Rounds: 1, TrialSeconds: report.Unmeasured(),
		Cells: []*report.Cell{{Contestant: "envoy", Role: report.Contender, Failed: "envoy ended: exit status 1"}},
	}
}

func document() *report.Document {
	d := &report.Document{
		Head: report.Head{
			Format: report.Format, Penstock: "(devel)", Command: "penstock-bench --peers all",
			Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), ElapsedSeconds: 61.25, NetworkNamespace: true,
			Machine: report.Machine{CPU: "A <fast> CPU", CPUs: 2, MemoryBytes: 16e9, Kernel: "Linux 6.1", Go: "go1.26", User: "root"},
		},
		Method:      report.Method{Baseline: "io.Copy", Rounds: 2, TrialSeconds: 1, SystemCallCounter: "strace", IdleSessions: 2000},
		Contestants: []report.Contestant{{Name: "penstock", About: "this program"}, {Name: "nginx", About: "its stream module", Version: "1.2"}},
		LeftOut:     []report.LeftOut{{Name: "envoy", Reason: "no envoy in PATH"}},
		Scenarios:   []*report.Scenario{bulkScenario(), idleScenario(), lostScenario()},
		Failures:    []string{fmt.Sprintf("penstock: %s", "something")},
	}
	for _, s := range d.Scenarios {
		s.Summarize()
	}
	d.Judge(report.Goals())
	return d
}
