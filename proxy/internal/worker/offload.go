package worker

import (
	"context"
	"errors"
	"math"
	"net"
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
)

// Offloaded is a client that has left its loop for a goroutine of its own, because TLS ends or
// begins in this process. It keeps its place under the limits, is listed and counted, until
// [Offloaded.Rejoin], by which it goes back to its loop, or [Offloaded.End]: its owner calls one of them once.
type Offloaded struct {
	// FD is the client's socket, non-blocking and on no loop: the receiver's own, as is
	// made a connection of package net by Conn.
	FD  int
	TCP bool
	// Client is the known properties of it: its own copy. It asks FD for addresses, until
	// Conn.
	Client *Client
	// early is the bytes that were taken from it before.
	early []byte
	hello firstHello
	// Service is the one that it was accepted under.
	Service *Service

	worker     *worker // that it came from
	serving    *serving
	admitted   bool
	began      time.Time
	name       string
	from       source.Source
	number     int64          // among those that ever left their loops; of the book, under its mu
	record     *record.Record // owned; nil: none is kept
	ctx        context.Context
	cancel     context.CancelCauseFunc
	next, prev *Offloaded

	// Of the book, under its mu.
	session  *relay.Session // nil until it is joined
	binding  Binding
	endpoint string
}

// offload takes a client off its loop, to a goroutine of its own.
func (w *worker) offload(c *pendingClient, to func(*Offloaded)) {
	h := w.takeOff(c)
	w.fdReserve.Claim() // for the goroutine, which needs two descriptors and gives one back
	go to(h)
}

// takeOff takes a client off its loop.
func (w *worker) takeOff(c *pendingClient) *Offloaded {
	n, g, s, fd, id := c.conn, w.group, c.serving, c.conn.fd(), c.id
	client := c.client
	client.Header.TLVs = append([]byte(nil), client.Header.TLVs...)
	client.wakes = nil
	client.Record = w.takeRecord(c)
	h := &Offloaded{
		FD: fd, TCP: n.tcp(), Client: &client, early: c.buffered, hello: c.hello, Service: s.service, worker: w, serving: s, admitted: c.admitted,
		began: time.Now(), name: c.clientName(), from: client.Source(), record: client.Record,
	}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	_ = w.loop.Detach(id)
	w.freePending(c)
	w.freeSlot(n, s)
	g.handed.add(h)
	if w.canceled != nil {
		h.cancel(w.canceled)
	}
	return h
}

// Greeted reports whether a ClientHello of the client was read. If its TLS does not end here, its session must not run on goroutines:
// there is no gate for a second hello.
func (h *Offloaded) Greeted() bool { return h.hello.size > 0 }

// Context ends when the client is cut; its cause says why. It has ended after End, too.
func (h *Offloaded) Context() context.Context { return h.ctx }

// Join passes the session that the client is joined by, which is going to be run with the
// limits, and the name of its endpoint, for lists. It is listed and cut with the others from
// then on. If the client was cut before, it is cut at once.
func (h *Offloaded) Join(session *relay.Session, limits *relay.Limits, endpoint string) {
	if h.Service.Lane != LaneOff {
		h.worker.group.stays[stayTLS].Add(1)
	}
	b := h.sessions()
	b.mu.Lock()
	h.session, h.binding, h.endpoint = session, bindingOf(limits), endpoint
	b.mu.Unlock()
	if r := h.record; r != nil {
		r.Joined = h.worker.group.cfg.Now()
		h.worker.group.cfg.Host.Began(h.serving.socket, h.binding, r)
	}
	if h.ctx.Err() != nil {
		session.Cut(context.Cause(h.ctx))
	}
}

func (h *Offloaded) sessions() *blockingSessions { return &h.serving.socket.group.handed }

// End is the end of the client, whose socket has been closed: of its session, with the result,
// or before that, with the cause for which it was refused and no result. Its [Binding] is
// notified, and its place is free.
func (h *Offloaded) End(r relay.Result, err error) { h.end(r, err, false) }

// Left is End for a client that has gone before it was joined, whose socket has been closed:
// it was not refused.
func (h *Offloaded) Left() { h.end(relay.Result{}, nil, true) }

func (h *Offloaded) end(r relay.Result, err error, left bool) {
	g, b := h.serving.socket.group, h.sessions()
	canceled := h.ctx.Err() != nil
	binding, joined := b.end(h, r, err, left)
	if binding != nil {
		binding.Ended(r, err)
		countEnd(binding, h.worker.index, r, err)
	}
	h.cancel(context.Canceled)
	if !joined && err != nil {
		g.cfg.Host.Refused(h.serving.socket, err)
	}
	if joined {
		g.judge(binding, &r, !h.TCP, strings.HasPrefix(h.endpoint, "unix:"), h.record, nil)
	}
	if h.record != nil {
		h.recordEnd(binding, joined, left, canceled, r, err)
	}
	g.release(h.serving, h.admitted, h.Client.AdmissionToken)
}

// Close closes the client's socket, of which Conn has not made a connection.
func (h *Offloaded) Close() { closeSocket(h.FD) }

// Conn makes a connection of package net of the client's socket, which FD is not any
// more; the Client knows its addresses from then on. With an error it was closed.
func (h *Offloaded) Conn() (net.Conn, error) {
	h.Client.leave()
	c, err := loop.Give(h.FD)
	if err != nil || len(h.early) == 0 {
		return c, err
	}
	return relay.Prefixed(c, h.early), nil
}

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

// A Rejoin is what a client that was handed over brings back to its loop.
type Rejoin struct {
	// A and B are the sockets of the client and of its endpoint, on no loop, with TCP_NODELAY if they are of
	// TCP. Their IDs and events are the loop's to set.
	A, B relay.Socket
	// Early is the client's bytes that the endpoint has got already, A.Moved of them; nil: none.
	Early []byte
	// Reached is [Search.Reached].
	Reached func(now int64) (*relay.Limits, error)
	// Mirrorer is asked for the session's mirror, after Reached; nil: it has none.
	Mirrorer Mirrorer
	// Rewriting is asked for the session's Rewriter, after Reached; nil: it has none.
	Rewriting Rewriting
	// Ended is called on the loop at the end of the session, before the client's place is free. It must not wait.
	Ended func()
}

// Rejoin has the client's session run on the loop that the client came from: it is counted, listed and cut there,
// and [Offloaded.End] must not be called. It returns when the session has begun, and may have ended. With an
// error it has not begun, and both sockets were reset; End is still to be called.
func (h *Offloaded) Rejoin(r *Rejoin) error {
	begun := make(chan error, 1)
	err := h.worker.loop.Post(func() { begun <- h.worker.rejoin(h, r) })
	if err == nil {
		select {
		case err = <-begun:
		case <-h.worker.group.ended: // a loop has failed
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
	s := h.serving
	n := w.take(client{fd: r.A.FD, socket: s.socket})
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
	h.sessions().back(h)
	w.active++
	w.load.Add(1)
	s.clients++
	w.note(n, h.Client)
	n.admissionToken = h.Client.AdmissionToken
	if rec := h.record; rec != nil {
		h.record = nil
		rec.Joined = w.loop.Now()
		n.ref = w.keep(rec, s, bindingOf(limits))
	}
	w.ends[n] = r.Ended
	var m *mirroring
	if r.Mirrorer != nil {
		m = w.mirror(r.Mirrorer, s, r.Early)
		r.A.Mirror = m.relay()
	}
	if by := r.Rewriting; by != nil && by.Rewritten() != relay.SideNone {
		r.A, r.B = rewrite(by, r.A, r.B)
	}
	if r.A.Layer == nil {
		r.A.Gate, r.A.Free = h.hello.gate(w, r.A.Moved, new(int32))
	}
	n.set(isTCP, r.B.TCP)
	session := w.takeSession(n)
	w.windows.begin(n)
	if s.service.Lane != LaneOff {
		w.awaitLane(n)
	}
	w.driver.StartLimited(session, r.A, r.B, n, limits)
	m.reach()
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
	return r.Reached(w.loop.Now())
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

// back takes out one that has gone back to its loop.
func (b *blockingSessions) back(h *Offloaded) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.next.prev, h.prev.next = h.prev, h.next
	b.active--
}

// A layer is a connection of a protocol such as TLS that a session on a loop can have.
type layer interface {
	relay.Layer
	// Beneath returns the connection over which it is spoken.
	Beneath() net.Conn
}

// TakeSockets takes a client's connection and its endpoint's out of the runtime's hands, for [Offloaded.Rejoin]:
// each a *net.TCPConn or *net.UnixConn, or one within [relay.Prefixed], or beneath a layer such as tlsterm.Conn,
// of which nothing is read or written meanwhile. It returns nil if that cannot be done, for want of a descriptor as a
// rule; then both are as they were.
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

// duplicate returns a descriptor of the caller's own, non-blocking as those of package net are; negative: there is
// none.
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
