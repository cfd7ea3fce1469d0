//go:build linux

package core

import (
	"fmt"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// refuse resets a client that is not served: an orderly close would tell it that
// its server had nothing to say. (A unix socket has no reset; there it is an end of
// file unless the client had sent something, which makes it ECONNRESET.)
func (c *core) refuse(d *dialing, cause error) {
	n, l := d.conn, d.serving.socket
	name := ""
	if c.group.cfg.Host.Detailed() {
		name = d.clientName()
	}
	if n.tcp {
		_ = sys.AbortOnClose(int(n.fd))
	}
	if c.canceled != nil {
		c.canceledClients++
	} else {
		c.refused++
		c.refusals[refusalOf(d.phase, d.search != nil, cause)]++
	}
	c.part(d)
	c.group.cfg.Host.Refused(l, name, cause)
}

// left closes a client that has gone before it was joined.
func (c *core) left(d *dialing) { c.part(d) }

// part closes a client that is not joined.
func (c *core) part(d *dialing) {
	n, s, fd, ticket, admitted := d.conn, d.serving, int(d.conn.fd), d.client.Ticket, d.admitted
	d.Cancel()
	c.loop.Drop(d.id)
	c.drop(d)
	closeSocket(fd)
	c.vacate(n, s)
	c.group.release(s, admitted, ticket)
}

// vacate is the end of what a core has to do with a client.
func (c *core) vacate(n *conn, s *serving) {
	n.state = free
	n.role = nil
	c.unused.append(n)
	c.active--
	s.leave(c)
	c.load.Add(-1)
}

// release is the end of a client that had a place. What others have waited for is
// there now; they are nudged and not served from here, as this may be called from
// within the relay, and by anybody.
func (g *Group) release(s *serving, admitted bool, ticket any) {
	if admitted {
		s.service.Admitter.Left(ticket)
	}
	g.gate.release()
	if g.gate.full.Load() || g.gate.holds.Load() > 0 || g.paused.Load() > 0 || s.socket.short.Load() > 0 {
		g.nudge()
	}
	s.socket.unref()
}

// closeSocket closes a socket. What close(2) says of it is of no use to anybody.
func closeSocket(fd int) { _ = sys.Close(fd) }

// peerName names the other end of a socket; that of a unix socket has no name as a
// rule.
func peerName(fd int) string {
	name, err := sys.PeerName(fd)
	switch {
	case err == syscall.ENOTCONN:
		return "gone"
	case err != nil:
		return fmt.Sprintf("unknown (%v)", err)
	case name.AddrPort.IsValid():
		return name.AddrPort.String()
	}
	return "unix:" + name.Path
}
