package switches

import (
	"context"
	"sync"
	"sync/atomic"
)

// census knows the open connections of a server, so that the end of ctx can reach them, and
// their number and bytes can be reported.
type census struct {
	// echoed counts bytes. One counter for all of them is one contended
	// instruction for each request, which makes some ten thousand others.
	echoed atomic.Int64

	mu    sync.Mutex
	ends  map[int]func() // how to end each from outside, by its ticket
	next  int
	ended bool
	stop  func() bool
}

// newCensus returns an empty one, which ends its connections when ctx is done.
func newCensus(ctx context.Context) *census {
	c := &census{ends: make(map[int]func())}
	c.stop = context.AfterFunc(ctx, c.end)
	return c
}

// enter adds a connection. end must make its server's pending and later calls
// return; it is not called after leave.
func (c *census) enter(end func()) (ticket int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	c.ends[c.next] = end
	if c.ended {
		end()
	}
	return c.next
}

// leave takes a connection out. Its descriptor may be closed afterwards.
func (c *census) leave(ticket int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ends, ticket)
}

// count returns how many connections are open.
func (c *census) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ends)
}

// end ends all, and those that are still to come.
func (c *census) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for _, end := range c.ends {
		end()
	}
}
