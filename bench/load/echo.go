package load

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/sys"
)

// echo begins the workload Echo. For the planned time, each connection sends a message, waits for the answer, and
// begins again.
func (d *drive) echo() error {
	for i := range d.plan.Connections {
		d.all = append(d.all, &caller{conn: conn{d, -1, i}, content: traffic.NewStream(d.r.nextSeed())})
	}
	return d.connectAll()
}

// timeOver ends the counting of a plan with a Warmup.
func (d *drive) timeOver(now time.Time) {
	if d.plan.Warmup == 0 || d.result.Elapsed > 0 {
		return
	}
	d.result.Elapsed = now.Sub(d.start)
	if d.r.Over != nil {
		d.r.Over()
	}
}

// caller is one connection.
type caller struct {
	conn
	content *traffic.Stream
	out, in []byte // the parts of the message that were not sent, and not received back
	began   time.Time
	asking  bool // a message was sent, and its answer is not complete
	ending  bool // this side has half-closed
}

func (c *caller) stuck() error {
	if c.asking {
		return errors.New("an answer is missing, or a part of it")
	}
	return errNotEnded
}

func (c *caller) start() { c.ask(time.Now()) }

func (c *caller) ask(now time.Time) {
	c.in = c.content.Next(c.d.plan.Size)
	c.began, c.asking = now, true
	rest, ok := c.send(c.in)
	c.out = rest
	if ok && len(rest) > 0 {
		c.want(readable | sys.EPOLLOUT)
	}
}

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
	default:
		complete, err := c.take(c.d.buf[:n])
		if err != nil {
			c.fail(err)
		} else if complete {
			c.answered()
		}
	}
}

// take checks bytes of an answer, and reports whether they are the last.
func (c *caller) take(b []byte) (complete bool, err error) {
	if len(b) > len(c.in) || !bytes.Equal(b, c.in[:len(b)]) {
		return false, errMismatch
	}
	c.in = c.in[len(b):]
	return len(c.in) == 0, nil
}

// goOn sends more of a message for which the socket had no room, and reports whether that went well.
func (c *caller) goOn() bool {
	rest, ok := c.send(c.out)
	c.out = rest
	if ok && len(rest) == 0 {
		c.want(readable)
	}
	return ok
}

func (c *caller) answered() {
	now := time.Now()
	c.asking = false
	goOn := now.Before(c.d.until())
	if !goOn {
		c.d.timeOver(now)
	}
	if c.d.result.Elapsed == 0 {
		c.d.result.Requests++
		if err := c.d.latency.RecordValue(int64(now.Sub(c.began))); err != nil {
			c.fail(err)
			return
		}
	}
	if goOn {
		c.ask(now)
		return
	}
	c.ending = true
	c.hangUp()
}

func (c *caller) finish() {
	if !c.ending {
		c.fail(io.ErrUnexpectedEOF)
		return
	}
	c.end()
}
