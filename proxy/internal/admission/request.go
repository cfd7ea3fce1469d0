package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"
)

// A waiter is a request that waits for a place of its kind.
type waiter struct {
	conn *Conn
	kind Kind
	got  chan struct{} // closed when it has the place
}

// Known notes the rank of the client of a request. c may be nil.
func (c *Conn) Known(rank Rank) {
	if c == nil {
		return
	}
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.rank = rank
}

// Begin begins a request of a client that is [Conn.Known]. It returns nil when the request has a place, which it keeps
// until it is answered. The error wraps [ErrBusy], or is the cause of ctx. When another request needs the place, the
// context of this one ends with [ErrDisplaced]. A nil Conn always has a place.
func (c *Conn) Begin(ctx context.Context, kind Kind) error {
	if c == nil {
		return nil
	}
	l := c.limiter
	l.mu.Lock()
	c.begun = true
	w, leave, err := l.place(c, kind)
	l.mu.Unlock()
	for _, other := range leave {
		other.leave()
	}
	if w == nil || err != nil {
		return err
	}
	timer := time.NewTimer(bounds[kind].wait)
	defer timer.Stop()
	l.makeRoom()
	select {
	case <-w.got:
		return nil
	case <-timer.C:
		err = busy(kind)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.queued = false
	if i := slices.Index(l.waiters, w); i >= 0 {
		l.waiters = slices.Delete(l.waiters, i, i+1)
		return err
	}
	return nil // it has got the place at this moment
}

func busy(kind Kind) error { return fmt.Errorf("%s: %w", bounds[kind].full, ErrBusy) }

// place gives a request a place, or queues it for a place of its kind. leave are the requests that must make room. The
// caller holds mu.
func (l *Limiter) place(c *Conn, kind Kind) (w *waiter, leave []*Conn, err error) {
	if kind == Answer && c.rank == Own {
		kind = Short
	}
	full := kind != Short && l.count(func(o *Conn) bool { return o.kind == kind }) >= bounds[kind].most
	requests := l.count(func(o *Conn) bool { return o.running })
	if full {
		lesser := l.least(func(o *Conn) bool { return o.kind == kind })
		switch {
		case lesser != nil && lesser.rank < c.rank:
			leave, full = append(leave, lesser), false
			if lesser.running {
				requests--
			}
		case bounds[kind].wait == 0:
			return nil, nil, busy(kind)
		}
	}
	if requests >= l.requests(c.rank) {
		lesser := l.least(func(o *Conn) bool { return o.running && (o.kind.lasts() || o.queued) })
		if lesser == nil || lesser.rank > c.rank || lesser.rank == c.rank && kind != Short {
			return nil, nil, fmt.Errorf("the limit of requests is reached: %w", ErrBusy)
		}
		leave = append(leave, lesser)
	}
	for _, lesser := range leave {
		lesser.giveUp()
	}
	c.running = true
	if !full {
		c.kind = kind
		return nil, leave, nil
	}
	w = &waiter{c, kind, make(chan struct{})}
	l.waiters, c.queued = append(l.waiters, w), true
	return w, leave, nil
}

// giveUp takes the place away from a request that has to leave. The caller holds the limiter's mu.
func (c *Conn) giveUp() { c.running, c.queued, c.kind = false, false, Short }

// leave ends a request that has lost its place: it is answered with an error or, if its answer has begun, its connection is
// closed.
func (c *Conn) leave() {
	c.limiter.mu.Lock()
	end, answering := c.end, !c.busy
	c.limiter.mu.Unlock()
	if end != nil {
		end()
	}
	if answering {
		c.Close()
	}
}

// done ends a request. Its place goes to the request of the greatest rank that has waited for it longest.
func (c *Conn) done() {
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := c.kind
	c.giveUp()
	if kind == Short {
		return
	}
	next := -1
	for i, w := range l.waiters {
		if w.kind == kind && (next < 0 || w.conn.rank > l.waiters[next].conn.rank) {
			next = i
		}
	}
	if next < 0 {
		return
	}
	w := l.waiters[next]
	l.waiters = slices.Delete(l.waiters, next, next+1)
	w.conn.kind, w.conn.queued = kind, false
	close(w.got)
}

// connKey is the context key of a request's Conn.
type connKey struct{}

// WithConn is the ConnContext of a [net/http.Server].
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// Of returns the connection of a request, or nil if it did not come through a [Limiter].
func Of(r *http.Request) *Conn {
	c, _ := r.Context().Value(connKey{}).(*Conn)
	return c
}

// Handler answers requests only on connections that are still open. No request has a body. If a body is announced,
// the response does not wait for it; after the response the server waits for it as long as for anything else.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := Of(r)
		if c == nil {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		if !c.begin(func() { cancel(ErrDisplaced) }) {
			panic(http.ErrAbortHandler)
		}
		defer c.done()
		if r.Body != http.NoBody {
			_ = c.SetReadDeadline(time.Now().Add(graceTime)) // ignored: the connection may be closed
		}
		next.ServeHTTP(&answerWriter{w, c}, r.WithContext(ctx))
	})
}

// An answerWriter writes a response, and starts the wait for the client to read it.
type answerWriter struct {
	http.ResponseWriter
	conn *Conn
}

// Unwrap supports [http.ResponseController].
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *answerWriter) Write(p []byte) (int, error) {
	w.conn.answer()
	n, err := w.ResponseWriter.Write(p)
	w.conn.progress()
	return n, err
}

// Displaced reports whether a request has lost its place to another request.
func Displaced(r *http.Request) bool { return errors.Is(context.Cause(r.Context()), ErrDisplaced) }
