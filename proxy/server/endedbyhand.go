package server

import (
	"sync"

	"github.com/penstock/penstock/proxy/internal/worker"
)

// endedByHand are the sessions that requests to end sessions have ended, while any is under way: another one that
// finds a session gone knows from it why.
type endedByHand struct {
	// turn is held while a request asks the loops: what one has ended is noted before another one is answered.
	turn sync.Mutex

	mu       sync.Mutex
	requests int // that are under way, or select their sessions
	ids      map[worker.ID]struct{}
}

// begin is called before a request selects sessions.
func (e *endedByHand) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests++
}

// finish is called once for each begin.
func (e *endedByHand) finish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.requests--; e.requests == 0 {
		e.ids = nil
	}
}

// note notes that a session was ended, and reports whether it had not been before.
func (e *endedByHand) note(id worker.ID) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ids == nil {
		e.ids = make(map[worker.ID]struct{})
	}
	before := len(e.ids)
	e.ids[id] = struct{}{}
	return len(e.ids) > before
}

// has reports whether a request has ended a session.
func (e *endedByHand) has(id worker.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, is := e.ids[id]
	return is
}
