package health

import (
	"sync/atomic"
	"time"
)

// BudgetConfig sets up a [Budget].
type BudgetConfig struct {
	// Ratio is how many retries there may be within Window for each connection that was
	// begun in it; 0: none at all.
	Ratio float64
	// Floor is how many retries there may be within Window anyway, unless Ratio is 0, so
	// that little traffic is retried at all.
	Floor  int
	Window time.Duration
}

// A Budget bounds retries, so that an upstream that fails is not brought down by
// them. It is safe for concurrent use, never waits, and allocates nothing. A nil
// *Budget grants everything.
type Budget struct {
	cfg    atomic.Pointer[BudgetConfig]
	window *window
	denied atomic.Int64
}

// NewBudget returns a Budget.
func NewBudget(cfg *BudgetConfig) *Budget {
	b := &Budget{window: newWindow(cfg.Window)}
	b.Configure(cfg)
	return b
}

// Configure replaces Ratio and Floor; Window stays what it was.
func (b *Budget) Configure(cfg *BudgetConfig) { b.cfg.Store(cfg) }

// Began counts a connection: one client, whatever is retried for it.
func (b *Budget) Began(now int64) {
	if b != nil {
		b.window.add(now, false)
	}
}

// Retry takes a retry, if the budget has one.
func (b *Budget) Retry(now int64) bool {
	if b == nil {
		return true
	}
	cfg := b.cfg.Load()
	granted := cfg.Ratio > 0 && b.window.addFailed(now, func(ok, failed uint64) bool {
		return float64(failed+1) <= max(float64(cfg.Floor), cfg.Ratio*float64(ok)+1e-9)
	})
	if !granted {
		b.denied.Add(1)
	}
	return granted
}

// Repay gives back a retry that has found an endpoint: what the budget bounds is what is
// tried in vain.
func (b *Budget) Repay(now int64) {
	if b != nil {
		b.window.forgive(now)
	}
}

// Denied returns how many retries were not granted.
func (b *Budget) Denied() int64 {
	if b == nil {
		return 0
	}
	return b.denied.Load()
}
