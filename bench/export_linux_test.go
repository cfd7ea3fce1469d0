package bench

import (
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/report"
)

var Spliced = spliced

// Grown is what a session's slab comes to that was so much without it, with it,
// and without it again.
func Grown(before, with, after int64) (*report.Idle, string) {
	r := &rest{c: new(contestant.Contestant), sessions: 1, before: held{slab: before}, with: held{slab: with}, after: held{slab: after}}
	return r.grown()
}
