package worker

import (
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// prefaceTime is how long an endpoint may have no room for its preface.
const prefaceTime = 5 * time.Second

// writeProxyHeader writes the header before the client's bytes, and then joins. A new
// connection has room for it as a rule. If the client's bytes are known already they go with
// it. If it is only known that there are some, they are moved next, and the kernel is asked to
// let both go together; if not, Nagle's algorithm would hold back the following bytes, so
// TCP_NODELAY is set.
func (c *worker) writeProxyHeader(d *pendingClient) {
	c.preface = c.preface[:0]
	if d.step.ProxyHeader {
		c.preface = d.search.ProxyHeader(c.preface)
	}
	size, flags := len(c.preface), 0
	switch {
	case len(d.buffered) > 0:
		c.preface = append(c.preface, d.buffered...)
	case len(d.ahead) > 0 && c.group.cfg.Relay.Engine() != relay.EngineSplice:
		c.preface = append(c.preface, d.ahead...)
	case d.queued():
		flags = sys.MSG_MORE
	default:
		d.undelay()
	}
	n, err := sendSome(d.endpoint.fd, c.preface, flags)
	if len(d.buffered) > 0 {
		size, d.moved = len(c.preface), len(d.buffered)
	} else {
		d.moved = max(n-size, 0)
	}
	switch {
	case n > size || err == nil && n == size:
		c.join(d) // if there was an error, too: the session meets it again
	case err != nil:
		d.phase, d.rest = prefacing, c.preface[n:]
		c.failedProxyHeader(d, err)
	default:
		d.undelay()
		d.phase, d.rest = prefacing, append([]byte(nil), c.preface[n:size]...)
		c.loop.Arm(&d.timer, (*dialTimer)(d), prefaceTime)
		c.loop.Hand(d.endpoint.id, (*headerWrite)(d))
	}
}

// failedProxyHeader goes on after an endpoint that has not taken all of the header. One that
// has got some of the bytes taken from the client is the last.
func (c *worker) failedProxyHeader(d *pendingClient, err error) {
	if d.sentOn() {
		c.refuse(d, err)
		return
	}
	d.moved, d.rest = 0, nil
	c.failed(d, err)
}

// undelay switches Nagle's algorithm off.
func (d *pendingClient) undelay() {
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
	c := d.worker
	d.endpoint.events |= events
	n, err := sendSome(d.endpoint.fd, d.rest, 0)
	if err != nil {
		c.loop.Disarm(&d.timer)
		c.failedProxyHeader(d, err)
		return
	}
	if d.rest = d.rest[n:]; len(d.rest) == 0 {
		c.loop.Disarm(&d.timer)
		c.join(d)
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
