package worker

import (
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// headerTimeout is how long an endpoint may have no room for its header.
const headerTimeout = 5 * time.Second

// writeProxyHeader writes the header before the client's bytes, and then joins. A new
// connection has room for it as a rule. If the client's bytes are known already they go with
// it. If it is only known that there are some, they are moved next, and the kernel is asked to
// let both go together; if not, Nagle's algorithm would hold back the following bytes, so
// TCP_NODELAY is set.
func (w *worker) writeProxyHeader(d *pendingClient) {
	w.header = w.header[:0]
	if d.step.ProxyHeader {
		w.header = d.search.ProxyHeader(w.header)
	}
	size, flags := len(w.header), 0
	switch {
	case len(d.buffered) > 0:
		w.header = append(w.header, d.buffered...)
	case len(d.ahead) > 0 && w.group.cfg.Relay.Engine() != relay.EngineSplice:
		w.header = append(w.header, d.ahead...)
	case d.queued():
		flags = sys.MSG_MORE
	default:
		d.setNoDelay()
	}
	n, err := sendSome(d.endpoint.fd, w.header, flags)
	if len(d.buffered) > 0 {
		size, d.moved = len(w.header), len(d.buffered)
	} else {
		d.moved = max(n-size, 0)
	}
	switch {
	case n > size || err == nil && n == size:
		w.join(d) // if there was an error, too: the session meets it again
	case err != nil:
		d.phase, d.rest = writingHeader, w.header[n:]
		w.failedProxyHeader(d, err)
	default:
		d.setNoDelay()
		d.phase, d.rest = writingHeader, append([]byte(nil), w.header[n:size]...)
		w.loop.Arm(&d.timer, (*dialTimer)(d), headerTimeout)
		w.loop.Hand(d.endpoint.id, (*headerWrite)(d))
	}
}

// failedProxyHeader goes on after an endpoint that has not taken all of the header. One that
// has got some of the bytes taken from the client is the last.
func (w *worker) failedProxyHeader(d *pendingClient, err error) {
	if d.sentOn() {
		w.refuse(d, err)
		return
	}
	d.moved, d.rest = 0, nil
	w.failed(d, err)
}

// setNoDelay switches Nagle's algorithm off.
func (d *pendingClient) setNoDelay() {
	if d.step.Address.Path == "" {
		d.undelayed = sys.SetsockoptInt(d.endpoint.fd, sys.IPPROTO_TCP, sys.TCP_NODELAY, 1) == nil
	}
}

// queued reports whether bytes of the client are queued. The event of epoll may have been a
// PROXY header that was consumed; an end of file is not reported by it alone.
func (d *pendingClient) queued() bool {
	p := &d.serving.service.Preread
	const all = loop.Readable | loop.PeerClosed | loop.HungUp
	return p.Hello || p.Data || p.Header == nil && d.events&all == loop.Readable
}

// A headerWrite is a pending client whose endpoint has not taken the whole PROXY header yet.
type headerWrite pendingClient

// Ready is called for the endpoint.
func (p *headerWrite) Ready(_ uint8, events loop.Events) {
	d := (*pendingClient)(p)
	w := d.worker
	d.endpoint.events |= events
	n, err := sendSome(d.endpoint.fd, d.rest, 0)
	if err != nil {
		w.loop.Disarm(&d.timer)
		w.failedProxyHeader(d, err)
		return
	}
	if d.rest = d.rest[n:]; len(d.rest) == 0 {
		w.loop.Disarm(&d.timer)
		w.join(d)
	}
}

// sendSome sends as much as there is room for.
func sendSome(fd int, b []byte, flags int) (sent int, err error) {
	for sent < len(b) {
		n, err := sys.Send(fd, b[sent:], flags|sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		sent += n
		switch err {
		case nil, syscall.EINTR:
		case syscall.EAGAIN:
			return sent, nil
		default:
			return sent, err
		}
	}
	return sent, nil
}
