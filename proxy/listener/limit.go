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
	freed chan struct{} // closed by the next release; nil when nobody waits
}

// NewLimit returns a Limit of n connections, at least one.
func NewLimit(n int) *Limit {
	return &Limit{slots: make(chan struct{}, max(n, 1))}
}

// Active returns how many connections are being served.
func (l *Limit) Active() int { return len(l.slots) }

// Max returns how many there may be.
func (l *Limit) Max() int { return cap(l.slots) }

func (l *Limit) acquire() { l.slots <- struct{}{} }

func (l *Limit) release() {
	<-l.slots
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

// room waits until a slot is free, without taking it, and reports false if ctx
// ended first.
func (l *Limit) room(ctx context.Context) bool {
	select {
	case l.slots <- struct{}{}:
		<-l.slots // and not release: no descriptor was freed
		return true
	case <-ctx.Done():
		return false
	}
}

// onRelease returns a channel that is closed when a connection has ended.
func (l *Limit) onRelease() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed == nil {
		l.freed = make(chan struct{})
	}
	return l.freed
}
