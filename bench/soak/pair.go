package soak

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/traffic"
)

// pair is a connection through the proxy, with both its ends.
type pair struct {
	plan *plan
	ends [2]*end
	done chan struct{} // closed when both ends are over

	mu       sync.Mutex
	changed  sync.Cond // of mu: bytes were sent or received, or one of both is over
	attached bool      // the server's end is there
	over     int       // ends
}

func newPair(p *plan, t *tally, patience time.Duration) *pair {
	c := &pair{plan: p, done: make(chan struct{})}
	c.changed.L = &c.mu
	for r := range c.ends {
		c.ends[r] = &end{
			pair: c, role: role(r), part: &p.parts[r], tally: t, patience: patience, broken: make(chan struct{}),
			out: c.content(role(r)), in: c.content(role(r).other()),
		}
	}
	return c
}

// content is the stream that an end sends, a different one for every connection and end.
func (c *pair) content(r role) *traffic.Stream {
	return traffic.NewStream(c.plan.id.round*7919 + c.plan.id.n*2 + uint32(r))
}

// attach makes the server's end known; false if there is one already.
func (c *pair) attach() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.attached
	c.attached = true
	return !was
}

// serve runs an end on a connection, which it closes, and reports whether the
// other end was over before.
func (c *pair) serve(ctx context.Context, r role, conn *net.TCPConn) (last bool) {
	c.ends[r].run(ctx, conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over++
	if c.over == len(c.ends) {
		close(c.done)
		return true
	}
	return false
}
