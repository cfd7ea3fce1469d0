package listener

import (
	"context"
	"sync"
)

// A Limit is how many connections the listeners that share it serve at once. It
// is safe for concurrent use.
type Limit struct {
	slots chan struct{} // one element for each connection served

	mu      sync.Mutex
	freed   chan struct{} // closed by the next release; nil when nobody waits
	holds   int
	held    chan struct{} // closed when holds is 0 again; nil while it is
	waiting int           // listeners that wait for a slot
	tell    func(full bool)
}

// NewLimit returns a Limit of n connections, at least one.
func NewLimit(n int) *Limit {
	return &Limit{slots: make(chan struct{}, max(n, 1))}
}

// Active returns how many connections are being served.
func (l *Limit) Active() int { return len(l.slots) }

// Max returns how many there may be.
func (l *Limit) Max() int { return cap(l.slots) }

// Tell makes the limit call f with true when a listener begins to wait for room,
// and with false when none does any more. It is called before the limit is used;
// f must not block, nor use the limit.
func (l *Limit) Tell(f func(full bool)) { l.tell = f }

// acquire takes a slot, as soon as there is one. It reports false if ctx ended
// first.
func (l *Limit) acquire(ctx context.Context) bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
	}
	l.wait(1)
	defer l.wait(-1)
	select {
	case l.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// wait notes that n more listeners wait for a slot.
func (l *Limit) wait(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.waiting > 0
	l.waiting += n
	if now := l.waiting > 0; now != before && l.tell != nil {
		l.tell(now)
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

// Released returns a channel that is closed when a connection has ended.
func (l *Limit) Released() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed == nil {
		l.freed = make(chan struct{})
	}
	return l.freed
}

// Hold keeps the listeners from accepting until resume is called, which must be
// done once. Who serves a connection calls it while that lacks a descriptor: the
// next to be free is not for one more connection.
func (l *Limit) Hold() (resume func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds++; l.holds == 1 {
		l.held = make(chan struct{})
	}
	return l.resume
}

func (l *Limit) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds--; l.holds == 0 {
		close(l.held)
		l.held = nil
	}
}

// holding returns a channel that is closed when accepting is not held any more,
// or nil if it is not now.
func (l *Limit) holding() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// room waits until a slot is free, without taking it, and nobody holds. It
// reports false if ctx ended first.
func (l *Limit) room(ctx context.Context) bool {
	for held := l.holding(); held != nil; held = l.holding() {
		select {
		case <-held:
		case <-ctx.Done():
			return false
		}
	}
	if !l.acquire(ctx) {
		return false
	}
	<-l.slots // and not release: no descriptor was freed
	return true
}
