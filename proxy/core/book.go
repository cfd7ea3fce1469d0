//go:build linux

package core

import (
	"sync"
	"time"

	"github.com/penstock/penstock/relay"
)

// A book is the clients that are on goroutines.
type book struct {
	mu       sync.Mutex
	ring     Handed // around it, in the order in which they came
	active   int64
	refused  int64
	canceled int64
	ended    Totals
	held     tally // what meters are not told yet; nil: they are told at once
}

func (b *book) init() { b.ring.next, b.ring.prev = &b.ring, &b.ring }

func (b *book) add(h *Handed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.prev, h.next = b.ring.prev, &b.ring
	h.prev.next, b.ring.prev = h, h
	b.active++
}

// end takes one out, and returns what it was bound to, and whether it was joined. left says
// that it has gone before that.
func (b *book) end(h *Handed, r relay.Result, left bool) (bond Bond, joined bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.next.prev, h.prev.next = h.prev, h.next
	b.active--
	joined = h.session != nil
	switch {
	case left:
	case joined && r.Reason == relay.ReasonCanceled, !joined && h.ctx.Err() != nil:
		b.canceled++
	case !joined:
		b.refused++
	}
	b.ended.Add(r)
	if bond, h.session = h.bond, nil; bond != nil {
		b.held.ended(bond, &r)
	}
	return bond, joined
}

// all returns those that match.
func (b *book) all(match func(*Handed) bool) (found []*Handed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := b.ring.next; h != &b.ring; h = h.next {
		if match(h) {
			found = append(found, h)
		}
	}
	return found
}

// cut ends all of them.
func (b *book) cut(cause error) {
	for _, h := range b.all(func(*Handed) bool { return true }) {
		h.cut(cause)
	}
}

func (h *Handed) cut(cause error) {
	h.cancel(cause)
	b := h.book()
	b.mu.Lock()
	session := h.session
	b.mu.Unlock()
	if session != nil {
		session.Cut(cause)
	}
}

// tell tells the meters what was held back, and holds nothing back any more.
func (b *book) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held.tell()
	b.held = nil
}

// summary is what they have done so far. If running is not nil what they have moved is added
// to it, and meters are not told of what ends from now on.
func (b *book) summary(running tally) Summary {
	b.mu.Lock()
	defer b.mu.Unlock()
	if running != nil && b.held == nil {
		b.held = make(tally)
	}
	sum := Summary{Active: b.active, Refused: b.refused, Canceled: b.canceled, Totals: b.ended}
	sum.Refusals[RefusedOffLoop] = b.refused
	for h := b.ring.next; h != &b.ring; h = h.next {
		if h.session != nil {
			r := h.session.Result()
			sum.Totals.Add(r)
			if running != nil && h.bond != nil {
				running.add(h.bond, bytesOf(&r))
			}
		}
	}
	return sum
}

// list says what is known of them.
func (b *book) list() (sessions []Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := b.ring.next; h != &b.ring; h = h.next {
		s := Session{
			Client: h.name, Listener: h.serving.socket.Name, Loop: -1, Idle: -1,
			State: Dialing, Age: time.Since(h.began), Endpoint: h.endpoint,
		}
		if h.session != nil {
			s.Told(h.session.Result())
			if idle, known := h.session.Idle(); known {
				s.Idle = idle
			}
		}
		s.bound(h.bond)
		sessions = append(sessions, s)
	}
	return sessions
}
