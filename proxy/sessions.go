package proxy

import (
	"net"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/source"
	"github.com/penstock/penstock/relay"
)

// sessions is the book of what happened to connections. A session is counted
// from the list of those that are served while it runs, and in ended afterwards; it
// moves from one to the other under mu, so that no summary counts it twice or not at all.
type sessions struct {
	mu       sync.Mutex
	conns    Connections
	refusals core.Refusals
	now      served // the head of a ring of those that are served, in the order in which they came
	came     uint64 // how many ever have
	ended    core.Totals
	canceled int64 // sessions that were cut
}

// A served is a client that is being served; or a mark in the ring of those, which has
// none. What is not said to be anybody's is under the book's mu.
type served struct {
	next, prev *served
	number     uint64         // of those that came
	client     net.Conn       // anybody's to ask for its address; nil for a mark
	accepted   time.Time      // anybody's
	endpoint   net.Conn       // nil until it is joined
	session    *relay.Session // nil until it is joined
}

// join puts s behind another one.
func (s *served) join(behind *served) {
	s.prev, s.next = behind, behind.next
	s.prev.next, s.next.prev = s, s
}

func (s *served) leave() {
	s.prev.next, s.next.prev = s.next, s.prev
	s.prev, s.next = nil, nil
}

// ring returns the head of the ring.
func (b *sessions) ring() *served {
	if b.now.next == nil {
		b.now.next, b.now.prev = &b.now, &b.now
	}
	return &b.now
}

func (b *sessions) accept(client net.Conn) *served {
	s := &served{client: client, accepted: time.Now()}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns.Accepted++
	b.conns.Active++
	b.came++
	s.number = b.came
	s.join(b.ring().prev)
	return s
}

// refuse notes the end of a connection that no target took, or of which it is not known where
// it comes from, or that was cut before it was joined.
func (b *sessions) refuse(s *served, cause error, cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.leave()
	b.conns.Active--
	switch {
	case cut:
		b.canceled++
		return
	case cause == source.ErrUnknown:
		b.refusals[core.RefusedNoSource]++
	default:
		b.refusals[core.RefusedByTargets]++
	}
	b.conns.Refused++
}

func (b *sessions) join(s *served, endpoint net.Conn, session *relay.Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.endpoint, s.session = endpoint, session
}

func (b *sessions) end(s *served, r relay.Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.leave()
	b.conns.Active--
	b.ended.Add(r)
	if r.Reason == relay.ReasonCanceled {
		b.canceled++
	}
}

// live returns the sessions that have been started. mu is held.
func (b *sessions) live() []*relay.Session {
	var live []*relay.Session
	for s := b.ring().next; s != &b.now; s = s.next {
		if s.session != nil {
			live = append(live, s.session)
		}
	}
	return live
}

// cutAll cuts the sessions that have been started.
func (b *sessions) cutAll(cause error) { b.cutSome(func() bool { return true }, cause) }

// cutSome cuts those of them that are chosen.
func (b *sessions) cutSome(chosen func() bool, cause error) {
	b.mu.Lock()
	live := b.live()
	b.mu.Unlock()
	for _, s := range live {
		if chosen() {
			s.Cut(cause)
		}
	}
}

func (b *sessions) active() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conns.Active
}

func (b *sessions) summary() core.Summary {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := core.Summary{
		Accepted: b.conns.Accepted, Active: b.conns.Active, Refused: b.conns.Refused, Canceled: b.canceled, Refusals: b.refusals, Totals: b.ended,
	}
	for s := b.ring().next; s != &b.now; s = s.next {
		if s.session != nil {
			sum.Totals.Add(s.session.Result())
		}
	}
	return sum
}
