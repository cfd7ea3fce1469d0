package bench

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/report"
)

// LaneWarmup is enough time for most sessions that exchange messages to leave user space. They are asked to leave
// at an age of 100 ms.
const LaneWarmup = time.Second

// flowWarmup is how many times as long sessions that stream take. They wait for a gap in the stream. If they could
// not leave, they wait for two seconds.
const flowWarmup = 3

// laneLeast is the smallest share of the counted bytes that the lane must carry. With less, the figures measure
// something else.
const laneLeast = 0.9

// LaneScenarios returns the scenarios of `penstock-bench lane`. They have a warmup in which sessions leave user
// space. It is three times as long for sessions that stream. Short connections have none.
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

// judgeLane makes the measurement of the contestant with a lane void if its sessions did not leave user space, by
// its own count. Then the run fails. Scenarios with short connections are not judged, because these are too short
// to leave. The smallest share of a trial is noted.
func (f *field) judgeLane() {
	for _, e := range f.entrants {
		if e.kind.Name != contestant.LaneName || e.lost() || e.cell.Role == report.Again {
			continue
		}
		least, trials := leastInLane(f.out)
		if trials == 0 {
			continue
		}
		said := fmt.Sprintf("in the trial with the smallest share, the lane carried %.1f %% of the bytes, according to the process", 100*least)
		if w := f.scenario.Workload; (w == load.Bulk || w == load.Echo) && least < laneLeast {
			e.cell.Void = said
			f.doc.Failures = append(f.doc.Failures, fmt.Sprintf("%s, %s: %s", f.scenario.Name, e.kind.Name, said))
			continue
		}
		e.cell.Notes = append(e.cell.Notes, said)
	}
}

// leastInLane returns the smallest share that the lane carried in a trial, and the number of trials.
func leastInLane(s *report.Scenario) (least float64, trials int) {
	for _, t := range s.Trials {
		if t.Contestant != contestant.LaneName {
			continue
		}
		share := 0.0 // if the process has lost its lane
		if t.LaneShare != nil {
			share = float64(*t.LaneShare)
		}
		if trials++; trials == 1 || share < least {
			least = share
		}
	}
	return least, trials
}
