package worker

import (
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/clienthello"
)

// look looks at the client's first bytes for its search, as in preread.
func (w *worker) look(c *pendingClient) {
	if len(c.ahead) > 0 { // a later peek may take them out of the queue
		c.ahead = c.ahead[:0]
		c.events |= loop.Readable
	}
	if c.step.Timeout > 0 {
		w.loop.Arm(&c.timer, (*clientTimer)(c), c.step.Timeout)
	}
	c.phase, c.futilePeeks = looking, 0
	w.peek(c)
}

// looked goes on with the first bytes. c may not be in use any more when it returns.
func (w *worker) looked(c *pendingClient, b []byte, ended bool) {
	if c.hello.size == 0 {
		if hello, err := clienthello.Parse(b); err == nil { // by whose name the search may go
			c.greeted(b, &hello)
		}
	}
	c.client.Looked, c.client.LookedEnded = b[:min(len(b), c.step.Most)], ended
	w.proceed(c)
}

// lookFailed goes on when there are not as many as the search wants: with those of a client that sends no
// more.
func (w *worker) lookFailed(c *pendingClient, cause error) {
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
	n, err := sys.Recv(c.conn.fd(), b, sys.MSG_PEEK|sys.MSG_DONTWAIT)
	if err != nil && err != syscall.EAGAIN {
		w.clientLeft(c)
		return
	}
	w.looked(c, b[:max(n, 0)], true)
}
