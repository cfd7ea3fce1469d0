package worker

import (
	"sync"
	"sync/atomic"
)

// A connLimit says whether more clients may be accepted, to all workers.
type connLimit struct {
	max      atomic.Int64
	active   atomic.Int64 // clients that are served
	holds    atomic.Int64 // of them, those that lack a descriptor: no other client may get one
	full     atomic.Bool  // the limit was reached, and workers wait for room; written under mu
	mu       sync.Mutex
	reported bool            // the last argument of onFull; under mu
	onFull   func(full bool) // called under mu
}

// acquire takes one of the places, and reports whether there was one. The caller that takes
// the last one, or gets none, calls markFull.
func (g *connLimit) acquire() bool {
	n := g.active.Add(1)
	if n > g.max.Load() {
		g.active.Add(-1)
		return false
	}
	return true
}

// release gives a place back.
func (g *connLimit) release() { g.active.Add(-1) }

// adopt takes a place for a client that is here already, also beyond the limit.
func (g *connLimit) adopt() {
	g.active.Add(1)
	g.markFull()
}

// markFull notes that there is no room, if that is so, and reports it. It looks for room after
// it has stored full, and a release looks at full after that, both sequentially consistent: so
// one of them sees the other, and the waiting worker is woken or needs not wait.
func (g *connLimit) markFull() bool {
	if g.active.Load() < g.max.Load() {
		return false
	}
	g.set(true) // which looks under mu: a full that is about to be false would not do
	return g.active.Load() >= g.max.Load()
}

// markFree notes that there is room again, if that is so, and reports whether that is new. The
// caller calls notify once the clients in accept queues have had their chance.
func (g *connLimit) markFree() bool { return g.full.Load() && g.set(false) }

// set changes full. That it is true is reported at once; that it is not, only by notify: as
// long as clients wait, each one that leaves makes room for the next.
func (g *connLimit) set(full bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if full == g.full.Load() || !full && g.active.Load() >= g.max.Load() {
		return false
	}
	g.full.Store(full)
	if full {
		g.report(true)
	}
	return true
}

// notify reports that there is room, unless there is none any more.
func (g *connLimit) notify() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.full.Load() {
		g.report(false)
	}
}

func (g *connLimit) report(full bool) {
	if full != g.reported {
		g.reported = full
		g.onFull(full)
	}
}

// room reports whether a further client may be accepted.
func (g *connLimit) room() bool { return g.holds.Load() == 0 && g.active.Load() < g.max.Load() }
