package discovery_test

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// patience is the limit for events that are soon on a machine that is not busy.
const patience = 30 * time.Second

// manual is a clock that stands still until it is moved.
type manual struct {
	mu    sync.Mutex
	now   time.Time
	waits []*wait
	asked chan time.Duration // the durations of the calls of After
}

type wait struct {
	until time.Time
	tick  chan time.Time
}

func newManual() *manual {
	return &manual{now: time.Unix(1_000_000, 0), asked: make(chan time.Duration, 1000)}
}

func (c *manual) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manual) After(d time.Duration) (<-chan time.Time, func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &wait{c.now.Add(d), make(chan time.Time, 1)}
	c.waits = append(c.waits, w)
	c.fire()
	c.asked <- d
	return w.tick, func() bool { return c.drop(w) }
}

func (c *manual) drop(w *wait) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.waits)
	c.waits = slices.DeleteFunc(c.waits, func(o *wait) bool { return o == w })
	return len(c.waits) < before
}

// fire wakes the waits that are over; c.mu is held.
func (c *manual) fire() {
	c.waits = slices.DeleteFunc(c.waits, func(w *wait) bool {
		if w.until.After(c.now) {
			return false
		}
		w.tick <- c.now
		return true
	})
}

// pass lets d pass.
func (c *manual) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.fire()
}

// pause waits until a goroutine waits for the clock, and returns for how long.
func (c *manual) pause(t *testing.T) time.Duration {
	t.Helper()
	select {
	case d := <-c.asked:
		return d
	case <-time.After(patience):
		t.Fatal("no goroutine waits for the clock")
		return 0
	}
}
