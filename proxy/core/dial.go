//go:build linux

package core

import (
	"context"
	"net/netip"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/upstream"
	"github.com/penstock/penstock/relay"
)

// The whiches of a session's sockets.
const (
	whichClient   = 0
	whichEndpoint = 1
)

// dialing is what a client needs until it is joined. It is used again for others.
type dialing struct {
	loop.Dial
	conn     *conn
	search   upstream.Search
	step     upstream.Step
	cfg      loop.DialConfig
	id       loop.ID     // the client's registration
	events   loop.Events // of the client until now
	reserved bool        // there is a spare for the endpoint's socket
	use      uint64      // tells uses of this struct apart
	unlook   context.CancelFunc
	began    int64    // clock when the client was taken on
	starving int64    // clock since when it has lacked a descriptor; 0 if it does not
	next     *dialing // of those that are not used
}

// begin begins to connect a client, which has a place. reserved says that there is
// a spare for it.
func (c *core) begin(of client, reserved bool) {
	n := c.take(of)
	c.accepted++
	c.active++
	n.state = connecting
	d := c.newDialing(n)
	d.reserved = reserved
	if c.canceled != nil {
		c.refuse(d, c.canceled)
		return
	}
	var err error
	if d.id, err = c.loop.Add(int(n.fd), whichClient, n); err != nil {
		c.refuse(d, err)
		return
	}
	c.search(d)
}

func (c *core) newDialing(n *conn) *dialing {
	d := c.dialings
	if d == nil {
		d = new(dialing)
		d.cfg.Control, d.cfg.Source = d.control, c.group.cfg.Upstream.Source()
	} else {
		c.dialings = d.next
	}
	d.conn, n.dial, d.next, d.events, d.began = n, d, nil, 0, c.loop.Now()
	return d
}

// drop ends the use of d.
func (c *core) drop(d *dialing) {
	if d.unlook != nil {
		d.unlook()
		d.unlook = nil
	}
	c.unreserve(d)
	c.feed(d)
	d.use++
	d.conn.dial, d.conn, d.id = nil, nil, 0
	d.next, c.dialings = c.dialings, d
}

func (c *core) unreserve(d *dialing) {
	if d.reserved {
		d.reserved = false
		c.spares.Release()
	}
}

// Ready is called for a client that is not joined yet. What it sends can wait, and
// its end of file too, after which it may still want an answer; one that has gone is
// not served.
func (n *conn) Ready(_ uint8, events loop.Events) {
	if d := n.dial; d != nil {
		if d.events |= events; n.hasGone(events) {
			n.core.left(d)
		}
	}
}

// hasGone reports whether a client will neither take nor give anything any more: it was
// reset, or has closed a unix socket and left nothing in it. That of TCP which is closed
// is like one whose client only sends no more (tcp(7)).
func (n *conn) hasGone(events loop.Events) bool {
	if events&loop.Failed != 0 {
		return true
	}
	if events&loop.HungUp == 0 {
		return false
	}
	queued, err := sys.FIONREAD(int(n.fd))
	return err == nil && queued == 0
}

// search begins with the target whose turn it is.
func (c *core) search(d *dialing) {
	d.search.Begin(c.group.cfg.Upstream)
	c.step(d)
}

// step does what the search says. d may not be in use any more when it returns.
func (c *core) step(d *dialing) {
	switch d.step = d.search.Next(c.loop.Now()); d.step.Do {
	case upstream.Connect:
		d.cfg.Timeout = d.step.Timeout
		c.loop.Connect(&d.Dial, whichEndpoint, loop.Address(d.step.Address), &d.cfg, d)
	case upstream.Resolve:
		c.look(d)
	case upstream.GiveUp:
		c.refuse(d, d.search.Err())
	}
}

// control is called with the endpoint's socket, once it was made.
func (d *dialing) control(fd int, network string) error {
	c := d.conn.core
	if f := c.group.control; f != nil {
		if err := f(); err != nil {
			return err
		}
	}
	c.unreserve(d)
	c.feed(d)
	if network == "unix" {
		return nil
	}
	return c.group.cfg.Options.First(fd)
}

// Connected goes on with the endpoint's socket, or with the next address.
func (d *dialing) Connected(_ *loop.Dial, fd int, id loop.ID, events loop.Events, err error) {
	c := d.conn.core
	if err == nil && d.step.MaybeSelf && toItself(fd, d.step.Address) {
		c.loop.Drop(id)
		_ = sys.AbortOnClose(fd)
		closeSocket(fd)
		err = upstream.ErrSelfConnect
	}
	switch {
	case err == nil:
		c.join(d, fd, id, events)
	case LacksDescriptor(err):
		c.starve(d, err)
	default:
		d.search.Failed(err, c.loop.Now(), false)
		c.step(d)
	}
}

// toItself reports whether a socket is its own peer.
func toItself(fd int, to upstream.Address) bool {
	local, err := sys.LocalName(fd)
	if err != nil || local.AddrPort.Port() != to.AddrPort.Port() {
		return false
	}
	peer, err := sys.PeerName(fd) // which to is not, if it is unspecified
	return err == nil && peer == local
}

// look resolves a name on a goroutine of its own.
func (c *core) look(d *dialing) {
	ctx, cancel := context.WithCancel(context.Background())
	d.unlook = cancel
	step, use := d.step, d.use
	c.group.lookups.Go(func() {
		ips, err := c.group.cfg.Upstream.Resolve(ctx, step.Host, step.Timeout)
		c.post(func() { c.looked(d, use, ips, err) })
	})
}

func (c *core) looked(d *dialing, use uint64, ips []netip.Addr, err error) {
	if d.use != use {
		return // the client is not there any more
	}
	d.unlook()
	d.unlook = nil
	d.search.Resolved(ips, err, false)
	c.step(d)
}

// join has a client and its endpoint joined.
func (c *core) join(d *dialing, fd int, id loop.ID, events loop.Events) {
	n := d.conn
	d.search.Reached()
	a := relay.Socket{FD: int(n.fd), ID: d.id, Events: d.events, TCP: n.tcp, NoDelay: true} // and SO_OOBINLINE: inherited
	b := relay.Socket{FD: fd, ID: id, Events: events, TCP: d.step.Address.Path == ""}
	n.fd, n.tcp = int32(fd), b.TCP
	c.drop(d)
	n.state = joined
	c.age(n)
	if c.group.cfg.Host.Detailed() {
		c.names[n] = [2]string{peerName(a.FD), peerName(b.FD)}
	}
	c.driver.Start(&n.session, a, b, n)
}

// Ended is told that a session is over.
func (n *conn) Ended(_ *relay.Driven, r relay.Result, err error) {
	c := n.core
	n.unlink()
	c.ended.Add(r)
	if r.Reason == relay.ReasonCanceled {
		c.canceledClients++
	}
	c.walkPast(n, r)
	if len(c.names) > 0 {
		names := c.names[n]
		delete(c.names, n)
		c.group.cfg.Host.Ended(names[0], names[1], r, err)
	}
	c.release(n)
}
