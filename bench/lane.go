package bench

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/report"
)

// LaneWarmup is how long sessions that exchange messages usually take at most to leave user space: they are asked at an age
// of 100 ms.
const LaneWarmup = time.Second

// flowWarmup is how many times as long sessions that stream take: they wait for a gap, and for two seconds after they
// could not leave.
const flowWarmup = 3

// laneLeast is the share of the counted bytes that the lane must have carried. Below it the figures measure
// something else.
const laneLeast = 0.9

// LaneScenarios returns the scenarios of `penstock-bench lane`: the Scenarios with a warmup in which sessions leave user
// space, three times as long for sessions that stream. Short connections have none.
func LaneScenarios(warmup time.Duration) []Scenario {
	list, err := ChooseScenarios([]string{"bulk", "echo-64", "echo-4096-64", "connections"})
	if err != nil {
		panic(err) // the names are ours
	}
	for i := range list {
		switch list[i].Workload {
		case load.Bulk:
			list[i].Warmup = flowWarmup * warmup
		case load.Echo:
			list[i].Warmup = warmup
		}
	}
	return list
}

// judgeLane makes the measurement of the contestant with a lane void if its sessions were not there, by its own account:
// that is a failure of the run. Connections are too short to leave. The least share of a trial is a note.
func (f *field) judgeLane() {
	for _, e := range f.entrants {
		if e.kind.Name != contestant.LaneName || e.lost() || e.cell.Role == report.Again {
			continue
		}
		least, trials := leastInLane(f.out)
		if trials == 0 {
			continue
		}
		said := fmt.Sprintf("sessions that had left user space carried %.1f %% of the bytes that count, in the trial with the least, by its own account", 100*least)
		if w := f.scenario.Workload; (w == load.Bulk || w == load.Echo) && least < laneLeast {
			e.cell.Void = said
			f.doc.Failures = append(f.doc.Failures, fmt.Sprintf("%s, %s: %s", f.scenario.Name, e.kind.Name, said))
			continue
		}
		e.cell.Notes = append(e.cell.Notes, said)
	}
}

// leastInLane returns the least share of a trial, and the number of trials.
func leastInLane(s *report.Scenario) (least float64, trials int) {
	for _, t := range s.Trials {
		if t.Contestant != contestant.LaneName {
			continue
		}
		share := 0.0 // of a process that has lost its lane
		if t.LaneShare != nil {
			share = float64(*t.LaneShare)
		}
		if trials++; trials == 1 || share < least {
			least = share
		}
	}
	return least, trials
}
