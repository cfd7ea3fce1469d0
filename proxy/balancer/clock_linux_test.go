package balancer_test

import (
	"testing"
	"time"
)

// A clock stands still: what is to be done after a time is done when the test says that the
// time is over.
type clock struct {
	t   *testing.T
	set chan *alarm
}

// An alarm is one time, and what is to be done after it.
type alarm struct {
	*time.Timer // that never ends; stopped when nothing is to be done any more
	after       time.Duration
	ring        func()
}

// stopClock has a load balancer's times to drain be a test's from now on.
func stopClock(r *rig) *clock {
	c := &clock{t: r.T, set: make(chan *alarm, 100)}
	r.SetAfter(func(d time.Duration, f func()) *time.Timer {
		a := &alarm{Timer: time.AfterFunc(1000*time.Hour, func() {}), after: d, ring: f}
		c.set <- a
		return a.Timer
	})
	return c
}

// next waits for an alarm to be set, which has to be after d.
func (c *clock) next(d time.Duration) *alarm {
	c.t.Helper()
	select {
	case a := <-c.set:
		if a.after != d {
			c.t.Fatalf("something is to be done after %v, want %v", a.after, d)
		}
		return a
	case <-time.After(patience):
		c.t.Fatal("nothing is to be done after a time")
		return nil
	}
}

// over has the alarm's time be over, and reports whether that means anything to anybody.
func (a *alarm) over() bool {
	if !a.Stop() {
		return false
	}
	a.ring()
	return true
}
