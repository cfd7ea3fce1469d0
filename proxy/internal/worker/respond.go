package worker

import (
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// lingerTime is how long a client that was sent a response may take to read it and end.
const lingerTime = 5 * time.Second

// respond sends a client its response. It is closed when it has ended itself, for bytes that
// it sends meanwhile would make close(2) a reset, which may overtake the response (RFC 9112,
// 9.6, describes the same for HTTP); or when its time is over.
func (w *worker) respond(c *pendingClient) {
	c.phase, c.rest = responding, c.step.Bytes
	limit := c.step.Timeout
	w.endSearch(c)
	w.unreserve(c)
	if limit <= 0 {
		limit = lingerTime
	}
	w.loop.Arm(&c.timer, (*clientTimer)(c), limit)
	w.respondOn(c)
}

// respondOn sends the rest of the response as far as there is room, and discards the client's bytes.
func (w *worker) respondOn(c *pendingClient) {
	if c.phase == responding {
		n, err := sendSome(c.conn.fd(), c.rest, 0)
		if err != nil {
			w.clientLeft(c)
			return
		}
		if c.rest = c.rest[n:]; len(c.rest) == 0 {
			c.phase = lingering
			_ = sys.ShutdownWrite(c.conn.fd())
		}
	}
	w.discard(c)
}

// discards is how many reads one turn makes to throw away a client's bytes.
const discards = 4

// discard throws away a client's bytes, and closes it when it has ended.
func (w *worker) discard(c *pendingClient) {
	first := w.firstBytes()
	for range discards {
		n, err := sys.Recv(c.conn.fd(), first, sys.MSG_DONTWAIT)
		switch {
		case err == syscall.EAGAIN:
			return
		case err == nil && n == 0 && c.phase == responding:
			return // it still reads
		case err == nil && n == 0, err != nil && err != syscall.EINTR:
			w.closeClient(c)
			return
		}
	}
	w.loop.Again(c.id)
}
