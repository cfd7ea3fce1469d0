package worker

import (
	"cmp"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/clienthello"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/source"
)

// scratchSize is how much of a client's first bytes is looked at, at most: the largest hello,
// which is more than the largest header of the PROXY protocol.
const scratchSize = clienthello.Max

// A client's first bytes are peeked at, into one buffer of the worker's: they stay in the
// socket's queue, so that clients that send them bit by bit hold no memory of ours, and the
// relay splices them like everything else. As long as something is missing, and their own
// length fields have a lower bound, the socket's low-water mark is raised to that, and fewer
// bytes raise no event (tcp(7), net/ipv4/tcp.c: tcp_set_rcvlowat, which raises an edge itself
// if they have come meanwhile). A unix socket knows no such mark (net/unix/af_unix.c,
// unix_poll): there each piece is looked at, and costs a peek; and each piece takes its share
// of the sender's buffer, whatever its size, so that some hundred that are not consumed are
// the most.

// preread looks at the first bytes before a target is chosen, in turn. A client of TCP with an
// unknown source is refused, whatever else may be known of it: it could not be held against
// any rule, not even whether its header is to be believed.
func (w *worker) preread(c *pendingClient) {
	p := &c.serving.service.Preread
	switch {
	case c.conn.tcp() && !c.client.Peer().Known():
		w.refuse(c, source.ErrUnknown)
	case p.expectsHeader(&c.client):
		w.loop.Arm(&c.timer, (*clientTimer)(c), p.Header.Wait())
		w.expect(c, awaitHeader)
	case c.conn.tcp(): // Admit has checked the source
		w.prereadMore(c)
	default:
		w.admitSource(c)
	}
}

// admitSource goes on when the source of the client is known, and was not when it was accepted.
func (w *worker) admitSource(c *pendingClient) {
	if who := c.serving.service.Admitter; who != nil {
		if err := who.AdmitSource(&c.client, w.loop.Now()); err != nil {
			w.refuse(c, err)
			return
		}
	}
	w.prereadMore(c)
}

// prereadMore looks at the bytes that the route depends on.
func (w *worker) prereadMore(c *pendingClient) {
	w.arrived.note(&c.client, w.loop.Now())
	p := &c.serving.service.Preread
	switch {
	case p.Postgres != nil:
		w.loop.Arm(&c.timer, (*clientTimer)(c), p.Wait())
		w.expect(c, awaitPostgres)
	case p.First != nil:
		w.recognise(c)
	case p.Hello:
		w.loop.Arm(&c.timer, (*clientTimer)(c), p.Wait())
		w.expect(c, awaitHello)
	case p.Data:
		w.loop.Arm(&c.timer, (*clientTimer)(c), p.Wait())
		w.expect(c, awaitData)
	default:
		w.search(c)
	}
}

// expect waits for the client's data in a phase, which may be there already.
func (w *worker) expect(c *pendingClient, p phase) {
	c.phase = p
	if c.events&arrived != 0 || c.buffered != nil {
		w.peek(c)
	}
}

// arrived are the events after which there may be something to be read.
const arrived = loop.Readable | loop.PeerClosed | loop.HungUp

// peek looks at the bytes that a client has sent so far.
func (w *worker) peek(c *pendingClient) {
	w.peeks++
	if c.buffered != nil {
		w.bufferPreread(c)
		return
	}
	if c.startsUrgent() {
		w.bufferPreread(c)
		return
	}
	b := w.firstBytes()[:c.maxPreread()]
	n, err := sys.Recv(c.conn.fd(), b, sys.MSG_PEEK|sys.MSG_DONTWAIT)
	switch {
	case err == syscall.EAGAIN:
		return
	case err == syscall.EINTR:
		w.loop.Again(c.id)
		return
	case err != nil:
		w.clientLeft(c)
		return
	case n == 0:
		w.clientLeft(c) // a client that only looks whether the port is open
		return
	}
	need, err := c.length(b[:n])
	switch {
	case err != nil:
		w.prereadFailed(c, err)
	case need <= n:
		w.prereadComplete(c, b[:n])
	case c.events&(loop.PeerClosed|loop.HungUp) != 0:
		w.prereadFailed(c, ErrPrereadEnded)
	case c.futilePeek(n):
		w.bufferPreread(c)
	default:
		if n < int(c.raised) { // the kernel may have no room for more: then it reports that again
			c.raised = 0
		}
		c.raise(need)
	}
}

// startsUrgent reports whether the next byte was sent as urgent data. A peek shows it like any other, but the endpoint would get it as
// urgent, and read the bytes behind it alone: others than those that a route was chosen by. Taken out of the socket it is a byte of the stream. A
// mark that comes later ends what a peek shows.
func (c *pendingClient) startsUrgent() bool {
	if !c.conn.tcp() {
		return false
	}
	at, err := sys.SIOCATMARK(c.conn.fd())
	return at || err != nil
}

// maxPreread is how many bytes are looked at in the present phase.
func (c *pendingClient) maxPreread() int {
	switch c.phase {
	case awaitHeader:
		return min(cmp.Or(max(c.serving.service.Preread.Header.Max, 0), proxyproto.DefaultMax)+proxyproto.MaxV1, scratchSize)
	case awaitHello:
		return clienthello.Max
	case awaitFirst, awaitSilence:
		return c.serving.service.Preread.First.Max()
	case looking:
		return min(c.step.Most, scratchSize)
	case awaitPostgres:
		return postgres.Max
	default:
		return 1
	}
}

// length says how many bytes there must be before it is worth looking again.
func (c *pendingClient) length(b []byte) (int, error) {
	switch c.phase {
	case awaitHeader:
		return c.serving.service.Preread.Header.Length(b)
	case awaitHello:
		return clienthello.Length(b)
	case awaitFirst, awaitSilence:
		return c.serving.service.Preread.First.Look(&c.client, b)
	case looking:
		return c.step.Need, nil
	case awaitPostgres:
		return postgres.Length(b)
	default:
		return 1, nil
	}
}

// prereadComplete goes on when the awaited bytes are there.
func (w *worker) prereadComplete(c *pendingClient, b []byte) {
	c.lower()
	if c.phase == awaitPostgres {
		w.postgresMessage(c, b)
		return
	}
	w.loop.Disarm(&c.timer)
	switch c.phase {
	case awaitHeader:
		n, err := c.serving.service.Preread.Header.Parse(b, &c.client.Header)
		switch {
		case err == nil && c.buffered != nil:
			c.buffered = c.buffered[n:]
		case err == nil:
			err = consume(c.conn.fd(), b[:n], 0)
		}
		if err != nil {
			w.refuse(c, err)
			return
		}
		c.phase = dialing
		if c.record != nil {
			c.record.Header = w.loop.Now()
		}
		w.admitSource(c)
	case awaitHello:
		var err error
		if c.client.Hello, err = clienthello.Parse(b); err != nil {
			w.prereadFailed(c, err)
			return
		}
		c.client.First.Greeted(&c.client.Hello)
		c.greeted(b, &c.client.Hello)
		c.keepAhead(b)
		w.prereadRead(c)
	case awaitFirst, awaitSilence:
		if c.client.First.Is(firstbytes.TLS) == firstbytes.Yes {
			c.greeted(b, &c.client.First.Hello)
		}
		c.keepAhead(b)
		w.recognised(c)
	case looking:
		w.looked(c, b, false)
	default:
		w.prereadOver(c)
	}
}

// prereadRead goes on with what was learned of the first bytes.
func (w *worker) prereadRead(c *pendingClient) {
	if err := w.charge(c); err != nil {
		w.refuse(c, err)
		return
	}
	w.prereadOver(c)
}

// prereadOver goes on when all that was looked at is there, or is not waited for any more.
func (w *worker) prereadOver(c *pendingClient) {
	if c.record != nil {
		c.record.Preread = w.loop.Now()
		learned(c.record, &c.client)
	}
	w.search(c)
}

// prereadFailed is the end of waiting for bytes that have not come: the client is refused, unless it
// is served without a hello.
func (w *worker) prereadFailed(c *pendingClient, cause error) {
	if c.phase == looking {
		w.lookFailed(c, cause)
		return
	}
	p := &c.serving.service.Preread
	silent := c.events&arrived == 0 && c.buffered == nil
	cut := !silent && (cause == ErrPrereadTimeout || cause == ErrPrereadEnded) // in the middle of a hello, whose name is not known
	if c.phase != awaitHello || !p.AnyHello || cut || silent && p.Data {
		w.refuse(c, cause)
		return
	}
	w.loop.Disarm(&c.timer)
	c.lower()
	w.hellosMissing++
	w.prereadOver(c)
}

// maxAhead is the most that is kept of a peek. It is more than hellos are, as a rule.
const maxAhead = 2 << 10

// keepAhead keeps the client's bytes, if they are all and not many, so that they can go in one
// segment, by one call, with the header before them. They stay in the socket's queue until an
// endpoint has them. Events report from here on the bytes after them. What is behind a hello is not kept.
func (c *pendingClient) keepAhead(b []byte) {
	hello := c.hello.upTo(b)
	if c.conn.tcp() && c.buffered == nil && len(hello) <= maxAhead && c.events&loop.Urgent == 0 {
		c.ahead = append(c.ahead[:0], hello...)
		if len(hello) == len(b) {
			c.events &^= loop.Readable
		}
	}
}

// takeAhead takes the bytes that the endpoint has got out of the client's queue, and puts the
// events right.
func (c *pendingClient) takeAhead() {
	if c.moved < len(c.ahead) || c.buffered != nil {
		c.events |= loop.Readable
	}
	if c.moved == 0 || c.buffered != nil {
		return
	}
	// MSG_TRUNC: TCP throws the bytes away and copies nothing (tcp(7)).
	if err := consume(c.conn.fd(), c.ahead[:c.moved], sys.MSG_TRUNC); err != nil {
		c.events |= loop.Failed
	}
}

// consume takes peeked bytes out of the queue, to the byte.
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

// raise has the kernel report n bytes, and no fewer, unless it has no room for them. It is not asked for
// the same again, but where that is counted: bytes that a peek does not show, because an urgent mark is
// before them, would be reported at once, and for ever.
func (c *pendingClient) raise(n int) {
	if c.conn.tcp() && n > int(c.raised) {
		c.raised = int32(n)
		_ = sys.SetsockoptInt(c.conn.fd(), sys.SOL_SOCKET, sys.SO_RCVLOWAT, n) // else each piece is reported
	}
}

// lower has the kernel report every byte again.
func (c *pendingClient) lower() {
	if c.raised > 0 {
		c.raised = 0
		_ = sys.SetsockoptInt(c.conn.fd(), sys.SOL_SOCKET, sys.SO_RCVLOWAT, 1)
	}
}
