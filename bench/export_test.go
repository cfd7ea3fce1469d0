package bench

import (
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/report"
)

// Grown returns the figures of a session with these readings of the slab:
// before it, with it, and after it.
func Grown(before, with, after int64) (*report.Idle, string) {
	r := &rest{c: new(contestant.Contestant), sessions: 1, before: held{slab: before}, with: held{slab: with}, after: held{slab: after}}
	return r.grown()
}
