//go:build linux

package core

import (
	"context"
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/upstream"
)

// The whiches of a session's sockets.
const (
	whichClient   = 0
	whichEndpoint = 1
)

// dialing is what a client needs until it is joined. It is used again for others.
type dialing struct {
	loop.Dial
	role
	core      *core // for good
	conn      *conn
	client    Client
	search    Search // nil before it has begun
	step      Step
	cfg       loop.DialConfig
	id        loop.ID     // the client's registration
	events    loop.Events // of the client until now
	phase     phase
	reserved  bool   // there is a spare for the endpoint's socket
	admitted  bool   // Left has to be told of its end
	undelayed bool   // the endpoint's TCP_NODELAY is set
	raised    int32  // to what the client's low-water mark is; 0 if it is not
	ahead     []byte // what the client has sent, as far as a peek has shown; it is queued
	taken     []byte // what was taken out of its queue; nil: nothing is
	vain      uint8  // peeks that have shown too little, see inVain
	moved     int    // how much of ahead, or of taken, the endpoint has got already
	timer     loop.Timer
	endpoint  endpoint      // while its preface is written
	rest      []byte        // of the preface, or of a response
	use       uint64        // tells uses of this struct apart
	hung      atomic.Uint64 // one more than the use whose client has hung up
	unlook    context.CancelFunc
	began     int64    // clock when the client was taken on
	starving  int64    // clock since when it has lacked a descriptor; 0 if it does not
	next      *dialing // of those that are not used
}

// An endpoint is a connection that is not joined yet.
type endpoint struct {
	fd     int // owned; negative: there is none
	id     loop.ID
	events loop.Events
}

// begin begins to serve a client, which has a place. reserved says that there is a
// spare for it.
func (c *core) begin(of client, reserved bool) {
	n, s := c.take(of), c.servingOf(of)
	c.accepted++
	c.active++
	s.clients++
	n.state = connecting
	if !n.tcp {
		_ = s.service.Options.First(of.fd) // without it, it is a connection like any other
	}
	d := c.newDialing(n, s, of.peer)
	d.reserved, d.admitted, d.client.Ticket = reserved, s.service.Admitter != nil, of.ticket
	if c.canceled != nil {
		c.refuse(d, c.canceled)
		return
	}
	var err error
	if d.id, err = c.loop.Add(int(n.fd), whichClient, n); err != nil {
		c.refuse(d, err)
		return
	}
	c.preread(d)
}

func (c *core) newDialing(n *conn, s *serving, peer netip.AddrPort) *dialing {
	d := c.dialings
	if d == nil {
		d = &dialing{core: c}
		d.cfg.Control, d.role.dial, d.client.wakes = d.control, d, d
	} else {
		c.dialings = d.next
		c.spareDialings--
	}
	d.conn, n.role, d.next, d.events, d.began, d.phase = n, &d.role, nil, 0, c.loop.Now(), connection
	d.serving, d.endpoint.fd = s, -1
	d.client.use = d.use
	d.client.aim(s.socket, int(n.fd), peer)
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
	c.loop.Disarm(&d.timer)
	c.endSearch(d)
	d.dropEndpoint()
	d.use++
	d.client.reset()
	d.conn, d.id, d.serving, d.step, d.rest, d.raised = nil, 0, nil, Step{}, nil, 0
	d.ahead, d.taken, d.vain, d.moved = d.ahead[:0], nil, 0, 0
	if c.spareDialings < mostSpare {
		c.spareDialings++
		d.next, c.dialings = c.dialings, d
	}
}

// mostSpare is how many things of a kind that clients need until they are joined are
// kept for the next ones: what a flood of clients has needed is not kept for ever.
const mostSpare = 1024

// endSearch ends the search of d, if it has begun.
func (c *core) endSearch(d *dialing) {
	if s := d.search; s != nil {
		d.search = nil
		d.serving.giveSearch(s)
	}
}

func (c *core) unreserve(d *dialing) {
	if d.reserved {
		d.reserved = false
		c.spares.Release()
	}
}

// Ready is called for a client that is not joined yet. What it sends can wait, but for
// what is looked at, and its end of file too, after which it may still want an answer;
// one that has gone is not served.
func (n *conn) Ready(_ uint8, events loop.Events) {
	d := n.role.dial
	if d == nil {
		return
	}
	d.events |= events
	if events&loop.HungUp != 0 {
		d.hung.Store(d.use + 1)
	}
	switch {
	case n.hasGone(events):
		n.core.left(d)
	case d.phase == awaitHeader || d.phase == awaitHello || d.phase == awaitData:
		if events&arrived != 0 || events == 0 {
			n.core.look(d)
		}
	case d.phase == responding || d.phase == lingering:
		n.core.respondOn(d)
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

// search begins to look for an endpoint, anew if that is not the first time.
func (c *core) search(d *dialing) {
	d.phase = connection
	if d.search == nil {
		d.search = d.serving.takeSearch()
	} else {
		d.search.Close()
	}
	d.search.Begin(&d.client, c.loop.Now())
	c.proceed(d)
}

// proceed does what the search says. d may not be in use any more when it returns.
func (c *core) proceed(d *dialing) {
	d.phase = connection
	switch d.step = d.search.Next(c.loop.Now()); d.step.Do {
	case Connect:
		d.cfg.Timeout, d.cfg.Source, d.undelayed = d.step.Timeout, d.step.Source, false
		c.loop.Connect(&d.Dial, whichEndpoint, d.step.Address, &d.cfg, d)
	case Resolve:
		c.resolve(d)
	case Pause:
		d.phase = pausing
		c.loop.Arm(&d.timer, (*dialTimer)(d), d.step.Timeout)
	case Park:
		d.phase = parked
		if d.step.Timeout > 0 {
			c.loop.Arm(&d.timer, (*dialTimer)(d), d.step.Timeout)
		}
	case Respond:
		c.respond(d)
	case Handover:
		c.handOver(d, d.step.To)
	default:
		c.refuse(d, d.search.Err())
	}
}

// control is called with the endpoint's socket, once it was made.
func (d *dialing) control(fd int, _ string) error {
	c := d.core
	if f := c.group.control; f != nil {
		if err := f(); err != nil {
			return err
		}
	}
	c.unreserve(d)
	c.feed(d)
	return d.serving.service.Options.First(fd)
}

// Connected goes on with the endpoint's socket, or with what the search says then.
func (d *dialing) Connected(_ *loop.Dial, fd int, id loop.ID, events loop.Events, err error) {
	c := d.core
	if err == nil {
		d.endpoint = endpoint{fd, id, events}
		if d.step.MaybeSelf && toItself(fd, d.step.Address) {
			err = upstream.ErrSelfConnect
		}
	}
	switch {
	case err == nil && (d.step.Preface || len(d.taken) > 0):
		c.writePreface(d)
	case err == nil:
		c.join(d)
	case LacksDescriptor(err):
		c.starve(d, err)
	default:
		c.failed(d, err)
	}
}

// failed goes on after a connection that has come to nothing.
func (c *core) failed(d *dialing, err error) {
	d.dropEndpoint()
	d.search.Failed(err, c.loop.Now())
	c.proceed(d)
}

// dropEndpoint resets a connection that is not joined: its peer must not take that for
// an orderly end.
func (d *dialing) dropEndpoint() {
	if e := &d.endpoint; e.fd >= 0 {
		d.core.loop.Drop(e.id)
		_ = sys.AbortOnClose(e.fd)
		closeSocket(e.fd)
		e.fd = -1
	}
}

// toItself reports whether a socket is its own peer.
func toItself(fd int, to loop.Address) bool {
	local, err := sys.LocalName(fd)
	if err != nil || local.AddrPort.Port() != to.AddrPort.Port() {
		return false
	}
	peer, err := sys.PeerName(fd) // which to is not, if it is unspecified
	return err == nil && peer == local
}

// resolve resolves a name on a goroutine of its own.
func (c *core) resolve(d *dialing) {
	ctx, cancel := context.WithCancel(context.Background())
	d.unlook = cancel
	step, use := d.step, d.use
	c.group.lookups.Go(func() {
		ips, err := step.Resolver.Resolve(ctx, step.Host, step.Timeout)
		c.post(func() { c.resolved(d, use, ips, err) })
	})
}

func (c *core) resolved(d *dialing, use uint64, ips []netip.Addr, err error) {
	if d.use != use {
		return // the client is not there any more
	}
	d.unlook()
	d.unlook = nil
	d.search.Resolved(ips, err)
	c.proceed(d)
}

// dialTimer is a dialing whose phase has taken its time.
type dialTimer dialing

func (t *dialTimer) Expired(*loop.Timer) {
	d := (*dialing)(t)
	c := d.core
	switch d.phase {
	case awaitHeader:
		c.refuse(d, ErrHeaderTimeout)
	case awaitHello, awaitData:
		c.unmet(d, ErrPrereadTimeout)
	case pausing, parked:
		c.proceed(d)
	case prefacing:
		c.failedPreface(d, os.ErrDeadlineExceeded)
	case responding, lingering:
		c.part(d)
	}
}
