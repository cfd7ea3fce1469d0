package worker

import (
	"fmt"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/internal/record"
)

// refuse resets a client that is not served: an orderly close would look like an empty answer
// of its server. (A unix socket has no reset; there it is an end of file unless the client had
// sent something, which makes it ECONNRESET.)
func (w *worker) refuse(c *pendingClient, cause error) {
	if b := c.refusal(cause); b != nil {
		w.refuseWith(c, cause, b)
		return
	}
	n, l := c.conn, c.serving.socket
	if n.tcp() {
		_ = sys.AbortOnClose(n.fd())
	}
	w.turnedAway.note(&c.client, w.loop.Now())
	outcome, why := record.Canceled, refusalOf(c.phase, c.search != nil, cause)
	if w.canceled != nil {
		w.canceledClients++
	} else {
		outcome = record.Refused
		w.refused++
		w.refusals[why]++
	}
	if r := c.record; r != nil {
		r.Outcome, r.Err, r.Refusal = outcome, cause, why.String()
	}
	w.closeClient(c)
	w.group.cfg.Host.Refused(l, cause)
}

// refusal is what a client gets that is refused for a cause; nil: it is reset.
func (c *pendingClient) refusal(cause error) []byte {
	f := c.serving.service.Refusal
	if f == nil || c.worker.canceled != nil || c.phase == awaitPostgres || c.phase == awaitHello || c.phase == awaitHeader || c.phase == responding || c.phase == lingering {
		return nil
	}
	return f(&c.client, cause)
}

// refuseWith refuses a client that gets bytes which say why, and is then closed properly.
func (w *worker) refuseWith(c *pendingClient, cause error, b []byte) {
	l := c.serving.socket
	w.turnedAway.note(&c.client, w.loop.Now())
	why := refusalOf(c.phase, c.search != nil, cause)
	w.refused++
	w.refusals[why]++
	if r := c.record; r != nil {
		r.Outcome, r.Err, r.Refusal = record.Refused, cause, why.String()
	}
	c.dropEndpoint()
	c.refused = true
	c.step = Step{Action: Respond, Bytes: b}
	w.respond(c)
	w.group.cfg.Host.Refused(l, cause)
}

// clientLeft closes a client that has gone before it was joined.
func (w *worker) clientLeft(c *pendingClient) {
	if c.refused { // and counted as such
		w.closeClient(c)
		return
	}
	w.leftClients++
	if c.record != nil {
		c.record.Outcome = record.Left
	}
	w.closeClient(c)
}

// closeClient closes a client that is not joined.
func (w *worker) closeClient(c *pendingClient) {
	w.recordUnjoined(c)
	n, s, fd, admissionToken, admitted := c.conn, c.serving, c.conn.fd(), c.client.AdmissionToken, c.admitted
	c.Cancel()
	w.loop.Drop(c.id)
	w.freePending(c)
	closeSocket(fd)
	w.freeSlot(n, s)
	w.group.release(s, admitted, admissionToken)
}

// freeSlot is the end of a worker's part in a client.
func (w *worker) freeSlot(n *conn, s *serving) {
	w.free(n)
	w.active--
	s.leave(w)
	w.load.Add(-1)
}

// release is the end of a client that had a place. There is room for others now; they are
// woken and not served from here, as this may be called from within the relay, and by any
// goroutine.
func (g *Group) release(s *serving, admitted bool, admissionToken uint64) {
	if admitted {
		s.service.Admitter.Released(admissionToken)
	}
	g.gate.release()
	if g.gate.full.Load() || g.gate.holds.Load() > 0 || g.paused.Load() > 0 || s.socket.short.Load() > 0 {
		g.wake()
	}
	s.socket.unref()
}

// closeSocket closes a socket. The error of close(2) is of no use to any caller.
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

// localName names the own end of a connection of TCP; empty: that could not be found out.
func localName(fd int) string {
	if name, err := sys.LocalName(fd); err == nil && name.AddrPort.IsValid() {
		return name.AddrPort.String()
	}
	return ""
}
