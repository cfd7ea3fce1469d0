// Package episode tells operators of conditions that come and go.
package episode

import (
	"sync"
	"time"
)

// quiet is how long a condition must be gone before it is told to be over. One
// that comes and goes is told of once.
const quiet = time.Second

// An Episode is a condition that an operator is told of when it begins, and when
// it is over. It is safe for concurrent use.
type Episode struct {
	over func() // tells that it is; called under mu

	mu      sync.Mutex
	told    bool
	on      bool
	stopped bool
	timer   *time.Timer // of the end; nil before the first
}

// New returns an episode that has not begun. over tells that it is over; it must not call
// the episode.
func New(over func()) *Episode { return &Episode{over: over} }

// Begin notes that the condition is there; tell tells of it, unless that was done.
func (e *Episode) Begin(tell func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.on = true
	if !e.told {
		e.told = true
		tell()
	}
}

// End notes that the condition is gone.
func (e *Episode) End() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.on = false
	switch {
	case e.stopped:
	case e.timer == nil:
		e.timer = time.AfterFunc(quiet, e.settle)
	default:
		e.timer.Reset(quiet)
	}
}

// settle tells that the episode is over, unless it is not.
func (e *Episode) settle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.told && !e.on && !e.stopped {
		e.told = false
		e.over()
	}
}

// Stop has nothing told of an end any more: who stops serving would tell of room that
// nobody is to have.
func (e *Episode) Stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = true
	if e.timer != nil {
		e.timer.Stop()
	}
}
