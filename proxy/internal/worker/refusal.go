package worker

import (
	"cmp"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/relay"
)

// Reasons of a filter to refuse a client.
var (
	// ErrFiltered: it has denied the client.
	ErrFiltered = errors.New("a filter denied the client")
	// ErrFilterFailed: it has not answered.
	ErrFilterFailed = errors.New("a filter has not answered")
	// ErrFilterOverload: too many clients wait for its answer.
	ErrFilterOverload = errors.New("too many clients wait for the filter")
)

// ErrCancelOverload is the error of a client whose PostgreSQL CancelRequest is not sent.
var ErrCancelOverload = errors.New("too many requests to cancel a query are being sent")

// refuse resets a client that is not served, unless it gets bytes that say why. An orderly close would look like an empty
// answer of its server. (A unix socket has no reset: its client sees an end of file or, if it had sent something,
// ECONNRESET.)
func (w *worker) refuse(c *Client, cause error) {
	if b := c.refusal(cause); b != nil {
		w.refuseWith(c, cause, b)
		return
	}
	if c.tcp {
		_ = sys.AbortOnClose(c.fd)
	}
	w.noteRefusal(c, cause)
	w.closeClient(c)
}

// noteRefusal counts and records a client that is refused or, once everything has ended, cut.
func (w *worker) noteRefusal(c *Client, cause error) {
	w.turnedAway.note(c, w.loop.Now())
	outcome := record.Canceled
	if w.canceled != nil {
		w.canceledClients++
	} else {
		outcome = record.Refused
		w.refusedClients++
		w.group.cfg.Host.Refused(c.listening, cause)
	}
	if r := c.Record; r != nil {
		r.Outcome, r.Err = outcome, cause
		r.Late, r.Cut = tooLate(cause), cutOff(cause)
	}
}

// tooLate reports whether a client is refused because it has not sent its first bytes in time.
func tooLate(cause error) bool {
	return errors.Is(cause, ErrPrereadTimeout) || errors.Is(cause, ErrHeaderTimeout)
}

// cutOff reports whether a client is refused because it has ended in the middle of its first bytes.
func cutOff(cause error) bool {
	return errors.Is(cause, ErrPrereadEnded) || errors.Is(cause, ErrHeaderEnded)
}

// refusal returns the bytes for a client that is refused for a cause; nil: it is reset.
func (c *Client) refusal(cause error) []byte {
	f := c.serving.service.Refusal
	if f == nil || c.worker.canceled != nil {
		return nil
	}
	switch c.phase {
	case awaitPostgres, awaitHello, awaitHeader, responding, lingering:
		return nil
	}
	return f(c, cause)
}

// refuseWith sends a refused client bytes that say why, and closes it properly.
func (w *worker) refuseWith(c *Client, cause error, b []byte) {
	w.noteRefusal(c, cause)
	c.dropEndpoint()
	c.refused = true
	c.step = Step{Action: Respond, Bytes: b}
	w.respond(c)
}

// clientLeft closes a client that has gone before it was joined.
func (w *worker) clientLeft(c *Client) {
	if !c.refused && c.phase != lingering { // a client that was refused, or has its response, does not count as left
		w.leftClients++
		if c.Record != nil {
			c.Record.Outcome = record.Left
		}
	}
	w.closeClient(c)
}

func (w *worker) closeClient(c *Client) {
	if n := c.sent(); n > 0 {
		sent := relay.Result{BToA: relay.Flow{Copied: n}}
		w.ended.Add(sent)
		w.deferred.ended(bindingOf(c.serving.service.Limits), &sent)
	}
	w.recordUnjoined(c)
	n, s, fd, admissionToken, admitted := c.conn, c.serving, c.fd, c.AdmissionToken, c.admitted
	c.dial.Cancel()
	w.loop.Drop(c.id)
	w.freeClient(c)
	closeSocket(fd)
	w.freeSlot(n, s)
	w.group.release(s, admitted, admissionToken)
}

func (w *worker) freeSlot(n *conn, s *serving) {
	w.free(n)
	w.counts.Active--
	s.leave(w)
	w.load.Add(-1)
}

// release ends a client that had a place, and wakes clients for which there is room now. It does not serve them itself,
// because the relay may call it, on any goroutine.
func (g *Group) release(s *serving, admitted bool, admissionToken uint64) {
	if admitted {
		s.service.Admitter.Released(admissionToken)
	}
	g.gate.release()
	if g.gate.full.Load() || g.gate.holds.Load() > 0 || g.paused.Load() > 0 || s.socket.short.Load() > 0 {
		g.wake()
	}
	s.socket.Release()
}

// closeSocket closes a socket. No caller can use the error of close(2).
func closeSocket(fd int) { _ = sys.Close(fd) }

// resetSocket closes a socket by a reset, which its peer cannot take for an orderly end.
func resetSocket(fd int) {
	_ = sys.AbortOnClose(fd)
	closeSocket(fd)
}

// peerName names the other end of a socket; for a unix socket it usually has no name.
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

// lingerTime is how long a client that was sent a response may take to read it and end.
const lingerTime = 5 * time.Second

// respond sends a client its response. The connection is closed when the client has ended it, or after lingerTime. After an
// earlier close, bytes from the client would cause a reset, which may overtake the response (RFC 9112, 9.6, describes this
// for HTTP).
func (w *worker) respond(c *Client) {
	c.phase, c.rest = responding, c.step.Bytes
	w.endSearch(c)
	w.unreserve(c)
	w.fdAvailable(c)
	w.arm(c, cmp.Or(max(c.step.Timeout, 0), lingerTime))
	w.respondOn(c)
}

// respondOn sends as much of the rest of the response as there is room for, and discards the client's bytes.
func (w *worker) respondOn(c *Client) {
	if c.phase == responding {
		n, err := sendSome(c.fd, c.rest, 0)
		if err != nil {
			w.clientLeft(c)
			return
		}
		if c.rest = c.rest[n:]; len(c.rest) == 0 {
			c.phase = lingering
			_ = sys.ShutdownWrite(c.fd)
		}
	}
	w.discard(c)
}

// sent returns how many bytes of a response the client was sent.
func (c *Client) sent() int64 {
	if c.phase == responding || c.phase == lingering {
		return int64(len(c.step.Bytes) - len(c.rest))
	}
	return 0
}

// untaken returns how many bytes of the response the client has not acknowledged, although it had its time. It is 0 once the
// client has ended or reset: then an acknowledgement may be on its way.
func (c *Client) untaken() int64 {
	state, err := sys.TCPState(c.fd)
	if err != nil || state != sys.TCP_ESTABLISHED && state != sys.TCP_FIN_WAIT1 {
		return 0
	}
	n, err := sys.SIOCOUTQ(c.fd)
	if err == nil && state == sys.TCP_FIN_WAIT1 {
		n-- // the FIN
	}
	return int64(max(n, 0))
}

// discards is how many reads one turn makes to throw away a client's bytes.
const discards = 4

// discard throws away a client's bytes, and closes it when it has ended.
func (w *worker) discard(c *Client) {
	first := w.firstBytes()
	for range discards {
		n, err := sys.Recv(c.fd, first, sys.MSG_DONTWAIT)
		switch {
		case err == syscall.EAGAIN:
			return
		case err == nil && n == 0 && c.phase == responding:
			return // the client still reads
		case err == nil && n == 0, err != nil && err != syscall.EINTR:
			w.closeClient(c)
			return
		}
	}
	w.loop.Again(c.id)
}
