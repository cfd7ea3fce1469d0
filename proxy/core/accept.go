//go:build linux

package core

import (
	"errors"
	"net/netip"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
)

// errFull keeps a listener from accepting at the limit.
var errFull = errors.New("the limit is reached")

// A roomError is what an [Admitter] says there is no room for.
type roomError struct{ cause error }

func (e *roomError) Error() string { return e.cause.Error() }

// An acceptor is one core's part of a listening socket.
type acceptor struct {
	*loop.Listener // nil before it accepts
	core           *core
	socket         *Listening
	at             int        // in the core's list; negative: it is not there
	serving        *serving   // of the present service; nil before the first client
	older          []*serving // of those before, that still have clients
	emptied        int        // connections, while it is closing
	failed         bool       // in the last attempt to accept
	waits          bool       // for room, in the core's list of those that do
	short          bool       // it waits because of Room
	closing        bool       // its queue is to be emptied
	closed         bool
	timer          loop.Timer // until there may be room
}

// listen begins to accept from a socket, or tries again later.
func (c *core) listen(l *Listening) {
	if err := c.open(l.parts[c.index]); err != nil {
		c.unopened = append(c.unopened, l)
		c.lacks(l, err)
		c.later()
	}
}

// open begins to accept, unless it is too late.
func (c *core) open(a *acceptor) (err error) {
	if a.closed || a.Listener != nil {
		return nil
	}
	a.Listener, err = c.loop.Listen(a.socket.FD, &loop.ListenerConfig{Acceptor: a, Before: a.before})
	if err != nil {
		return err
	}
	a.at = len(c.acceptors)
	c.acceptors = append(c.acceptors, a)
	return nil
}

// reopen tries again where accepting could not begin.
func (c *core) reopen() {
	failed := c.unopened
	c.unopened = nil
	for _, l := range failed {
		c.listen(l)
	}
}

// before sees to it that there will be what a client needs. At the limit it is not
// accepted; between the look and the accept others may take the last place, so that
// each core may get one client more, which waits for its turn.
func (a *acceptor) before() error {
	if !a.closing {
		g := a.core.group
		if !g.gate.room() || g.waiting.n.Load() > 0 {
			return errFull
		}
		if who := a.socket.service.Load().Admitter; who != nil {
			if err := who.Room(a.core.loop.Now()); err != nil {
				return &roomError{err}
			}
		}
	}
	return a.core.reserve()
}

// reserve sees to it that there is a spare for the next client, of whatever socket.
func (c *core) reserve() error {
	if c.reserved {
		return nil
	}
	err := c.spares.Reserve()
	c.reserved = err == nil
	return err
}

// reservation takes the spare that reserve has seen to.
func (c *core) reservation() bool {
	r := c.reserved
	c.reserved = false
	return r || c.spares.Reserve() == nil
}

// Accepted takes a client on, or hands it to the core that has fewer; or it waits
// for a place, in the order in which clients came.
func (a *acceptor) Accepted(fd int, peer netip.AddrPort) {
	c, g, n := a.core, a.core.group, client{fd: fd, peer: peer, socket: a.socket, service: a.socket.service.Load()}
	a.socket.refs.Add(1)
	if n.service.Admitter != nil && !c.admit(&n) {
		return
	}
	reserved := c.reservation()
	if !g.gate.acquire() {
		c.unspare(reserved)
		g.waiting.push(n)
		c.nudge()
		return
	}
	g.gate.shut()
	to := g.lightest(c)
	to.load.Add(1)
	if to == c {
		c.begin(n, reserved)
		return
	}
	c.unspare(reserved)
	c.handedOver++
	to.inbox.give(to, n)
}

// admit asks whether a client may come in, before anything is done for it: so what is
// counted then is right when the next one is about to be accepted. One that may not is
// reset.
func (c *core) admit(of *client) bool {
	c.guest.reset()
	c.guest.aim(of.socket, of.fd, of.peer)
	err := of.service.Admitter.Admit(&c.guest, identified(&c.guest, &of.service.Preread), c.loop.Now())
	of.ticket = c.guest.Ticket
	if err == nil {
		return true
	}
	name := ""
	if c.group.cfg.Host.Detailed() {
		name = c.guest.Source().String()
	}
	if of.socket.TCP {
		_ = sys.AbortOnClose(of.fd)
	}
	closeSocket(of.fd)
	c.accepted++
	c.refused++
	c.refusals[refusalOf(connection, false, err)]++
	c.group.cfg.Host.Refused(of.socket, name, err)
	of.socket.unref()
	return false
}

// identified reports whether nothing that is still to come, nor the kernel's answer to a
// further question, tells more of where a client comes from. One of TCP without an address is
// refused whatever it sends.
func identified(c *Client, p *Preread) bool {
	return c.tcp && (!c.peer.Known() || !p.expectsHeader(c))
}

// unspare is the end of the need of a spare, if there was one.
func (c *core) unspare(reserved bool) {
	if reserved {
		c.spares.Release()
	}
}

// Paused is told that accepting failed, or is not wanted now. In the latter case it is
// suspended until there is room, so that only those sockets are looked at then at which
// somebody waits.
func (a *acceptor) Paused(err error) {
	a.failed = true
	c := a.core
	var room *roomError
	switch {
	case err == errFull:
		a.Suspend()
		c.await(a)
		c.nudge() // there may be room by now, and otherwise who makes some knows that
	case errors.As(err, &room): // until the pause is over, or somebody leaves
		if !a.short {
			a.short = true
			a.socket.short.Add(1)
		}
		a.askAgain()
		c.await(a)
	default:
		c.lacks(a.socket, err)
	}
}

// askAgain has Room asked again when that makes sense.
func (a *acceptor) askAgain() {
	if who, ok := a.socket.service.Load().Admitter.(RoomTimer); ok {
		if in := who.RoomIn(a.core.loop.Now()); in > 0 {
			a.core.loop.Arm(&a.timer, (*roomTimer)(a), in)
		}
	}
}

// A roomTimer is an acceptor for which there may be room by now.
type roomTimer acceptor

func (t *roomTimer) Expired(*loop.Timer) {
	if a := (*acceptor)(t); a.short && !a.closing {
		a.unshort()
		a.Retry()
	}
}

// await notes that an acceptor waits for room.
func (c *core) await(a *acceptor) {
	if !a.waits {
		a.waits = true
		c.waiters = append(c.waiters, a)
	}
}

// lacks tells that accepting failed for want of something.
func (c *core) lacks(l *Listening, err error) {
	g := c.group
	if !c.paused {
		c.paused = true
		g.paused.Add(1)
	}
	c.spares.Trim()
	g.cfg.Host.Paused(l, err, g.gate.active.Load(), l.pauses.Add(1))
}

// lightest returns the core that is to have a client that c has accepted: c itself,
// unless it has clearly more than the one that has fewest.
func (g *Group) lightest(c *core) *core {
	own := c.load.Load()
	if own <= 1 {
		return c
	}
	to, fewest := c, own
	for _, other := range g.cores {
		if n := other.load.Load(); n < fewest {
			to, fewest = other, n
		}
	}
	if own-fewest > max(1, own/8) {
		return to
	}
	return c
}
