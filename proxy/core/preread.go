//go:build linux

package core

import (
	"cmp"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/header"
	"github.com/penstock/penstock/proxy/hello"
	"github.com/penstock/penstock/proxy/source"
)

// scratchSize is how much of what a client sends first is looked at, at most: the largest
// header of the PROXY protocol, which is more than the largest hello.
const scratchSize = 16 + 1<<16

// What a client sends first is peeked at, into one buffer of the core's: it stays in
// the socket's queue, so that clients that send it bit by bit hold no memory of ours,
// and the relay splices it like everything else. As long as something is missing, and
// its own length fields say how much at least, the socket's low-water mark is raised to
// that, and fewer bytes wake nobody (tcp(7), net/ipv4/tcp.c: tcp_set_rcvlowat, which
// raises an edge itself if they have come meanwhile). A unix socket knows no such mark
// (net/unix/af_unix.c, unix_poll): there each piece is looked at, and costs a peek; and
// each piece takes its share of the sender's buffer, whatever its size, so that some
// hundred that are not consumed are the most.

// preread looks at what has to be looked at before a target is chosen, in turn. A client of
// TCP of whom it is not known where it comes from is refused, whatever else may be known of
// it: nothing could be held against any rule, not even whether its header is to be believed.
func (c *core) preread(d *dialing) {
	p := &d.serving.service.Preread
	switch {
	case d.conn.tcp && !d.client.Peer().Known():
		c.refuse(d, source.ErrUnknown)
	case p.expectsHeader(&d.client):
		c.loop.Arm(&d.timer, (*dialTimer)(d), p.Header.Wait())
		c.expect(d, awaitHeader)
	case d.conn.tcp: // Admit was told
		c.prereadMore(d)
	default:
		c.identified(d)
	}
}

// identified goes on when it is known who the client is, and was not when it was accepted.
func (c *core) identified(d *dialing) {
	if who := d.serving.service.Admitter; who != nil {
		if err := who.AdmitSource(&d.client, c.loop.Now()); err != nil {
			c.refuse(d, err)
			return
		}
	}
	c.prereadMore(d)
}

// prereadMore looks at what the route depends on.
func (c *core) prereadMore(d *dialing) {
	p := &d.serving.service.Preread
	switch {
	case p.Hello:
		c.loop.Arm(&d.timer, (*dialTimer)(d), p.wait())
		c.expect(d, awaitHello)
	case p.Data:
		c.loop.Arm(&d.timer, (*dialTimer)(d), p.wait())
		c.expect(d, awaitData)
	default:
		c.search(d)
	}
}

// expect waits for what the client sends in a phase, which may be there already.
func (c *core) expect(d *dialing, p phase) {
	d.phase = p
	if d.events&arrived != 0 || d.taken != nil {
		c.look(d)
	}
}

// arrived are the events after which there may be something to be read.
const arrived = loop.Readable | loop.PeerClosed | loop.HungUp

// look looks at what a client has sent so far.
func (c *core) look(d *dialing) {
	if c.scratch == nil {
		c.scratch = make([]byte, scratchSize)
	}
	c.peeks++
	if d.taken != nil {
		c.takeMore(d)
		return
	}
	b := c.scratch[:d.most()]
	n, err := sys.Recv(int(d.conn.fd), b, sys.MSG_PEEK|sys.MSG_DONTWAIT)
	switch {
	case err == syscall.EAGAIN:
		return
	case err == syscall.EINTR:
		c.loop.Again(d.id)
		return
	case err != nil:
		c.left(d)
		return
	case n == 0:
		c.left(d) // somebody who only looks whether anybody listens
		return
	}
	need, err := d.length(b[:n])
	switch {
	case err != nil:
		c.unmet(d, err)
	case need <= n:
		c.found(d, b[:n])
	case d.events&(loop.PeerClosed|loop.HungUp) != 0:
		c.unmet(d, ErrPrereadEnded)
	case d.inVain(n):
		c.takeMore(d)
	default:
		d.raise(need)
	}
}

// most is how many bytes are looked at in the present phase.
func (d *dialing) most() int {
	switch d.phase {
	case awaitHeader:
		return min(cmp.Or(max(d.serving.service.Preread.Header.Max, 0), header.DefaultMax)+header.MaxV1, scratchSize)
	case awaitHello:
		return hello.Max
	default:
		return 1
	}
}

// length says how many bytes there must be before it is worth looking again.
func (d *dialing) length(b []byte) (int, error) {
	switch d.phase {
	case awaitHeader:
		return d.serving.service.Preread.Header.Length(b)
	case awaitHello:
		return hello.Length(b)
	default:
		return 1, nil
	}
}

// found goes on when what was waited for is there.
func (c *core) found(d *dialing, b []byte) {
	c.loop.Disarm(&d.timer)
	d.lower()
	switch d.phase {
	case awaitHeader:
		n, err := d.serving.service.Preread.Header.Parse(b, &d.client.Header)
		switch {
		case err == nil && d.taken != nil:
			d.taken = d.taken[n:]
		case err == nil:
			err = consume(int(d.conn.fd), b[:n], 0)
		}
		if err != nil {
			c.refuse(d, err)
			return
		}
		d.phase = connection
		c.identified(d)
	case awaitHello:
		var err error
		if d.client.Hello, err = hello.Parse(b); err != nil {
			c.unmet(d, err)
			return
		}
		if d.client.Hello.Full {
			c.hellosFull++
		}
		d.keepAhead(b)
		c.search(d)
	default:
		c.search(d)
	}
}

// unmet is the end of waiting for what has not come: the client is refused, unless it is
// served without a hello.
func (c *core) unmet(d *dialing, cause error) {
	p := &d.serving.service.Preread
	silent := d.events&arrived == 0 && d.taken == nil
	if d.phase != awaitHello || !p.AnyHello || silent && p.Data {
		c.refuse(d, cause)
		return
	}
	c.loop.Disarm(&d.timer)
	d.lower()
	c.hellosMissing++
	c.search(d)
}

// mostAhead is of what is kept of a peek. It is more than hellos are, as a rule.
const mostAhead = 2 << 10

// keepAhead keeps what a client has sent, if that is all and not much, so that it can go
// in one segment, by one call, with what comes before it. It stays in the socket's queue
// until an endpoint has it. Events tell from here on of what comes after it.
func (d *dialing) keepAhead(b []byte) {
	if d.conn.tcp && d.taken == nil && len(b) <= mostAhead && d.events&loop.Urgent == 0 {
		d.ahead = append(d.ahead[:0], b...)
		d.events &^= loop.Readable
	}
}

// takeAhead takes out of the client's queue what the endpoint has got of it, and puts the
// events right.
func (d *dialing) takeAhead() {
	if d.moved < len(d.ahead) || d.taken != nil {
		d.events |= loop.Readable
	}
	if d.moved == 0 || d.taken != nil {
		return
	}
	// MSG_TRUNC: TCP throws the bytes away and copies nothing (tcp(7)).
	if err := consume(int(d.conn.fd), d.ahead[:d.moved], sys.MSG_TRUNC); err != nil {
		d.events |= loop.Failed
	}
}

// consume takes what was peeked out of the queue, to the byte.
func consume(fd int, b []byte, flags int) error {
	for len(b) > 0 {
		n, err := sys.Recv(fd, b, flags|sys.MSG_DONTWAIT)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return err
		case n == 0:
			return ErrPrereadEnded
		}
		b = b[n:]
	}
	return nil
}

// raise has the kernel tell of n bytes, and no fewer. It is not asked for the same
// again: what a peek does not show, because an urgent mark is before it, would be told
// of at once, and for ever.
func (d *dialing) raise(n int) {
	if d.conn.tcp && n > int(d.raised) {
		d.raised = int32(n)
		_ = sys.SetsockoptInt(int(d.conn.fd), sys.SOL_SOCKET, sys.SO_RCVLOWAT, n) // else each piece is told of
	}
}

// lower undoes that.
func (d *dialing) lower() {
	if d.raised > 0 {
		d.raised = 0
		_ = sys.SetsockoptInt(int(d.conn.fd), sys.SOL_SOCKET, sys.SO_RCVLOWAT, 1)
	}
}
