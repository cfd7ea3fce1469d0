package main

import (
	"context"
	"sync"
	"time"
)

// A leaving is whether a process is about to drain, or drains, and since when it does.
type leaving struct {
	mu     sync.Mutex
	begun  bool
	drains time.Time
}

// begin notes that the process leaves, and drains after a time.
func (l *leaving) begin(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun, l.drains = true, time.Now().Add(after)
}

// get reports whether the process leaves, and when it drains.
func (l *leaving) get() (drains time.Time, leaves bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drains, l.begun
}

// leave begins the end of the process: it is not ready, and no configuration is changed any more. For the
// delay, unless serving ends, it still accepts clients. After it the process drains. Its status can be queried
// until a successor wants its admin socket. A successor can have the address of the metrics at once then.
func (r *daemon) leave(serving context.Context) {
	r.notify(r.notifier.Stopping(r.drainDelay + r.options.DrainTimeout + 2*finalFlush))
	r.leaves.begin(r.drainDelay)
	r.keeper.Close()
	r.closeState()
	if r.drainDelay > 0 {
		r.log.Info("not ready any more, and accepting until the drain", "drain_delay", r.drainDelay.String())
		delay := time.NewTimer(r.drainDelay)
		defer delay.Stop()
		select {
		case <-delay.C:
		case <-serving.Done():
		}
	}
	r.scrape.Leave()
}

// alive returns when every loop has responded, or with an error when ctx ends. Before the load balancer is open
// there is none.
func (r *daemon) alive(ctx context.Context) error {
	select {
	case <-r.opened:
		return r.Alive(ctx)
	default:
		return nil
	}
}
