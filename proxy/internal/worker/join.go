package worker

import "github.com/penstock/penstock/relay"

// join has a client and its endpoint joined.
func (w *worker) join(d *pendingClient) {
	limits, err := d.search.Reached(w.loop.Now())
	switch {
	case err != nil && d.moved > 0:
		w.refuse(d, err)
		return
	case err != nil:
		d.dropEndpoint()
		w.proceed(d)
		return
	}
	n, e, s := d.conn, d.endpoint, d.serving
	if limits == nil {
		limits = s.service.Limits
	}
	d.takeAhead()
	a := relay.Socket{FD: int(n.fd), ID: d.id, Events: d.events, TCP: n.tcp, NoDelay: true, Moved: d.moved} // and SO_OOBINLINE: inherited
	b := relay.Socket{FD: e.fd, ID: e.id, Events: e.events, TCP: d.step.Address.Path == "", NoDelay: d.undelayed}
	w.note(n, &d.client)
	if w.group.cfg.Host.LogSessions() {
		w.names[n] = [2]string{d.clientName(), peerName(b.FD)}
	}
	n.fd, n.tcp = int32(e.fd), b.TCP
	d.endpoint.fd = -1
	w.freePending(d)
	n.state, n.ref = joined, &s.listenerRef
	s.lateSockopts.apply(n)
	w.driver.StartLimited(&n.session, a, b, n, limits)
}

// Ended is called when a session is over.
func (n *conn) Ended(_ *relay.Driven, r relay.Result, err error) {
	c, s := n.worker, n.ref.serving
	n.unlink()
	c.ended.Add(r)
	if r.Reason == relay.ReasonCanceled {
		c.canceledClients++
	}
	c.scanPast(n, r)
	if b := bindingOf(n.session.Limits()); b != nil {
		b.Ended(r, err)
		c.deferred.ended(b, &r)
	}
	if len(c.names) > 0 {
		c.logEnded(n, r, err)
	}
	ticket := c.forget(n)
	c.freeSlot(n, s)
	c.group.release(s, s.service.Admitter != nil, ticket)
}

// logEnded logs the end of a session, if its names are kept.
func (w *worker) logEnded(n *conn, r relay.Result, err error) {
	names, ok := w.names[n]
	if !ok {
		return
	}
	delete(w.names, n)
	s := &Session{Client: names[0], Endpoint: names[1], Listener: n.ref.serving.socket.Name}
	s.setBinding(bindingOf(n.session.Limits()))
	w.group.cfg.Host.Ended(s, r, err)
}

// clientName names a client: the source of its PROXY header, or the other end.
func (d *pendingClient) clientName() string {
	return d.client.Source().String()
}
