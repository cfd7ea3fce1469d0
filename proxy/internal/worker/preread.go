package worker

import (
	"bytes"
	"cmp"
	"errors"
	"syscall"
	"time"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/clienthello"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/source"
)

// scratchSize is how many first bytes are looked at, at most: the largest hello, which is larger than any header of the
// PROXY protocol.
const scratchSize = clienthello.Max

// A client's first bytes are peeked at, into one buffer that the worker owns: they stay in the socket's queue, so that
// clients that send them bit by bit hold no memory here. A client may change them there: pages that it sends by sendfile(2)
// are the pages that are peeked at. So whatever has decided something is copied, and this copy is what later looks and the
// endpoint get. As long as bytes are missing, the socket's low-water mark is raised to the least length that the length
// fields allow, and fewer bytes raise no event (tcp(7), net/ipv4/tcp.c: tcp_set_rcvlowat, which raises an edge itself if
// they have come meanwhile). A unix socket has no such mark (net/unix/af_unix.c, unix_poll): each piece is looked at, and costs a peek. Each piece also
// takes its share of the sender's buffer, whatever its size, so that at most some hundred pieces can wait.

// preread looks at the first bytes, one kind after the other, before a target is chosen. A TCP client with an unknown
// source is refused: no rule could be applied to it, not even the rule whether to trust its header.
func (w *worker) preread(c *Client) {
	p := &c.serving.service.Preread
	switch {
	case c.tcp && !c.Peer().Known():
		w.refuse(c, source.ErrUnknown)
	case p.expectsHeader(c):
		w.expect(c, awaitHeader, p.Header.Wait())
	case c.tcp: // Admit has checked the source
		w.prereadMore(c)
	default:
		w.admitSource(c)
	}
}

// admitSource continues when the source of a client is known that was not known at accept.
func (w *worker) admitSource(c *Client) {
	if who := c.serving.service.Admitter; who != nil {
		if err := who.AdmitSource(c, w.loop.Now()); err != nil {
			w.refuse(c, err)
			return
		}
	}
	w.prereadMore(c)
}

// prereadMore looks at the bytes that the route depends on.
func (w *worker) prereadMore(c *Client) {
	w.arrived.note(c, w.loop.Now())
	p := &c.serving.service.Preread
	switch {
	case p.Postgres != nil:
		w.expect(c, awaitPostgres, p.Wait())
	case p.First != nil:
		w.recognise(c)
	case p.Hello:
		w.expect(c, awaitHello, p.Wait())
	case p.Data:
		w.expect(c, awaitData, p.Wait())
	default:
		w.search(c)
	}
}

// expect waits at most the given time for the client's data of a phase. It may have come already. 0: the running timer
// goes on.
func (w *worker) expect(c *Client, p phase, within time.Duration) {
	c.phase = p
	if within > 0 {
		w.arm(c, within)
	}
	if c.events&arrived != 0 || c.buffered != nil {
		w.peek(c)
	}
}

// arrived are the events after which there may be something to read.
const arrived = loop.Readable | loop.PeerClosed | loop.HungUp

func (w *worker) peek(c *Client) {
	w.peeks++
	if c.buffered != nil || c.startsUrgent() {
		w.bufferPreread(c)
		return
	}
	b := w.firstBytes()[:c.maxPreread()]
	n, err := peekAt(c.fd, b)
	switch {
	case err == syscall.EAGAIN: // what was reported was the PROXY header
		c.events &^= loop.Readable
		return
	case err != nil, n == 0: // for example, the client only looks whether the port is open
		w.clientLeft(c)
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
		if n < int(c.raised) { // fewer than asked for: the kernel may have no room for more, and reports that again
			c.raised = 0
		}
		c.raise(need)
	}
}

// startsUrgent reports whether the next byte was sent as urgent data. A peek shows it like any other byte, so it helps to
// decide the route. But the endpoint would get it as urgent data, and read only the bytes behind it. Reading it from the
// socket makes it a byte of the stream. A peek stops at a later urgent mark.
func (c *Client) startsUrgent() bool {
	if !c.tcp {
		return false
	}
	at, err := sys.SIOCATMARK(c.fd)
	return at || err != nil
}

// maxPreread returns the most bytes to look at in the present phase.
func (c *Client) maxPreread() int {
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

// length returns the number of bytes at which the next look is worth it.
func (c *Client) length(b []byte) (int, error) {
	switch c.phase {
	case awaitHeader:
		return c.serving.service.Preread.Header.Length(b)
	case awaitHello:
		return clienthello.Length(b)
	case awaitFirst, awaitSilence:
		if c.buffered == nil { // the client may have changed what an earlier look has seen
			c.First = firstbytes.Facts{}
		}
		return c.serving.service.Preread.First.Look(c, b)
	case looking:
		return c.step.Need, nil
	case awaitPostgres:
		return postgres.Length(b)
	default:
		return 1, nil
	}
}

func (w *worker) prereadComplete(c *Client, b []byte) {
	c.lower()
	if c.phase == awaitPostgres {
		w.postgresMessage(c, b)
		return
	}
	w.loop.Disarm(&c.timer)
	switch c.phase {
	case awaitHeader:
		n, err := c.serving.service.Preread.Header.Parse(b, &c.Header)
		switch {
		case err == nil && c.buffered != nil:
			c.buffered = c.buffered[n:]
		case err == nil:
			err = consume(c.fd, b[:n], 0)
		}
		if err != nil {
			w.refuse(c, err)
			return
		}
		c.phase = dialing
		if c.Record != nil {
			c.Record.Header = w.loop.Now()
		}
		w.admitSource(c)
	case awaitHello:
		var err error
		if c.Hello, err = clienthello.Parse(b); err != nil {
			w.prereadFailed(c, err)
			return
		}
		c.First.Greeted(&c.Hello)
		c.greeted(b, &c.Hello)
		c.keep(b, c.hello.size)
		w.prereadRead(c)
	case awaitFirst, awaitSilence:
		if c.First.Is(firstbytes.TLS) == firstbytes.Yes {
			c.greeted(b, &c.First.Hello)
		}
		c.keep(b, max(c.hello.size, c.First.Judged()))
		w.recognised(c)
	case looking:
		w.looked(c, b, false)
	default:
		w.prereadOver(c)
	}
}

func (w *worker) prereadRead(c *Client) {
	if err := w.charge(c); err != nil {
		w.refuse(c, err)
		return
	}
	w.prereadOver(c)
}

// prereadOver continues when the first bytes are there, or are not waited for any more.
func (w *worker) prereadOver(c *Client) {
	if c.Record != nil {
		c.Record.Preread = w.loop.Now()
		learned(c.Record, c)
	}
	w.search(c)
}

// prereadFailed ends the wait for bytes that have not come: the client is refused, unless it is served without a hello.
func (w *worker) prereadFailed(c *Client, cause error) {
	if c.phase == looking {
		w.lookFailed(c, cause)
		return
	}
	if c.phase == awaitHeader && cause == ErrPrereadEnded {
		cause = ErrHeaderEnded
	}
	p := &c.serving.service.Preread
	silent := c.silent()
	cut := !silent && (errors.Is(cause, ErrPrereadTimeout) || cause == ErrPrereadEnded) // in the middle of a hello: its name is unknown
	if c.phase != awaitHello || !p.AnyHello || cut || silent && p.Data {
		w.refuse(c, cause)
		return
	}
	w.loop.Disarm(&c.timer)
	c.lower()
	w.hellosMissing++
	w.prereadOver(c)
}

// silent reports whether the client has sent nothing, or nothing behind its PROXY header.
func (c *Client) silent() bool { return c.events&arrived == 0 && len(c.buffered) == 0 }

// tooLate returns why a client is refused that has not sent its first bytes in time.
func (w *worker) tooLate(c *Client) error {
	p := &c.serving.service.Preread
	cause, after, of := ErrPrereadTimeout, p.Wait(), "the bytes that determine its route"
	switch {
	case c.phase == awaitHeader:
		cause, after, of = ErrHeaderTimeout, p.Header.Wait(), "its PROXY header"
	case c.phase == awaitHello, c.First.Is(firstbytes.TLS) == firstbytes.Yes:
		of = "its TLS hello"
	case c.phase == awaitPostgres, c.First.Is(firstbytes.Postgres) == firstbytes.Yes:
		of = "its PostgreSQL message"
	case c.phase == looking:
		after, of = cmp.Or(c.step.Timeout, after), "the bytes that a filter needs"
	}
	n := len(c.buffered)
	if n == 0 {
		n, _ = peekAt(c.fd, w.firstBytes()[:c.maxPreread()])
	}
	return TooLate(cause, after, n, of)
}

// maxKept is the size up to which the memory for a client's first bytes is used again and counts against no limit. Most
// hellos are smaller.
const maxKept = 2 << 10

// keep keeps the first n bytes of b, which a peek has shown, because they have decided something. They stay in the socket's
// queue until an endpoint has them: as long as a unix socket holds bytes, its client gets a reset if it is refused. If these
// are all bytes of the client, events report only later ones from now on.
func (c *Client) keep(b []byte, n int) {
	if c.buffered != nil || len(b) == 0 {
		return
	}
	if n <= maxKept {
		c.room = append(c.room[:0], b[:n]...)
		c.buffered = c.room
	} else {
		c.buffered = bytes.Clone(b[:n])
	}
	c.unread = n
	if c.tcp && n == len(b) && n < c.maxPreread() && c.events&loop.Urgent == 0 { // a peek stops at an urgent mark
		c.events &^= loop.Readable
	}
}

// drain throws away the client's first bytes that are kept and still queued.
func (c *Client) drain() error {
	n := c.unread
	c.unread = 0
	return c.discard(n)
}

// discard throws away the next n bytes of the client's queue. A peek has shown them.
func (c *Client) discard(n int) error {
	// MSG_TRUNC: TCP throws the bytes away and copies nothing (tcp(7)).
	return consume(c.fd, c.worker.firstBytes()[:n], sys.MSG_TRUNC)
}

// peekAt copies the bytes that a socket has, and leaves them there.
func peekAt(fd int, b []byte) (n int, err error) {
	for {
		if n, err = sys.Recv(fd, b, sys.MSG_PEEK|sys.MSG_DONTWAIT); err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// consume takes exactly the peeked bytes out of the queue.
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

// raise makes the kernel report n bytes, and no fewer, unless it has no room for them. A call for the same n does nothing
// unless the peek is counted: otherwise bytes behind an urgent mark, which a peek does not show, would be reported again
// and again.
func (c *Client) raise(n int) {
	if c.tcp && n > int(c.raised) {
		c.raised = int32(n)
		_ = sys.SetsockoptInt(c.fd, sys.SOL_SOCKET, sys.SO_RCVLOWAT, n) // on an error each piece is reported
	}
}

func (c *Client) lower() {
	if c.raised > 0 {
		c.raised = 0
		_ = sys.SetsockoptInt(c.fd, sys.SOL_SOCKET, sys.SO_RCVLOWAT, 1)
	}
}

// A client that sends its first bytes one by one can make the kernel ignore the low-water mark: each piece takes a buffer
// of its own, and when these fill the receive buffer, or have closed the window, every further piece is reported
// (net/ipv4/tcp.c, tcp_epollin_ready; some 150 bytes are enough). Each peek would then go over all of them again, until the
// window is shut and the rest never comes. So from there on the client's bytes are taken out of the socket, which has room
// again, into memory here: at most as many as would have been looked at, and of all clients together at most
// [Config.PrereadMemory].
//
// A unix socket has no such mark, and its sender is charged for each piece. Once they fill the sender's buffer it can send
// no more, and no event comes; this cannot be seen from here. So the client's bytes are taken after the first peek that
// shows too little.
//
// First bytes without a length field (an HTTP/1 header) are reported and looked at piece by piece. After some pieces these
// are taken too.
const (
	vainPeeksTCP   = 2
	vainPeeksUnix  = 1
	vainPeeksFirst = 8
)

// futilePeek counts a peek that has shown too little although the kernel was asked to wait for more. It reports whether the
// queued bytes are to be taken from now on.
func (c *Client) futilePeek(n int) bool {
	most := uint8(vainPeeksTCP)
	switch {
	case !c.tcp:
		most = vainPeeksUnix
	case n < int(c.raised):
	case c.phase.recognises():
		most = vainPeeksFirst
	default:
		return false
	}
	c.futilePeeks++
	return c.futilePeeks >= most
}

// bufferPreread looks at the bytes taken so far, and takes more of the client's bytes until they are enough.
func (w *worker) bufferPreread(c *Client) {
	if c.buffered == nil {
		c.buffered, c.First = []byte{}, firstbytes.Facts{}
	}
	if err := c.drain(); err != nil {
		w.clientLeft(c)
		return
	}
	if w.loop.Late() { // taking is slow, as the kernel frees one buffer for each piece: others go first
		w.loop.Again(c.id)
		return
	}
	first := w.firstBytes()
	for {
		need, err := c.length(c.buffered)
		switch {
		case err != nil:
			w.prereadFailed(c, err)
			return
		case len(c.buffered) > 0 && need <= len(c.buffered):
			w.prereadComplete(c, c.buffered)
			return
		}
		n, err := sys.Recv(c.fd, first[:c.maxPreread()-len(c.buffered)], sys.MSG_DONTWAIT)
		switch {
		case n > 0:
			c.buffered = append(c.buffered, first[:n]...)
			w.taken += int64(n)
			if err := w.charge(c); err != nil {
				w.refuse(c, err)
				return
			}
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			c.events &^= loop.Readable
			if c.raised = 0; len(c.buffered) > 0 { // the queue has fewer bytes now; the first byte shows that the client is not silent
				c.raise(need - len(c.buffered))
			}
			return
		case err == nil && len(c.buffered) > 0:
			w.prereadFailed(c, ErrPrereadEnded)
			return
		default:
			w.clientLeft(c)
			return
		}
	}
}

// charge counts the memory of a client's first bytes, and fails if none is left.
func (w *worker) charge(c *Client) error {
	n := cap(c.buffered) - maxKept
	for _, name := range c.First.Hello.ALPN {
		n += int(unsafe.Sizeof(name)) + len(name)
	}
	return w.group.charge(&c.charged, n)
}

// charge raises a client's part of PrereadMemory to at least n bytes, if enough is left.
func (g *Group) charge(charged *int32, n int) error {
	n -= int(*charged)
	if n <= 0 {
		return nil
	}
	if g.prereads.Add(int64(n)) > g.cfg.PrereadMemory {
		g.prereads.Add(-int64(n))
		return ErrPrereadMemory
	}
	*charged += int32(n)
	return nil
}

func (g *Group) uncharge(charged *int32) {
	g.prereads.Add(-int64(*charged))
	*charged = 0
}

// recognise looks at a client's first bytes until they decide its route. Some routes are decided without any.
func (w *worker) recognise(c *Client) {
	p := &c.serving.service.Preread
	need, err := p.First.Look(c, nil)
	switch {
	case err != nil:
		w.refuse(c, err)
	case need == 0:
		w.recognised(c)
	case p.Silence > 0 && p.Silence < p.Wait():
		w.expect(c, awaitSilence, p.Silence)
	default:
		w.expect(c, awaitFirst, p.Wait())
	}
}

func (w *worker) recognised(c *Client) {
	p, first := &c.serving.service.Preread, &c.First
	c.Hello = first.Hello
	if p.Data && first.Seen() == 0 && !first.Silent {
		w.expect(c, awaitData, p.Wait())
		return
	}
	w.prereadRead(c)
}

// silenceOver continues when a client has been silent for the time after which it may get a
// route for silent clients. If there is no such route, or the client has sent something, the
// worker waits for its bytes.
func (w *worker) silenceOver(c *Client) {
	p := &c.serving.service.Preread
	c.phase = awaitFirst
	if c.silent() && p.First.Silent(c) {
		w.recognised(c)
		return
	}
	w.arm(c, p.Wait()-p.Silence)
}

// look looks at the client's first bytes for its search, as in preread.
func (w *worker) look(c *Client) {
	if c.step.Timeout > 0 {
		w.arm(c, c.step.Timeout)
	}
	c.phase, c.futilePeeks = looking, 0
	w.peek(c)
}

// looked continues with the first bytes. When it returns, c may no longer be in use.
func (w *worker) looked(c *Client, b []byte, ended bool) {
	if c.hello.size == 0 {
		if hello, err := clienthello.Parse(b); err == nil { // the search may use the name
			c.greeted(b, &hello)
		}
	}
	c.keep(b, len(b))
	if err := w.charge(c); err != nil {
		w.refuse(c, err)
		return
	}
	c.Looked, c.LookedEnded = b[:min(len(b), c.step.Most)], ended
	w.proceed(c)
}

// lookFailed continues when fewer bytes have come than the search wants: with these, if the client sends no more.
func (w *worker) lookFailed(c *Client, cause error) {
	if cause != ErrPrereadEnded {
		w.refuse(c, cause)
		return
	}
	w.loop.Disarm(&c.timer)
	c.lower()
	if c.buffered != nil {
		w.looked(c, c.buffered, true)
		return
	}
	b := w.firstBytes()[:c.maxPreread()]
	n, err := peekAt(c.fd, b)
	if err != nil && err != syscall.EAGAIN {
		w.clientLeft(c)
		return
	}
	w.looked(c, b[:n], true)
}
