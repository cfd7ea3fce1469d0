package bench

import (
	"context"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/report"
)

var Spliced = spliced

// Trial is trial.
func (r *Rig) Trial(ctx context.Context, c *contestant.Contestant, plan load.Plan, watch func(load.Event) error) (Trial, error) {
	return r.trial(ctx, c, plan, watch)
}

// Account is the newest account of c, nil if it keeps none.
func (r *Rig) Account(c *contestant.Contestant) *contestant.Account { return r.accounts[c] }

// Grown returns the figures of a session with these readings of the slab:
// before it, with it, and after it.
func Grown(before, with, after int64) (*report.Idle, string) {
	r := &rest{c: new(contestant.Contestant), sessions: 1, before: held{slab: before}, with: held{slab: with}, after: held{slab: after}}
	return r.grown()
}
