package worker

import (
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/relay"
)

// A blockingSessions is the clients that are on goroutines.
type blockingSessions struct {
	mu       sync.Mutex
	ring     Offloaded // around it, in the order in which they came
	number   int64     // of those that have come
	active   int64
	refusals Refusals
	canceled int64
	left     int64
	ended    Totals
	held     bytesByBinding // bytes not reported to meters yet; nil: they are reported at once
}

func (b *blockingSessions) init() { b.ring.next, b.ring.prev = &b.ring, &b.ring }

func (b *blockingSessions) add(h *Offloaded) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.prev, h.next = b.ring.prev, &b.ring
	h.prev.next, b.ring.prev = h, h
	b.active++
	b.number++
	h.number = b.number
}

// end takes one out, and returns its binding, and whether it was joined. left means that it
// has gone before that; err is why it was refused.
func (b *blockingSessions) end(h *Offloaded, r relay.Result, err error, left bool) (binding Binding, joined bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.next.prev, h.prev.next = h.prev, h.next
	b.active--
	joined = h.session != nil
	switch {
	case left:
		b.left++
	case joined && r.Reason == relay.ReasonCanceled, !joined && h.ctx.Err() != nil:
		b.canceled++
	case !joined:
		b.refusals[refusedOffLoop(err)]++
	}
	b.ended.Add(r)
	if binding, h.session = h.binding, nil; binding != nil {
		b.held.ended(binding, &r)
	}
	return binding, joined
}

// all returns those that match.
func (b *blockingSessions) all(match func(*Offloaded) bool) (found []*Offloaded) {
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
func (b *blockingSessions) cut(cause error) {
	for _, h := range b.all(func(*Offloaded) bool { return true }) {
		h.cut(cause)
	}
}

func (h *Offloaded) cut(cause error) {
	h.cancel(cause)
	b := h.sessions()
	b.mu.Lock()
	session := h.session
	b.mu.Unlock()
	if session != nil {
		session.Cut(cause)
	}
}

// flush reports to the meters the bytes held back, and holds nothing back any more.
func (b *blockingSessions) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held.report()
	b.held = nil
}

// summary returns their counters so far. If running is not nil their bytes are added to it,
// and meters do not get those of sessions that end from now on.
func (b *blockingSessions) summary(running bytesByBinding) Summary {
	b.mu.Lock()
	defer b.mu.Unlock()
	if running != nil && b.held == nil {
		b.held = make(bytesByBinding)
	}
	sum := Summary{Active: b.active, Canceled: b.canceled, Left: b.left, Totals: b.ended}
	sum.Refusals = b.refusals
	for _, n := range b.refusals {
		sum.Refused += n
	}
	for h := b.ring.next; h != &b.ring; h = h.next {
		if h.session != nil {
			r := h.session.Result()
			sum.Totals.Add(r)
			if running != nil && h.binding != nil {
				running.add(h.binding, bytesOf(&r))
			}
		}
	}
	return sum
}

// sample returns what is known of a joined session's waits.
func (h *Offloaded) sample() *verdict.Sample {
	r, legs := h.session.Result(), h.session.Legs()
	r.Legs = &legs
	s := verdict.OfResult(&r, !h.TCP, strings.HasPrefix(h.endpoint, "unix:"), -1)
	return &s
}

// list returns those of their sessions that a query selects.
func (b *blockingSessions) list(q *Query) (sessions []Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := b.ring.next; h != &b.ring; h = h.next {
		s := h.describe()
		if !q.takes(&s) || !q.takesSource(&s) || !q.takesEndpoint(&s) || !q.accepts(&s) {
			continue
		}
		if q.Sample && h.session != nil {
			s.Sample = h.sample()
		}
		sessions = append(sessions, s)
	}
	return sessions
}

// describe returns its session. The caller holds the book's mu.
func (h *Offloaded) describe() Session {
	s := Session{
		ID: ID{onGoroutines, h.number, h.began.UnixNano()}, Client: h.name, Source: h.from, Listener: h.serving.socket.Name, Loop: -1, Idle: -1,
		State: Dialing, Age: time.Since(h.began), Began: h.began.UnixNano(), Endpoint: h.endpoint,
	}
	if h.session != nil {
		s.SetResult(h.session.Result())
		if idle, known := h.session.Idle(); known {
			s.Idle = idle
		}
	}
	s.setBinding(h.binding)
	return s
}
