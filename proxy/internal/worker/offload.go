package worker

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
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
