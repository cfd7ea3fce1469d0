package load

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/sys"
)

// echo is the workload of that name: each connection sends a message, waits for
// it to come back, and begins again, for the planned time.
type echo struct {
	opening[*caller]
	until time.Time
}

// begin implements behaviour.
func (e *echo) begin() error {
	for i := range e.plan.Connections {
		e.all = append(e.all, &caller{conn: conn{e.drive, -1, i}, e: e, content: traffic.NewStream(e.r.nextSeed())})
	}
	return e.connectAll()
}

// stuck implements behaviour.
func (e *echo) stuck() error {
	for _, c := range e.all {
		if c.fd >= 0 && len(c.in) > 0 {
			return failed(e.plan, c.index, fmt.Errorf("%d of the %d bytes of a message have not come back", len(c.in), e.plan.Size))
		}
	}
	return e.opening.stuck()
}

// caller is one connection.
type caller struct {
	conn
	e       *echo
	content *traffic.Stream
	out, in []byte // of the message: not sent, not received back
	began   time.Time
	ending  bool // we have half-closed
}

func (c *caller) link() *conn { return &c.conn }

// start sends the first message.
func (c *caller) start() {
	if c.e.until.IsZero() {
		c.e.until = c.d.start.Add(c.d.plan.Duration)
	}
	if c.greet() {
		c.ask(time.Now())
	}
}

// ask sends the next message.
func (c *caller) ask(now time.Time) {
	c.in = c.content.Next(c.d.plan.Size)
	c.began = now
	rest, ok := c.send(c.in)
	c.out = rest
	if ok && len(rest) > 0 {
		c.want(readable | sys.EPOLLOUT)
	}
}

// Ready implements reactor.Handler.
func (c *caller) Ready(events uint32) {
	if events&sys.EPOLLOUT != 0 && len(c.out) > 0 && !c.goOn() {
		return
	}
	if events&^sys.EPOLLOUT == 0 {
		return
	}
	n, ok := c.receive(c.d.buf, 0)
	switch {
	case !ok:
	case n == 0:
		c.finish()
	case n > len(c.in) || !bytes.Equal(c.d.buf[:n], c.in[:n]):
		c.fail(errMismatch)
	default:
		if c.in = c.in[n:]; len(c.in) == 0 {
			c.answered()
		}
	}
}

// goOn sends more of a message that did not fit, and reports whether that went
// well.
func (c *caller) goOn() bool {
	rest, ok := c.send(c.out)
	c.out = rest
	if ok && len(rest) == 0 {
		c.want(readable)
	}
	return ok
}

// answered is a message that has come back.
func (c *caller) answered() {
	now := time.Now()
	c.d.result.Requests++
	if err := c.d.latency.RecordValue(int64(now.Sub(c.began))); err != nil {
		c.fail(err)
		return
	}
	if now.Before(c.e.until) {
		c.ask(now)
		return
	}
	c.ending = true
	c.hangUp()
}

// finish checks the end of file that has come.
func (c *caller) finish() {
	if !c.ending {
		c.fail(io.ErrUnexpectedEOF)
		return
	}
	c.end()
}
