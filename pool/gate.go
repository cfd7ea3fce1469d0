package pool

import (
	"container/list"
	"context"
	"fmt"
	"sync"
)

// A gate is the places of a pool with MaxOpen. An item that is out has one, and so has the call
// that takes an item or makes it. A pool with a gate keeps its idle items behind one mutex, and
// makes an item only at a moment at which none is idle: then every item that is open has a place,
// the new one among them, so there are never more than MaxOpen.
//
// Callers without a place wait in a queue. A place, or an item with its place, goes to the first
// of them at once, and no newcomer can get in between.
type gate[T any] struct {
	mu     sync.Mutex
	free   int       // places; 0 while calls wait
	queue  list.List // of chan T with room for one: it gets an item, or is closed for a place without one
	waits  int64
	closed bool
}

// enter takes a place, and waits for it as long as ctx allows. ok: an item came with it.
func (g *gate[T]) enter(ctx context.Context) (x T, ok bool, err error) {
	if g.tryEnter() {
		return x, false, nil
	}
	ready, e := g.line()
	select {
	case x, ok = <-ready:
	case <-ctx.Done():
		if g.cancel(e) {
			return x, false, fmt.Errorf("penstock: pool: get: MaxOpen items are out: %w", context.Cause(ctx))
		}
		x, ok = <-ready
	}
	if !ok && g.shut() {
		return x, false, ErrClosed
	}
	return x, ok, nil
}

// tryEnter takes a place if one is free.
func (g *gate[T]) tryEnter() bool { return g.take(1) == 1 }

// take takes at most n places, and returns how many.
func (g *gate[T]) take(n int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n = min(n, g.free)
	g.free -= n
	return n
}

// line joins the queue, unless a place has become free meanwhile.
func (g *gate[T]) line() (<-chan T, *list.Element) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ready := make(chan T, 1)
	switch {
	case g.closed:
		close(ready)
	case g.free > 0:
		g.free--
		close(ready)
	default:
		g.waits++
		return ready, g.queue.PushBack(ready)
	}
	return ready, nil
}

// cancel leaves the queue, and reports whether the caller was still in it.
func (g *gate[T]) cancel(e *list.Element) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e == nil || e.Value == nil {
		return false
	}
	g.queue.Remove(e)
	return true
}

// first takes the first caller out of the queue. g.mu is held. It returns nil if none waits.
func (g *gate[T]) first() chan T {
	e := g.queue.Front()
	if e == nil {
		return nil
	}
	ready := g.queue.Remove(e).(chan T)
	e.Value = nil
	return ready
}

// hand gives an item and its place to the first caller in the queue, if there is one.
func (g *gate[T]) hand(x T) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ready := g.first()
	if ready != nil {
		ready <- x
	}
	return ready != nil
}

// leave gives a place back.
func (g *gate[T]) leave() { g.give(1) }

// give gives n places back.
func (g *gate[T]) give(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for ; n > 0; n-- {
		if ready := g.first(); ready != nil {
			close(ready)
		} else {
			g.free++
		}
	}
}

// close ends all waits.
func (g *gate[T]) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for ready := g.first(); ready != nil; ready = g.first() {
		close(ready)
	}
}

func (g *gate[T]) shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *gate[T]) waited() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waits
}
