package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/sockopt"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/driver"
)

// Offloaded is a client that has left its loop for a goroutine of its own, because TLS ends or begins in this process.
// It keeps its place under the limits, and is listed and counted. Its owner calls either [Offloaded.Rejoin], which
// takes it back to its loop to be joined there, or [Offloaded.End], once.
type Offloaded struct {
	// Client is the client. Its memory is not used again for another one.
	Client *Client
	// Sent is how many bytes of a response the client was sent. It is set before End.
	Sent int64

	fd       int // the client's socket, non-blocking and on no loop; owned until Conn or Close
	began    time.Time
	name     string
	from     source.Source
	listener string
	number   int64 // among all clients that ever left their loops; under offloads.mu
	ctx      context.Context
	cancel   context.CancelCauseFunc
}

func (w *worker) takeOff(c *Client) *Offloaded {
	n := c.conn
	if r := c.Record; r != nil {
		describe(r, c)
		learned(r, c)
		r.TLS = true
	}
	from := c.Source()
	h := &Offloaded{Client: c, fd: c.fd, began: time.Now(), name: from.String(), from: from, listener: c.serving.service.Name}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	_ = c.drain() // an error shows at the next read
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

// Context ends when the client is cut; its cause says why. It has ended after End, too.
func (h *Offloaded) Context() context.Context { return h.ctx }

func (h *Offloaded) group() *Group { return h.Client.worker.group }

// End ends a client that was not joined, and whose socket is closed, and frees its place. err is why the client was
// refused; nil if it got a response, or its record has an outcome.
func (h *Offloaded) End(err error) { h.end(err, false) }

// Left is End for a client that has gone by itself: it was not refused.
func (h *Offloaded) Left() { h.end(nil, true) }

func (h *Offloaded) end(err error, left bool) {
	c, g := h.Client, h.group()
	canceled := h.canceled()
	if err != nil && h.ctx.Err() != nil {
		err = context.Cause(h.ctx)
	}
	g.handed.end(h, err, left)
	if err != nil && !canceled {
		g.cfg.Host.Refused(c.listening, err)
	}
	if rec := c.Record; rec != nil {
		rec.Resume(g.cfg.Now())
		rec.Loop = -1
		switch {
		case left:
			rec.Outcome = record.Left
		case err != nil && canceled:
			rec.Outcome = record.Canceled
		case err != nil:
			rec.Outcome, rec.Late, rec.Cut = record.Refused, tooLate(err), cutOff(err)
		case rec.Outcome == record.Joined: // nobody has set it
			rec.Outcome = record.Responded
		}
	}
	e := ending{socket: c.listening, loop: c.worker.index, err: err, record: c.Record, unjoined: true}
	e.local, e.result.BToA.Copied = [2]bool{!c.tcp}, h.Sent
	bytesByBinding(nil).ended(bindingOf(c.serving.service.Limits), &e.result)
	c.Record = nil
	g.observe(&e)
	h.cancel(context.Canceled)
	g.release(c.serving, c.admitted, c.AdmissionToken)
}

// Close closes the client's socket, unless Conn has made a connection of it.
func (h *Offloaded) Close() { closeSocket(h.fd) }

// Conn makes the client's socket a connection of package net; afterwards the Client knows its addresses. After an
// error the socket is closed.
func (h *Offloaded) Conn() (net.Conn, error) {
	h.Client.leave()
	c, err := loop.Give(h.fd)
	if early := h.Client.buffered; err == nil && len(early) > 0 {
		return relay.Prefixed(c, early), nil
	}
	return c, err
}

type offloads struct {
	mu       sync.Mutex
	clients  map[int64]*Offloaded // by number
	number   int64                // clients so far
	refused  int64
	canceled int64
	left     int64
	totals   Totals // of responses
}

func (o *offloads) add(h *Offloaded) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.number++
	h.number = o.number
	o.clients[h.number] = h
}

// end takes out a client. left means that the client has gone; err is why it was refused, nil if it was not.
func (o *offloads) end(h *Offloaded, err error, left bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.clients, h.number)
	o.totals.EndpointToClient.Copied += h.Sent
	switch {
	case left:
		o.left++
	case err == nil: // it got a response, or its request was sent
	case h.canceled():
		o.canceled++
	default:
		o.refused++
	}
}

// canceled reports whether the client was cut, and not refused, by the end of everything.
func (h *Offloaded) canceled() bool {
	return h.ctx.Err() != nil && context.Cause(h.ctx) != h.Client.listening.refusesLate()
}

// refuse refuses the clients of a socket.
func (o *offloads) refuse(l *Listening, cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.clients {
		if h.Client.listening == l {
			h.cancel(cause)
		}
	}
}

func (o *offloads) cut(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.clients {
		h.cancel(cause)
	}
}

func (o *offloads) summary() Summary {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Summary{Active: int64(len(o.clients)), Canceled: o.canceled, Left: o.left, Refused: o.refused, Totals: o.totals}
}

func (o *offloads) list(q *Query) (clients []Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(o.clients)) { // in the order in which they came
		if s := o.clients[number].describe(); q.takes(&s) && q.takesSource(&s) && q.takesEndpoint(&s) && q.accepts(&s) {
			clients = append(clients, s)
		}
	}
	return clients
}

func (h *Offloaded) describe() Session {
	return Session{
		ID: ID{onGoroutines, h.number, h.began.UnixNano()}, Client: h.name, Source: h.from, Listener: h.listener, Loop: -1, Idle: -1,
		State: Dialing, Age: time.Since(h.began), Began: h.began.UnixNano(),
	}
}

// A Rejoin is what a client that was handed over brings back to its loop.
type Rejoin struct {
	// A and B are the sockets of the client and of its endpoint, on no loop; TCP sockets have TCP_NODELAY. The loop sets
	// their IDs and events.
	A, B relay.Socket
	// Early is the client's bytes that the endpoint has already, A.Moved of them; nil: none.
	Early []byte
	// Search is asked on the loop: Reached, and then the session's mirror and rewriter.
	Search Search
	// Ended is called on the loop at the end of the session, before the client's place is free. It must not wait.
	Ended func()
}

// Rejoin begins the client's session on the loop that the client came from: it is counted, listed and cut there,
// and [Offloaded.End] must not be called. When it returns, the session has begun, and may have ended already.
// After an error it has not begun, and both sockets were reset; then End must still be called.
func (h *Offloaded) Rejoin(r *Rejoin) error {
	w := h.Client.worker
	called, err := w.call(func() error { return w.rejoin(h, r) })
	switch {
	case !called:
		r.reset()
	case err == nil:
		h.cancel(context.Canceled)
	}
	return err
}

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
	w.counts.Active++
	w.load.Add(1)
	s.clients++
	w.note(n, c)
	n.admissionToken = w.counted(s, c.AdmissionToken, c.Source)
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

// register lets the loop watch both sockets, unless the client was cut or may not go on.
func (w *worker) register(h *Offloaded, r *Rejoin, n *conn) (limits *relay.Limits, err error) {
	if h.ctx.Err() != nil {
		return nil, context.Cause(h.ctx)
	}
	if err := h.Client.listening.refusesLate(); err != nil {
		return nil, err
	}
	var errA, errB error
	r.A.ID, errA = w.loop.Add(r.A.FD, whichClient, n)
	r.B.ID, errB = w.loop.Add(r.B.FD, whichEndpoint, n)
	if err := errors.Join(errA, errB); err != nil {
		return nil, err
	}
	return r.Search.Reached(w.loop.Now())
}

func (r *Rejoin) reset() {
	for _, s := range []*relay.Socket{&r.A, &r.B} {
		if s.TCP {
			_ = sys.AbortOnClose(s.FD)
		}
		closeSocket(s.FD)
	}
}

func (o *offloads) back(h *Offloaded) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.clients, h.number)
}

// A layer is a connection with a protocol above it, such as TLS, that a session on a loop can have.
type layer interface {
	driver.Layer
	// Beneath returns the connection that carries the protocol.
	Beneath() net.Conn
}

// TakeSockets takes the connections of a client and of its endpoint over from the runtime, for [Offloaded.Rejoin]. Each is
// a *net.TCPConn or *net.UnixConn, alone or within [relay.Prefixed], or beneath a layer such as tlsterm.Conn. The layer
// must not be read or written meanwhile. TakeSockets needs one more descriptor for a moment. If there is none it waits, as
// accepting does, until ctx ends or the client has gone ([sockopt.ErrGone]). On an error the caller closes both.
func TakeSockets(ctx context.Context, client, endpoint net.Conn) (*Rejoin, error) {
	a, b := plainOf(client), plainOf(endpoint)
	if a == nil || b == nil {
		return nil, fmt.Errorf("a loop cannot serve a connection of %T with a connection of %T", client, endpoint)
	}
	// The endpoint's first: during the wait for a descriptor the client's is watched.
	var fds [2]int
	for i, c := range []plain{b, a} {
		var err error
		if fds[i], err = duplicate(ctx, c, a, sys.Dup); err != nil {
			if i > 0 {
				resetSocket(fds[0]) // not an orderly end for the endpoint
			}
			return nil, err
		}
		_ = c.Close() // it leaves the runtime's poller
	}
	return &Rejoin{A: socketOf(client, fds[1]), B: socketOf(endpoint, fds[0])}, nil
}

type plain interface {
	net.Conn
	syscall.Conn
}

// plainOf returns the innermost connection, or nil if it is not one of package net.
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

// shortOf is the interval between two attempts to get a descriptor.
const shortOf = 10 * time.Millisecond

// duplicate returns a duplicate of the descriptor (dup), non-blocking like the descriptors of package net; the caller
// owns it. It waits for a free descriptor as long as the client is there.
func duplicate(ctx context.Context, c, client plain, dup func(fd int) (int, error)) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	for {
		var failed error
		if err := raw.Control(func(own uintptr) { fd, failed = dup(int(own)) }); err != nil {
			return -1, err
		}
		if failed != syscall.EMFILE && failed != syscall.ENFILE {
			return fd, failed
		}
		watched, stop := sockopt.Watch(ctx, client, time.Time{})
		select {
		case <-time.After(shortOf):
		case <-watched.Done():
			stop()
			return -1, context.Cause(watched)
		}
		stop()
	}
}

// socketOf describes a descriptor of a connection, and takes the bytes that the connection holds beside it.
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
