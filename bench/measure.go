package bench

import (
	"context"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
)

// Progress is where a series of trials stands.
type Progress struct {
	Trial, Trials int // from 0
	Round, Rounds int // from 0
	Contestant    string
	Plan          load.Plan
	Received      int64 // bytes, by this trial so far
	Elapsed       time.Duration
	Result        *load.Result // when the trial is over
}

// Series is the set of measurements: every plan with every contestant, Rounds times.
type Series struct {
	Rounds      int
	Plans       []load.Plan // Address is filled in
	Contestants []*contestant.Contestant
}

// Measure runs a series and reports progress to watch, which may be nil. The contestants take
// turns within a plan, and the first one alternates from round to round. Measure fails at the
// first failure: a wrong byte, different byte counts of the load and the contestant, a child
// that dies.
func (r *Rig) Measure(ctx context.Context, s Series, watch func(Progress)) ([]Trial, error) {
	if watch == nil {
		watch = func(Progress) {}
	}
	p := Progress{Rounds: s.Rounds, Trials: s.Rounds * len(s.Plans) * len(s.Contestants)}
	trials := make([]Trial, 0, p.Trials)
	for round := range s.Rounds {
		for _, plan := range s.Plans {
			for i := range s.Contestants {
				c := s.Contestants[(i+round)%len(s.Contestants)]
				p.Round, p.Contestant, p.Plan = round, c.Name, plan
				t, err := r.watched(ctx, c, plan, p, watch)
				if err != nil {
					return nil, err
				}
				trials = append(trials, t)
				p.Trial++
			}
		}
	}
	return trials, nil
}

// watched is one trial of a series. It looks at the contestant's pipes once
// half the time is over.
func (r *Rig) watched(ctx context.Context, c *contestant.Contestant, plan load.Plan, p Progress, watch func(Progress)) (Trial, error) {
	pipes := -1
	t, err := r.trial(ctx, c, plan, func(e load.Event) (err error) {
		if pipes < 0 && e.Result == nil && e.Elapsed >= plan.Duration/2 {
			pipes, err = c.Pipes()
		}
		p.Received, p.Elapsed, p.Result = e.Received, e.Elapsed, e.Result
		watch(p)
		return err
	})
	t.Round, t.Pipes = p.Round, pipes
	return t, err
}
