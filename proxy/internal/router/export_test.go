package router

import (
	"crypto/tls"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A Queue and its Waiter are queue and waiter, for a model to be held against.
type (
	Queue  struct{ q queue }
	Waiter struct{ w waiter }
)

func NewQueue(places *Places) *Queue { return &Queue{queue{places: places}} }

func (q *Queue) Join(w *Waiter, waker worker.Waker, from health.Source, most, now int64) bool {
	return q.q.join(&w.w, waker, from, most, now)
}

func (q *Queue) Rejoin(w *Waiter, waker worker.Waker, from health.Source, since int64) (first bool) {
	return q.q.rejoin(&w.w, waker, from, since)
}
func (q *Queue) Has(w *Waiter) bool  { return q.q.has(&w.w) }
func (q *Queue) Next()               { q.q.next() }
func (q *Queue) Turn(w *Waiter) bool { return q.q.turnOf(&w.w) }
func (q *Queue) Stay(w *Waiter) bool { return q.q.stay(&w.w, true) }
func (q *Queue) Leave(w *Waiter)     { q.q.leave(&w.w) }
func (q *Queue) Waiting() int        { return int(q.q.waiting.Load()) }

// NewSearch returns a search as package core has one.
func (l *Listener) NewSearch() *Search { return &Search{listener: l} }

func (s *Search) Endpoint() *Endpoint { return s.endpoint }

// A Sample is a sample.
type Sample struct{ s sample }

func (s *Sample) Take(now int64) bool { return s.s.take(now) }

// NewWaitingSearch returns a search for an endpoint of a view, which signals on Woken that it has
// to look again.
func NewWaitingSearch(l *Listener, snap *UpstreamSnapshot) *Search {
	return (&Offloaded{Listener: l, way: way{snapshot: snap}}).NewSearch()
}

// NewSecureSearch is NewWaitingSearch for a client whose TLS ends here, and has negotiated a protocol.
func NewSecureSearch(l *Listener, snap *UpstreamSnapshot, protocol string) *Search {
	return (&Offloaded{Listener: l, way: way{snapshot: snap}, over: new(tlsterm.Conn), tls: tls.ConnectionState{NegotiatedProtocol: protocol}}).NewSearch()
}

func (e *Endpoint) Judge() *health.OutlierMonitor { return e.monitor.Load() }

func FirstByte(of worker.Binding) { of.(*binding).limits.FirstByteCame(0, false) }

// Asked reports whether a client that waits for room is to look for it.
func (u *Upstream) Asked() bool {
	u.queue.mu.Lock()
	defer u.queue.mu.Unlock()
	return u.queue.turn != nil
}
