package server

import (
	"context"
	"sync"
	"time"
)

// The tasks of a server run outside its loops: functions that are called at a time, and goroutines, for which the server
// waits at its end.
type tasks struct {
	mu      sync.Mutex // the server's mu; it also guards the fields below
	closing bool       // the process drains or ends: it takes no more configurations, but its tasks go on
	timers  map[*time.Timer]*due
	after   func(time.Duration, func()) *time.Timer // time.AfterFunc, or the clock of a test

	watches sync.WaitGroup  // goroutines
	ended   context.Context // done when everything has ended
	end     context.CancelFunc
}

func (t *tasks) begin() {
	t.timers, t.after = make(map[*time.Timer]*due), time.AfterFunc
	t.ended, t.end = context.WithCancel(context.Background())
}

// stop cancels the scheduled calls, and waits for the goroutines. Its caller does not hold mu.
func (t *tasks) stop() {
	t.mu.Lock()
	t.closing = true
	for timer := range t.timers {
		timer.Stop()
	}
	t.end() // under mu: no task begins after it
	t.mu.Unlock()
	t.watches.Wait()
}

// runAfter calls f after a time on a goroutine of its own, unless everything ends before.
func (t *tasks) runAfter(d time.Duration, f func()) *time.Timer {
	return t.at(d, func() { t.goTracked(f) })
}

// A due is a function that is called at a time. The runtime keeps timers that were stopped for
// a while (runtime/time.go, timers.zombies), and the functions that they would have called; so
// the function is removed from them.
type due struct{ f func() } // nil: it was called off

// at calls f after a time, and holds the server's mu during the call.
func (t *tasks) at(d time.Duration, f func()) *time.Timer {
	var timer *time.Timer
	call := &due{f}
	timer = t.after(d, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.timers, timer)
		if call.f != nil && t.ended.Err() == nil {
			call.f()
		}
	})
	t.timers[timer] = call
	return timer
}

// cancelTimer prevents a call that at or runAfter has scheduled, unless it has begun. timer may be nil.
func (t *tasks) cancelTimer(timer *time.Timer) {
	if call := t.timers[timer]; call != nil {
		timer.Stop()
		call.f = nil
		delete(t.timers, timer)
	}
}

// goTracked calls f on a goroutine of its own, so that f may wait for loops, which must not be done under the server's mu.
func (t *tasks) goTracked(f func()) {
	if t.ended.Err() == nil {
		t.watches.Go(f)
	}
}

// wait returns a channel that gets a value after a time.
func (t *tasks) wait(d time.Duration) <-chan struct{} {
	over := make(chan struct{}, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.after(d, func() { over <- struct{}{} })
	return over
}

// pause waits by the server's timers, and returns false if ctx has ended.
func (t *tasks) pause(ctx context.Context, d time.Duration) bool {
	over := make(chan struct{})
	t.mu.Lock()
	timer := t.after(d, func() { close(over) })
	t.mu.Unlock()
	defer timer.Stop()
	select {
	case <-over:
		return true
	case <-ctx.Done():
		return false
	}
}

// A backlog takes items from any goroutine, such as a loop, and passes them to one goroutine that deals with them.
type backlog[T any] struct {
	mu   sync.Mutex
	list []T
	some chan struct{} // has a token while the list is not empty
}

func newBacklog[T any]() *backlog[T] { return &backlog[T]{some: make(chan struct{}, 1)} }

func (b *backlog[T]) add(one T) {
	b.mu.Lock()
	b.list = append(b.list, one)
	b.mu.Unlock()
	select {
	case b.some <- struct{}{}:
	default:
	}
}

// each calls deal with the new items, until ctx ends.
func (b *backlog[T]) each(ctx context.Context, deal func(list []T)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.some:
		}
		b.mu.Lock()
		list := b.list
		b.list = nil
		b.mu.Unlock()
		deal(list)
	}
}
