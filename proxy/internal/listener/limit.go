package listener

import (
	"context"
	"sync"
)

// A Limit is how many connections the listeners that share it serve at once. It
// is safe for concurrent use.
type Limit struct {
	slots chan struct{} // one element for each connection served

	mu    sync.Mutex
	freed chan struct{} // closed by the next release; nil when no listener waits
}

// NewLimit returns a Limit of n connections, at least one.
func NewLimit(n int) *Limit {
	return &Limit{slots: make(chan struct{}, max(n, 1))}
}

// acquire takes a slot, as soon as there is one. It reports false if ctx ended
// first.
func (l *Limit) acquire(ctx context.Context) bool {
	select {
	case l.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *Limit) release() {
	<-l.slots
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

// released returns a channel that is closed when a connection has ended.
func (l *Limit) released() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed == nil {
		l.freed = make(chan struct{})
	}
	return l.freed
}

// room waits until a slot is free, without taking it. It reports false if ctx ended first.
func (l *Limit) room(ctx context.Context) bool {
	if !l.acquire(ctx) {
		return false
	}
	<-l.slots // and not release: no descriptor was freed
	return true
}
