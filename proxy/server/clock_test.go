package server_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/worker"
)

// A clock stands still: what is to be done after a time is done when the test says that the
// time is over.
type clock struct {
	t       *testing.T
	set     chan *alarm
	ringing chan *alarm // has the one in it that rings; those that it sets follow it
}

// An alarm is one time, and what is to be done after it.
type alarm struct {
	*time.Timer // that never ends; stopped when nothing is to be done any more
	of          *clock
	after       time.Duration
	ring        func()
	then        []*alarm // that it has set
}

// stopClock has a load balancer's times to drain be a test's from now on.
func stopClock(r *rig) *clock {
	c := &clock{t: r.T, set: make(chan *alarm, 100), ringing: make(chan *alarm, 1)}
	r.SetAfter(func(d time.Duration, f func()) *time.Timer {
		a := &alarm{Timer: time.AfterFunc(1000*time.Hour, func() {}), of: c, after: d, ring: f}
		select {
		case by := <-c.ringing:
			by.then = append(by.then, a)
			c.ringing <- by
		default:
			c.set <- a
		}
		return a.Timer
	})
	return c
}

// next waits for an alarm to be set, which has to be the first step of a drain within d.
func (c *clock) next(d time.Duration) *alarm {
	c.t.Helper()
	return c.any(worker.NewSpread(d).First)
}

// any waits for an alarm to be set, which has to be after one of these times.
func (c *clock) any(times ...time.Duration) *alarm {
	c.t.Helper()
	select {
	case a := <-c.set:
		if !slices.Contains(times, a.after) {
			c.t.Fatalf("something is to be done after %v, want one of %v", a.after, times)
		}
		return a
	case <-time.After(patience):
		c.t.Fatal("nothing is to be done after a time")
		return nil
	}
}

// step has the alarm's time be over, and returns those that are set because of it; false if
// it means nothing to anybody any more.
func (a *alarm) step() (then []*alarm, ok bool) {
	if !a.Stop() {
		return nil, false
	}
	a.of.ringing <- a
	a.ring()
	<-a.of.ringing
	return a.then, true
}

// over has the alarm's time be over, and that of all that is set because of it, and reports
// whether that means anything to anybody.
func (a *alarm) over() bool {
	then, ok := a.step()
	for _, next := range then {
		next.over()
	}
	return ok
}
