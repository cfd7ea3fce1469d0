package worker

import (
	"context"
	"errors"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/driver"
)

// Offloaded is a client that has left its loop for a goroutine of its own, because TLS ends or
// begins in this process. It keeps its place under the limits, is listed and counted, until
// [Offloaded.Rejoin], by which it goes back to its loop, or [Offloaded.End]: its owner calls one of them once.
type Offloaded struct {
	// Client is the client, which is not used again for another one.
	Client *Client

	fd     int // the client's socket, non-blocking and on no loop; owned until Conn or Close
	began  time.Time
	name   string
	from   source.Source
	number int64 // of all that ever left their loops; under blockingSessions.mu
	ctx    context.Context
	cancel context.CancelCauseFunc

	// Under blockingSessions.mu.
	session  *relay.Session // nil until it is joined
	binding  Binding
	endpoint string
}

// offload takes a client off its loop, to a goroutine of its own.
func (w *worker) offload(c *Client, to func(*Offloaded)) {
	h := w.takeOff(c)
	w.claim() // for the goroutine, which needs two descriptors and gives one back
	go to(h)
}

// takeOff takes a client off its loop.
func (w *worker) takeOff(c *Client) *Offloaded {
	n := c.conn
	if r := c.Record; r != nil {
		describe(r, c)
		learned(r, c)
		r.TLS = true
	}
	from := c.Source()
	h := &Offloaded{Client: c, fd: c.fd, began: time.Now(), name: from.String(), from: from}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	_ = w.loop.Detach(c.id)
	w.stop(c)
	c.conn = nil
	w.freeSlot(n, c.serving)
	w.group.handed.add(h)
	if w.canceled != nil {
		h.cancel(w.canceled)
	}
	return h
}

// Greeted reports whether a ClientHello of the client was read. If its TLS does not end here, its session must not run on goroutines:
// there is no gate for a second hello.
func (h *Offloaded) Greeted() bool { return h.Client.hello.size > 0 }

// Context ends when the client is cut; its cause says why. It has ended after End, too.
func (h *Offloaded) Context() context.Context { return h.ctx }

// Join passes the session that the client is joined by, which is going to be run with the
// limits, and the name of its endpoint, for lists. It is listed and cut with the others from
// then on. If the client was cut before, it is cut at once.
func (h *Offloaded) Join(session *relay.Session, limits *relay.Limits, endpoint string) {
	c, g := h.Client, h.group()
	if c.serving.service.Lane != LaneOff {
		g.stays[stayTLS].Add(1)
	}
	g.handed.mu.Lock()
	h.session, h.binding, h.endpoint = session, bindingOf(limits), endpoint
	g.handed.mu.Unlock()
	if r := c.Record; r != nil {
		r.Joined = g.cfg.Now()
		g.cfg.Host.Began(c.listening, h.binding, r)
	}
	if h.ctx.Err() != nil {
		session.Cut(context.Cause(h.ctx))
	}
}

func (h *Offloaded) group() *Group { return h.Client.worker.group }

// End is the end of the client, whose socket has been closed: of its session, with the result,
// or before that, with the cause for which it was refused and no result. Its [Binding] is
// notified, and its place is free.
func (h *Offloaded) End(r relay.Result, err error) { h.end(r, err, false) }

// Left is End for a client that has gone before it was joined, whose socket has been closed:
// it was not refused.
func (h *Offloaded) Left() { h.end(relay.Result{}, nil, true) }

func (h *Offloaded) end(r relay.Result, err error, left bool) {
	c, g := h.Client, h.group()
	canceled := h.ctx.Err() != nil
	binding, joined := g.handed.end(h, r, err, left)
	if !joined && err != nil {
		g.cfg.Host.Refused(c.listening, err)
	}
	if rec := c.Record; rec != nil {
		rec.Resume(g.cfg.Now())
		rec.Loop = -1
		switch {
		case joined:
		case left:
			rec.Outcome = record.Left
		case err != nil && canceled:
			rec.Outcome = record.Canceled
		case err != nil:
			rec.Outcome, rec.Refusal = record.Refused, refusedOffLoop(err).String()
		default:
			rec.Outcome = record.Responded
		}
	}
	e := ending{socket: c.listening, loop: c.worker.index, binding: binding, result: r, err: err, record: c.Record, unjoined: !joined}
	e.local = [2]bool{!c.tcp, strings.HasPrefix(h.endpoint, "unix:")}
	c.Record = nil
	g.observe(&e)
	h.cancel(context.Canceled)
	g.release(c.serving, c.admitted, c.AdmissionToken)
}

// Close closes the client's socket, if Conn has not made a connection of it.
func (h *Offloaded) Close() { closeSocket(h.fd) }

// Conn makes a connection of package net of the client's socket; the Client knows its addresses from then on. With an
// error it was closed.
func (h *Offloaded) Conn() (net.Conn, error) {
	h.Client.leave()
	c, err := loop.Give(h.fd)
	if early := h.Client.buffered; err == nil && len(early) > 0 {
		return relay.Prefixed(c, early), nil
	}
	return c, err
}

// A blockingSessions is the clients that are on goroutines.
type blockingSessions struct {
	mu       sync.Mutex
	clients  map[int64]*Offloaded // by number
	number   int64                // that have ever come
	refusals Refusals
	canceled int64
	left     int64
	ended    Totals
	held     bytesByBinding // bytes not reported to meters yet; nil: they are reported at once
}

func (b *blockingSessions) add(h *Offloaded) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.number++
	h.number = b.number
	b.clients[h.number] = h
}

// end takes one out, and returns its binding, and whether it was joined. left means that it
// has gone before that; err is why it was refused.
func (b *blockingSessions) end(h *Offloaded, r relay.Result, err error, left bool) (binding Binding, joined bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.clients, h.number)
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

// all returns the clients that match.
func (b *blockingSessions) all(match func(*Offloaded) bool) (found []*Offloaded) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.clients {
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
	b := &h.group().handed
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

// summary returns their counters so far. If running is not nil their bytes are added to it, and bindings do not get the bytes of
// sessions that end from now on.
func (b *blockingSessions) summary(running bytesByBinding) Summary {
	b.mu.Lock()
	defer b.mu.Unlock()
	if running != nil && b.held == nil {
		b.held = make(bytesByBinding)
	}
	sum := Summary{Active: int64(len(b.clients)), Canceled: b.canceled, Left: b.left, Totals: b.ended}
	sum.Refusals, sum.Refused = b.refusals, b.refusals.total()
	for _, h := range b.clients {
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
	s := verdict.OfResult(&r, !h.Client.tcp, strings.HasPrefix(h.endpoint, "unix:"), -1)
	return &s
}

// list returns the sessions that a query selects.
func (b *blockingSessions) list(q *Query) (sessions []Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(b.clients)) { // as they came
		h := b.clients[number]
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
		ID: ID{onGoroutines, h.number, h.began.UnixNano()}, Client: h.name, Source: h.from, Listener: h.Client.listening.Name, Loop: -1, Idle: -1,
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

// A Rejoin is what a client that was handed over brings back to its loop.
type Rejoin struct {
	// A and B are the sockets of the client and of its endpoint, on no loop, with TCP_NODELAY if they are of
	// TCP. Their IDs and events are the loop's to set.
	A, B relay.Socket
	// Early is the client's bytes that the endpoint has got already, A.Moved of them; nil: none.
	Early []byte
	// Search is asked by Reached, on the loop, and then for the session's mirror and rewriter.
	Search Search
	// Ended is called on the loop at the end of the session, before the client's place is free. It must not wait.
	Ended func()
}

// Rejoin begins the client's session on the loop that the client came from: it is counted, listed and cut there,
// and [Offloaded.End] must not be called. It returns when the session has begun, and may have ended. With an
// error it has not begun, and both sockets were reset; End is still to be called.
func (h *Offloaded) Rejoin(r *Rejoin) error {
	begun := make(chan error, 1)
	err := h.Client.worker.loop.Post(func() { begun <- h.Client.worker.rejoin(h, r) })
	if err == nil {
		select {
		case err = <-begun:
		case <-h.Client.worker.group.ended: // a loop has failed
			select {
			case err = <-begun:
			default:
				err = ErrEnding
				r.reset()
			}
		}
	} else {
		r.reset()
	}
	if err == nil {
		h.cancel(context.Canceled)
	}
	return err
}

// rejoin is Rejoin on the loop.
func (w *worker) rejoin(h *Offloaded, r *Rejoin) error {
	if w.canceled != nil {
		h.cancel(w.canceled)
	}
	c, n := h.Client, w.take()
	s := c.serving
	n.ref = &s.listenerRef
	limits, err := w.register(h, r, n)
	if err != nil {
		w.free(n)
		w.loop.Drop(r.A.ID)
		w.loop.Drop(r.B.ID)
		r.reset()
		return err
	}
	if limits == nil {
		limits = s.service.Limits
	}
	w.group.handed.back(h)
	w.active++
	w.load.Add(1)
	s.clients++
	w.note(n, c)
	n.admissionToken = c.AdmissionToken
	if rec := c.Record; rec != nil {
		c.Record = nil
		rec.Joined = w.loop.Now()
		n.ref = w.keep(rec, s, bindingOf(limits))
	}
	w.ends[n] = r.Ended
	m := w.mirror(r.Search, s, r.Early)
	r.A.Mirror = m.relay()
	if r.Search.Rewritten() != relay.SideNone {
		r.A, r.B = rewrite(r.Search, r.A, r.B)
	}
	if r.A.Layer == nil {
		r.A.Gate, r.A.Free = c.hello.gate(w, r.A.Moved, new(int32))
	}
	w.start(n, r.A, r.B, limits, m)
	return nil
}

// register has the loop watch both sockets, unless the client has been cut or may not go on.
func (w *worker) register(h *Offloaded, r *Rejoin, n *conn) (limits *relay.Limits, err error) {
	if h.ctx.Err() != nil {
		return nil, context.Cause(h.ctx)
	}
	var errA, errB error
	r.A.ID, errA = w.loop.Add(r.A.FD, whichClient, n)
	r.B.ID, errB = w.loop.Add(r.B.FD, whichEndpoint, n)
	if err := errors.Join(errA, errB); err != nil {
		return nil, err
	}
	return r.Search.Reached(w.loop.Now())
}

// reset resets both sockets.
func (r *Rejoin) reset() {
	for _, s := range []*relay.Socket{&r.A, &r.B} {
		if s.TCP {
			_ = sys.AbortOnClose(s.FD)
		}
		closeSocket(s.FD)
	}
}

// back takes out a client that has gone back to its loop.
func (b *blockingSessions) back(h *Offloaded) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.clients, h.number)
}

// A layer is a connection of a protocol such as TLS that a session on a loop can have.
type layer interface {
	driver.Layer
	// Beneath returns the connection over which it is spoken.
	Beneath() net.Conn
}

// TakeSockets takes a client's connection and its endpoint's out of the runtime's hands, for [Offloaded.Rejoin]:
// each a *net.TCPConn or *net.UnixConn, or one within [relay.Prefixed], or beneath a layer such as tlsterm.Conn,
// nothing of which is read or written meanwhile. It returns nil if that cannot be done, for want of a descriptor as a rule; then both are
// as they were.
func TakeSockets(client, endpoint net.Conn) *Rejoin {
	a, b := plainOf(client), plainOf(endpoint)
	if a == nil || b == nil {
		return nil
	}
	fdA, fdB := duplicate(a), duplicate(b)
	if fdA < 0 || fdB < 0 {
		for _, fd := range []int{fdA, fdB} {
			if fd >= 0 {
				closeSocket(fd)
			}
		}
		return nil
	}
	_, _ = a.Close(), b.Close() // which end their part in the runtime's poller
	return &Rejoin{A: socketOf(client, fdA), B: socketOf(endpoint, fdB)}
}

// A plain is a connection of package net.
type plain interface {
	net.Conn
	syscall.Conn
}

// plainOf returns the innermost connection, nil if that is none of package net.
func plainOf(c net.Conn) plain {
	for {
		switch inner := c.(type) {
		case *net.TCPConn:
			return inner
		case *net.UnixConn:
			return inner
		case layer:
			c = inner.Beneath()
		case interface{ NetConn() net.Conn }:
			c = inner.NetConn()
		default:
			return nil
		}
	}
}

// duplicate returns a descriptor of the caller's own, non-blocking as package net's are; negative: there is none.
func duplicate(c syscall.Conn) (fd int) {
	fd = -1
	raw, err := c.SyscallConn()
	if err != nil {
		return fd
	}
	_ = raw.Control(func(own uintptr) {
		if d, err := sys.Dup(int(own)); err == nil {
			fd = d
		}
	})
	return fd
}

// socketOf describes a descriptor of a connection, whose other bytes it takes.
func socketOf(c net.Conn, fd int) relay.Socket {
	s := relay.Socket{FD: fd}
	if l, ok := c.(layer); ok {
		s.Layer, c = l, l.Beneath()
	}
	if u, ok := c.(relay.Unwrapper); ok {
		_, s.Ahead, _ = u.RelayReader(context.Background(), math.MaxInt) // of package relay, which neither waits nor fails
	}
	_, s.TCP = plainOf(c).(*net.TCPConn)
	s.NoDelay = s.TCP // set by package net
	return s
}
