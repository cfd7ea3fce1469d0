package core

import (
	"sync"
	"sync/atomic"
)

// A gate says whether more clients may be accepted, to all cores.
type gate struct {
	max    atomic.Int64
	active atomic.Int64 // clients that are served
	holds  atomic.Int64 // of them, those that lack a descriptor: nobody else may get one
	full   atomic.Bool  // the limit was reached, and cores wait for room; written under mu
	mu     sync.Mutex
	told   bool            // what tell was called with last; under mu
	tell   func(full bool) // called under mu
}

// acquire takes one of the places, and reports whether there was one. Who takes the
// last one, or gets none, shuts the gate.
func (g *gate) acquire() bool {
	n := g.active.Add(1)
	if n > g.max.Load() {
		g.active.Add(-1)
		return false
	}
	return true
}

// release gives a place back.
func (g *gate) release() { g.active.Add(-1) }

// shut notes that there is no room, if that is so, and reports it. Who shuts the
// gate looks for room after it has stored full, and who leaves room looks at full
// after that, both sequentially consistent: so one of them sees the other, and the
// one who waits is nudged or needs not wait.
func (g *gate) shut() bool {
	if g.active.Load() < g.max.Load() {
		return false
	}
	g.set(true) // which looks under mu: a full that is about to be false would not do
	return g.active.Load() >= g.max.Load()
}

// open notes that there is room again, if that is so, and reports whether that is new.
// Who did it calls settle once those that wait in accept queues have had their chance.
func (g *gate) open() bool { return g.full.Load() && g.set(false) }

// set changes full. That it is true is told at once; that it is not, only by settle: as
// long as clients wait, each one that leaves opens the gate for the next to shut it.
func (g *gate) set(full bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if full == g.full.Load() || !full && g.active.Load() >= g.max.Load() {
		return false
	}
	g.full.Store(full)
	if full {
		g.say(true)
	}
	return true
}

// settle tells that there is room, unless there is none any more.
func (g *gate) settle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.full.Load() {
		g.say(false)
	}
}

func (g *gate) say(full bool) {
	if full != g.told {
		g.told = full
		g.tell(full)
	}
}

// room reports whether a further client may be accepted.
func (g *gate) room() bool { return g.holds.Load() == 0 && g.active.Load() < g.max.Load() }
