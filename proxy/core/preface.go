//go:build linux

package core

import (
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
)

// prefaceTime is how long an endpoint may have no room for its preface.
const prefaceTime = 5 * time.Second

// writePreface writes what is to come before what the client sends, and then joins. A
// new connection has room for it as a rule. If the client has sent something already,
// that is moved next, and the kernel is told to let both go together; if not, Nagle's
// algorithm would hold back what follows, so TCP_NODELAY is set.
func (c *core) writePreface(d *dialing) {
	c.preface = d.search.Preface(c.preface[:0])
	flags := 0
	if d.queued() {
		flags = sys.MSG_MORE
	} else {
		d.undelay()
	}
	n, err := sendSome(d.endpoint.fd, c.preface, flags)
	switch {
	case err != nil:
		c.failed(d, err)
	case n == len(c.preface):
		c.join(d)
	default:
		d.undelay()
		d.phase, d.rest = prefacing, append([]byte(nil), c.preface[n:]...)
		c.loop.Arm(&d.timer, (*dialTimer)(d), prefaceTime)
		c.loop.Hand(d.endpoint.id, (*preface)(d))
	}
}

// undelay switches Nagle's algorithm off.
func (d *dialing) undelay() {
	if d.step.Address.Path == "" {
		d.undelayed = sys.SetsockoptInt(d.endpoint.fd, sys.IPPROTO_TCP, sys.TCP_NODELAY, 1) == nil
	}
}

// queued reports whether the client has sent something that is there still. What epoll
// has told of may be a PROXY header that was consumed; an end of file is not told of by
// it alone.
func (d *dialing) queued() bool {
	p := &d.serving.service.Preread
	const all = loop.Readable | loop.PeerClosed | loop.HungUp
	return p.Hello || p.Data || p.Header == nil && d.events&all == loop.Readable
}

// A preface is a dialing of which an endpoint has not taken all of it.
type preface dialing

// Ready is called for the endpoint.
func (p *preface) Ready(_ uint8, events loop.Events) {
	d := (*dialing)(p)
	c := d.core
	d.endpoint.events |= events
	n, err := sendSome(d.endpoint.fd, d.rest, 0)
	if err != nil {
		c.loop.Disarm(&d.timer)
		c.failed(d, err)
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
