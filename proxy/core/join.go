//go:build linux

package core

import "github.com/penstock/penstock/relay"

// join has a client and its endpoint joined.
func (c *core) join(d *dialing) {
	limits, err := d.search.Reached(c.loop.Now())
	switch {
	case err != nil && d.moved > 0:
		c.refuse(d, err)
		return
	case err != nil:
		d.dropEndpoint()
		c.proceed(d)
		return
	}
	n, e, s := d.conn, d.endpoint, d.serving
	if limits == nil {
		limits = s.service.Limits
	}
	d.takeAhead()
	a := relay.Socket{FD: int(n.fd), ID: d.id, Events: d.events, TCP: n.tcp, NoDelay: true, Moved: d.moved} // and SO_OOBINLINE: inherited
	b := relay.Socket{FD: e.fd, ID: e.id, Events: e.events, TCP: d.step.Address.Path == "", NoDelay: d.undelayed}
	if d.client.Ticket != nil {
		c.tickets[n] = d.client.Ticket
	}
	if d.client.Header.Known() {
		c.sources[n] = d.client.Header.Source
	}
	if c.group.cfg.Host.Detailed() {
		c.names[n] = [2]string{d.clientName(), peerName(b.FD)}
	}
	n.fd, n.tcp = int32(e.fd), b.TCP
	d.endpoint.fd = -1
	c.drop(d)
	n.state, n.role = joined, &s.role
	s.aging.age(n)
	c.driver.StartLimited(&n.session, a, b, n, limits)
}

// Ended is told that a session is over.
func (n *conn) Ended(_ *relay.Driven, r relay.Result, err error) {
	c, s := n.core, n.role.serving
	n.unlink()
	c.ended.Add(r)
	if r.Reason == relay.ReasonCanceled {
		c.canceledClients++
	}
	c.walkPast(n, r)
	if b := bondOf(n.session.Limits()); b != nil {
		b.Ended(r, err)
		c.held.ended(b, &r)
	}
	if len(c.names) > 0 {
		c.tellEnded(n, r, err)
	}
	if len(c.sources) > 0 {
		delete(c.sources, n)
	}
	var ticket any
	if len(c.tickets) > 0 {
		ticket = c.tickets[n]
		delete(c.tickets, n)
	}
	c.vacate(n, s)
	c.group.release(s, s.service.Admitter != nil, ticket)
}

// tellEnded tells of the end of a session, if its names are kept.
func (c *core) tellEnded(n *conn, r relay.Result, err error) {
	names, ok := c.names[n]
	if !ok {
		return
	}
	delete(c.names, n)
	s := &Session{Client: names[0], Endpoint: names[1], Listener: n.role.serving.socket.Name}
	s.bound(bondOf(n.session.Limits()))
	c.group.cfg.Host.Ended(s, r, err)
}

// clientName names a client: what its PROXY header has told, or the other end.
func (d *dialing) clientName() string {
	return d.client.Source().String()
}
