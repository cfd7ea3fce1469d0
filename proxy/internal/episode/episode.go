// Package episode reports conditions that come and go, once each.
package episode

import (
	"sync"
	"time"
)

// quiet is how long a condition must be gone before its end is reported. A condition that
// comes and goes is reported once.
const quiet = time.Second

// An Episode is a condition that reports its beginning and its end. It is safe for
// concurrent use.
type Episode struct {
	over func() // reports the end; called under mu

	mu       sync.Mutex
	reported bool
	on       bool
	stopped  bool
	timer    *time.Timer // of the end; nil before the first
}

// New returns an episode that has not begun. over reports its end; it must not call the
// episode.
func New(over func()) *Episode { return &Episode{over: over} }

// Begin notes that the condition is there, and calls tell unless it was reported.
func (e *Episode) Begin(tell func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.on = true
	if !e.reported {
		e.reported = true
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

// settle reports the end of the episode, if it is over.
func (e *Episode) settle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reported && !e.on && !e.stopped {
		e.reported = false
		e.over()
	}
}

// Stop prevents further reports of an end: a server that stops must not report room.
func (e *Episode) Stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = true
	if e.timer != nil {
		e.timer.Stop()
	}
}
