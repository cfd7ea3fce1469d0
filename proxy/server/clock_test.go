package server_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/worker"
)

// A clock stands still: a timer's function runs when the test declares its time over.
type clock struct {
	t       *testing.T
	set     chan *alarm
	ringing chan *alarm // holds the alarm that rings; the alarms it sets follow it
}

// An alarm is one timer and its function.
type alarm struct {
	*time.Timer // never fires; stopped when the function is no longer to run
	of          *clock
	after       time.Duration
	ring        func()
	then        []*alarm // the alarms it has set
}

// stopClock puts a load balancer's drain timers under a test's control from now on.
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

// next waits for an alarm to be set. It must be the first step of a drain within d.
func (c *clock) next(d time.Duration) *alarm {
	c.t.Helper()
	return c.any(worker.NewSpread(d).First)
}

// any waits for an alarm to be set. It must be set for one of these times.
func (c *clock) any(times ...time.Duration) *alarm {
	c.t.Helper()
	select {
	case a := <-c.set:
		if !slices.Contains(times, a.after) {
			c.t.Fatalf("a timer is set for %v, want one of %v", a.after, times)
		}
		return a
	case <-time.After(patience):
		c.t.Fatal("no timer is set")
		return nil
	}
}

// step declares the alarm's time over and returns the alarms it sets; ok is false if the alarm
// had been stopped.
func (a *alarm) step() (then []*alarm, ok bool) {
	if !a.Stop() {
		return nil, false
	}
	a.of.ringing <- a
	a.ring()
	<-a.of.ringing
	return a.then, true
}

// over declares the time of the alarm, and of all alarms set because of it, over. It reports
// whether the alarm was still active.
func (a *alarm) over() bool {
	then, ok := a.step()
	for _, next := range then {
		next.over()
	}
	return ok
}
