package worker

import (
	"errors"

	"github.com/penstock/penstock/relay"
)

// join has a client and its endpoint joined.
func (w *worker) join(c *pendingClient) {
	limits, err := c.search.Reached(w.loop.Now())
	switch {
	case err != nil && c.moved > 0:
		w.refuse(c, err)
		return
	case err != nil:
		c.dropEndpoint()
		w.proceed(c)
		return
	}
	n, e, s := c.conn, c.endpoint, c.serving
	if limits == nil {
		limits = s.service.Limits
	}
	var m *mirroring
	if by, ok := c.search.(Mirrorer); ok {
		m = w.mirror(by, s, c.movedBytes())
	}
	c.takeAhead()
	a := relay.Socket{FD: n.fd(), ID: c.id, Events: c.events, TCP: n.tcp(), NoDelay: true, Moved: c.moved, Mirror: m.relay()} // and SO_OOBINLINE: inherited
	b := relay.Socket{FD: e.fd, ID: e.id, Events: e.events, TCP: c.step.Address.Path == "", NoDelay: c.undelayed}
	if by, ok := c.search.(Rewriting); ok && by.Rewritten() != relay.SideNone {
		a, b = rewrite(by, a, b)
	}
	switch {
	case a.Rewriter != nil || a.Transform != nil:
		a.Ahead = c.buffered
	case c.buffered != nil:
		a.Ahead = c.buffered[c.moved:]
	}
	a.Gate, a.Free = c.hello.gate(w, c.moved, &c.charged)
	w.note(n, &c.client)
	n.admissionToken = c.client.AdmissionToken
	ref := w.keepPending(c, bindingOf(limits))
	c.endpoint.fd = -1
	w.freePending(c)
	n.ref = ref
	n.set(isTCP, b.TCP)
	session := w.takeSession(n)
	s.lateSockopts.apply(n)
	w.windows.begin(n)
	if s.service.Lane != LaneOff {
		w.awaitLane(n)
	}
	w.driver.StartLimited(session, a, b, n, limits)
	m.reach()
}

// movedBytes returns the client's bytes that the endpoint has got.
func (c *pendingClient) movedBytes() []byte {
	if c.buffered != nil {
		return c.buffered[:c.moved]
	}
	return c.ahead[:c.moved]
}

// Ended is called when a session is over.
func (n *conn) Ended(_ *relay.Driven, r relay.Result, err error) {
	w, s := n.worker(), n.ref.serving
	away := w.laneEnded(n)
	w.ended.Add(r)
	if (away == nil || !away.is(goneOn)) && r.Reason == relay.ReasonCanceled {
		w.canceledClients++
	}
	w.scanPast(n, r)
	b := n.binding()
	if b != nil {
		b.Ended(r, err)
		countEnd(b, w.index, r, err)
		w.deferred.ended(b, &r)
	}
	if errors.Is(err, ErrSecondHello) || errors.Is(err, ErrPrereadMemory) {
		w.refused++
		w.refusals[refusalOf(dialing, false, err)]++
		w.group.cfg.Host.Refused(s.socket, err)
	}
	if k := n.ref.kept; k != nil {
		w.recordEnded(n, k, b, &r, err, away)
	} else {
		w.group.judge(b, &r, !s.socket.TCP, !n.tcp(), nil, away)
	}
	w.lanes.forget(away)
	w.forget(n)
	admissionToken := n.admissionToken
	w.freeSlot(n, s)
	w.group.release(s, s.service.Admitter != nil, admissionToken)
}

// clientName names a client: the source of its PROXY header, or the other end.
func (c *pendingClient) clientName() string {
	return c.client.Source().String()
}
