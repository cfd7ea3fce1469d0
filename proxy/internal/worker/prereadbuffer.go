package worker

import (
	"syscall"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
)

// A client that sends its first bytes one by one can make the kernel ignore the low-water
// mark: each piece takes a buffer of its own, and when they fill the receive buffer, or have
// closed the window, every further one is reported (net/ipv4/tcp.c, tcp_epollin_ready; some
// 150 bytes are enough). Each peek would then go over all of them again, and at last the
// window is shut and the rest never comes. So from there on its bytes are taken out of the
// socket, which has room again, into memory of ours: at most as much as would have been looked
// at, and of all clients together at most [Config.PrereadMemory].
//
// A unix socket knows no mark, and its sender is charged for each piece. Once they fill its buffer
// it can send no more, and no event comes; whether they do is not to be seen from here. So its
// bytes are taken after the first peek that shows too little.
//
// Where first bytes have no length field (an HTTP/1 header) each piece is reported, and looked
// at. After some pieces such a client's bytes are taken, too.
const (
	vainPeeksTCP   = 2
	vainPeeksUnix  = 1
	vainPeeksFirst = 8
)

// futilePeek counts a peek that has shown too little although the kernel was asked to wait for
// more, and reports whether to take the queued bytes from now on.
func (c *pendingClient) futilePeek(n int) bool {
	most := uint8(vainPeeksTCP)
	switch {
	case !c.conn.tcp():
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

// bufferPreread looks at the taken bytes, and takes more of the client's, until they are
// enough.
func (w *worker) bufferPreread(c *pendingClient) {
	if c.buffered == nil {
		c.buffered = []byte{}
	}
	if w.loop.Late() { // the kernel frees one buffer for each piece: others go first
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
		n, err := sys.Recv(c.conn.fd(), first[:c.maxPreread()-len(c.buffered)], sys.MSG_DONTWAIT)
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
			c.raised = 0 // of the queued bytes, which are fewer by those taken
			c.raise(need - len(c.buffered))
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

// charge counts the memory of a client's first bytes, and returns an error if there is none left for it.
func (w *worker) charge(c *pendingClient) error {
	n := cap(c.buffered) - maxAhead
	for _, name := range c.client.First.Hello.ALPN {
		n += int(unsafe.Sizeof(name)) + len(name)
	}
	return w.group.charge(&c.charged, n)
}

// charge has a client's part of PrereadMemory be at least n bytes, if there are so many.
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

// uncharge gives a client's part back.
func (g *Group) uncharge(charged *int32) {
	g.prereads.Add(-int64(*charged))
	*charged = 0
}

// first returns those of the taken bytes that an endpoint gets before the session.
func (c *pendingClient) first() []byte { return c.hello.upTo(c.buffered) }

// sentOn reports whether an endpoint has got some of the taken bytes. Then no other may.
func (c *pendingClient) sentOn() bool {
	return len(c.buffered) > 0 && c.phase == writingHeader && len(c.rest) < len(c.first()) && !rewritesClient(c.search)
}
