package pipe

import "time"

// Invariants is whether this is a build with that tag.
const Invariants = invariants

// Budget is the budget, for the model test.
type Budget struct{ *budget }

func NewBudget(line, maxPipes int64, now func() time.Time) *Budget {
	return &Budget{newBudget(line, maxPipes, now)}
}

func (b *Budget) Take(pages int64) bool { return b.take(cost(pages)) }
func (b *Budget) Give(pages int64)      { b.give(cost(pages)) }
func (b *Budget) Deny(left int64)       { b.deny(left) }
func (b *Budget) Allow()                { b.allow() }
func (b *Budget) Limit() int64          { return b.limit.Load() }
func (b *Budget) Large() int64          { return b.large.Load() }
func (b *Budget) Used() int64           { return b.used.Load() }

func cost(pages int64) charge { return charge{pages, pages > slots} }

func (pl *Pool) Recall(pages int64, large bool) bool { return pl.recall(pages, large) }
