package bench

import (
	"time"

	"github.com/penstock/penstock/bench/load"
)

// Durations in addition to the planned ones. An estimate rests on them alone.
const (
	trialExtra    = 60 * time.Millisecond  // connecting, ending, accounting
	startTakes    = 200 * time.Millisecond // of a contestant, and its end
	checksTake    = 4 * time.Second
	countingTrial = 500 * time.Millisecond // longest
	countingTakes = countingTrial + 400*time.Millisecond
	restExtra     = 200 * time.Millisecond // opening the sessions, and closing them
	restSession   = 150 * time.Microsecond
)

// restRounds is how many rounds idle takes at most: each costs more than ten
// seconds for every contestant, and memory does not drift.
const restRounds = 3

// rounds is how many the scenario takes.
func (r *Run) rounds(s *Scenario) int {
	switch s.Workload {
	case load.Correct:
		return 1
	case load.Idle:
		return min(r.Rounds, restRounds)
	case load.Mix:
		return max(r.Rounds/2, 1)
	}
	return r.Rounds
}

// duration is how long a trial of the scenario is driven; 0 if the load decides.
func (r *Run) duration(s *Scenario) time.Duration {
	switch s.Workload {
	case load.Correct, load.Idle:
		return 0
	case load.Mix:
		return 3 * r.Trial
	}
	return r.Trial
}

func (r *Run) trialTakes(s *Scenario) time.Duration {
	if s.Many {
		return r.duration(s) + 2*s.warmup() + manyRests
	}
	return s.warmup() + r.duration(s) + trialExtra
}

func (r *Run) restTakes() time.Duration {
	return r.Quiet + r.Quiet/10 + restExtra + time.Duration(r.Idle)*restSession
}

// Estimate returns about how long the run takes.
func (r *Run) Estimate() time.Duration {
	var sum time.Duration
	n := time.Duration(len(r.kinds()))
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		rounds := time.Duration(r.rounds(s))
		sum += n * startTakes
		switch s.Workload {
		case load.Correct:
			sum += n * checksTake
		case load.Idle:
			sum += rounds * (n + 1) * r.restTakes()
		default:
			sum += rounds * n * 2 * r.trialTakes(s) // n-1 others and the baseline itself
			if r.Calls && s.Workload != load.Mix {
				sum += n * countingTakes
			}
		}
	}
	return sum
}
