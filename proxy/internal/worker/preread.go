package worker

import (
	"cmp"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/clienthello"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/source"
)

// scratchSize is how much of a client's first bytes is looked at, at most: the largest header
// of the PROXY protocol, which is more than the largest hello.
const scratchSize = 16 + 1<<16

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
func (w *worker) preread(d *pendingClient) {
	p := &d.serving.service.Preread
	switch {
	case d.conn.tcp && !d.client.Peer().Known():
		w.refuse(d, source.ErrUnknown)
	case p.expectsHeader(&d.client):
		w.loop.Arm(&d.timer, (*dialTimer)(d), p.Header.Wait())
		w.expect(d, awaitHeader)
	case d.conn.tcp: // Admit had it
		w.prereadMore(d)
	default:
		w.admitSource(d)
	}
}

// admitSource goes on when the source of the client is known, and was not when it was accepted.
func (w *worker) admitSource(d *pendingClient) {
	if who := d.serving.service.Admitter; who != nil {
		if err := who.AdmitSource(&d.client, w.loop.Now()); err != nil {
			w.refuse(d, err)
			return
		}
	}
	w.prereadMore(d)
}

// prereadMore looks at the bytes that the route depends on.
func (w *worker) prereadMore(d *pendingClient) {
	p := &d.serving.service.Preread
	switch {
	case p.Hello:
		w.loop.Arm(&d.timer, (*dialTimer)(d), p.wait())
		w.expect(d, awaitHello)
	case p.Data:
		w.loop.Arm(&d.timer, (*dialTimer)(d), p.wait())
		w.expect(d, awaitData)
	default:
		w.search(d)
	}
}

// expect waits for the client's data in a phase, which may be there already.
func (w *worker) expect(d *pendingClient, p phase) {
	d.phase = p
	if d.events&arrived != 0 || d.buffered != nil {
		w.peek(d)
	}
}

// arrived are the events after which there may be something to be read.
const arrived = loop.Readable | loop.PeerClosed | loop.HungUp

// peek looks at the bytes that a client has sent so far.
func (w *worker) peek(d *pendingClient) {
	w.peeks++
	if d.buffered != nil {
		w.bufferPreread(d)
		return
	}
	b := w.firstBytes()[:d.maxPreread()]
	n, err := sys.Recv(int(d.conn.fd), b, sys.MSG_PEEK|sys.MSG_DONTWAIT)
	switch {
	case err == syscall.EAGAIN:
		return
	case err == syscall.EINTR:
		w.loop.Again(d.id)
		return
	case err != nil:
		w.left(d)
		return
	case n == 0:
		w.left(d) // a client that only looks whether the port is open
		return
	}
	need, err := d.length(b[:n])
	switch {
	case err != nil:
		w.prereadFailed(d, err)
	case need <= n:
		w.prereadComplete(d, b[:n])
	case d.events&(loop.PeerClosed|loop.HungUp) != 0:
		w.prereadFailed(d, ErrPrereadEnded)
	case d.futilePeek(n):
		w.bufferPreread(d)
	default:
		d.raise(need)
	}
}

// maxPreread is how many bytes are looked at in the present phase.
func (d *pendingClient) maxPreread() int {
	switch d.phase {
	case awaitHeader:
		return min(cmp.Or(max(d.serving.service.Preread.Header.Max, 0), proxyproto.DefaultMax)+proxyproto.MaxV1, scratchSize)
	case awaitHello:
		return clienthello.Max
	default:
		return 1
	}
}

// length says how many bytes there must be before it is worth looking again.
func (d *pendingClient) length(b []byte) (int, error) {
	switch d.phase {
	case awaitHeader:
		return d.serving.service.Preread.Header.Length(b)
	case awaitHello:
		return clienthello.Length(b)
	default:
		return 1, nil
	}
}

// prereadComplete goes on when the awaited bytes are there.
func (w *worker) prereadComplete(d *pendingClient, b []byte) {
	w.loop.Disarm(&d.timer)
	d.lower()
	switch d.phase {
	case awaitHeader:
		n, err := d.serving.service.Preread.Header.Parse(b, &d.client.Header)
		switch {
		case err == nil && d.buffered != nil:
			d.buffered = d.buffered[n:]
		case err == nil:
			err = consume(int(d.conn.fd), b[:n], 0)
		}
		if err != nil {
			w.refuse(d, err)
			return
		}
		d.phase = connection
		w.admitSource(d)
	case awaitHello:
		var err error
		if d.client.Hello, err = clienthello.Parse(b); err != nil {
			w.prereadFailed(d, err)
			return
		}
		if d.client.Hello.Full {
			w.hellosFull++
		}
		d.keepAhead(b)
		w.search(d)
	default:
		w.search(d)
	}
}

// prereadFailed is the end of waiting for bytes that have not come: the client is refused, unless it
// is served without a hello.
func (w *worker) prereadFailed(d *pendingClient, cause error) {
	p := &d.serving.service.Preread
	silent := d.events&arrived == 0 && d.buffered == nil
	if d.phase != awaitHello || !p.AnyHello || silent && p.Data {
		w.refuse(d, cause)
		return
	}
	w.loop.Disarm(&d.timer)
	d.lower()
	w.hellosMissing++
	w.search(d)
}

// maxAhead is the most that is kept of a peek. It is more than hellos are, as a rule.
const maxAhead = 2 << 10

// keepAhead keeps the client's bytes, if they are all and not many, so that they can go in one
// segment, by one call, with the header before them. They stay in the socket's queue until an
// endpoint has them. Events report from here on the bytes after them.
func (d *pendingClient) keepAhead(b []byte) {
	if d.conn.tcp && d.buffered == nil && len(b) <= maxAhead && d.events&loop.Urgent == 0 {
		d.ahead = append(d.ahead[:0], b...)
		d.events &^= loop.Readable
	}
}

// takeAhead takes the bytes that the endpoint has got out of the client's queue, and puts the
// events right.
func (d *pendingClient) takeAhead() {
	if d.moved < len(d.ahead) || d.buffered != nil {
		d.events |= loop.Readable
	}
	if d.moved == 0 || d.buffered != nil {
		return
	}
	// MSG_TRUNC: TCP throws the bytes away and copies nothing (tcp(7)).
	if err := consume(int(d.conn.fd), d.ahead[:d.moved], sys.MSG_TRUNC); err != nil {
		d.events |= loop.Failed
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

// raise has the kernel report n bytes, and no fewer. It is not asked for the same again: bytes
// that a peek does not show, because an urgent mark is before them, would be reported at once,
// and for ever.
func (d *pendingClient) raise(n int) {
	if d.conn.tcp && n > int(d.raised) {
		d.raised = int32(n)
		_ = sys.SetsockoptInt(int(d.conn.fd), sys.SOL_SOCKET, sys.SO_RCVLOWAT, n) // else each piece is reported
	}
}

// lower undoes that.
func (d *pendingClient) lower() {
	if d.raised > 0 {
		d.raised = 0
		_ = sys.SetsockoptInt(int(d.conn.fd), sys.SOL_SOCKET, sys.SO_RCVLOWAT, 1)
	}
}
