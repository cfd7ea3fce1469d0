package health

import (
	"sync/atomic"
	"time"
)

// RetryBudgetConfig configures a [RetryBudget].
type RetryBudgetConfig struct {
	// Ratio is the number of retries allowed within Window for each connection begun in it; 0:
	// no retries at all.
	Ratio float64
	// Floor is the number of retries allowed within Window in any case, unless Ratio is 0, so
	// that little traffic is retried at all.
	Floor  int
	Window time.Duration
}

// A RetryBudget bounds retries, so that they do not overload a failing upstream. It is safe
// for concurrent use, never waits, and allocates nothing. A nil *RetryBudget grants
// everything.
type RetryBudget struct {
	cfg    atomic.Pointer[RetryBudgetConfig]
	window *window
	denied atomic.Int64
}

// NewRetryBudget returns a RetryBudget.
func NewRetryBudget(cfg *RetryBudgetConfig) *RetryBudget {
	b := &RetryBudget{window: newWindow(cfg.Window)}
	b.Configure(cfg)
	return b
}

// Configure replaces Ratio and Floor; Window stays as it was.
func (b *RetryBudget) Configure(cfg *RetryBudgetConfig) { b.cfg.Store(cfg) }

// Began counts a connection: one client, however often it is retried.
func (b *RetryBudget) Began(now int64) {
	if b != nil {
		b.window.add(now, false)
	}
}

// Retry takes a retry, if the budget has one.
func (b *RetryBudget) Retry(now int64) bool {
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

// Repay gives back a retry that has found an endpoint: the budget bounds only failed attempts.
func (b *RetryBudget) Repay(now int64) {
	if b != nil {
		b.window.forgive(now)
	}
}

// Denied returns the number of retries that were not granted.
func (b *RetryBudget) Denied() int64 {
	if b == nil {
		return 0
	}
	return b.denied.Load()
}
