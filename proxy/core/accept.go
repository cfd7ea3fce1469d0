//go:build linux

package core

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/loop"
)

// errFull keeps a listener from accepting at the limit.
var errFull = errors.New("the limit is reached")

// An acceptor is one core's part of a listening socket.
type acceptor struct {
	*loop.Listener
	core    *core
	socket  *shared
	emptied int  // connections, while it is closing
	failed  bool // in the last attempt to accept
	closed  bool
}

// shared is a listening socket, of which each core has a part.
type shared struct {
	Listener
	index int
	open  atomic.Int32 // cores that have not closed their part
	// pauses counts failures to accept.
	pauses atomic.Int64
}

func (c *core) listen(socket *shared) error {
	a := &acceptor{core: c, socket: socket}
	var err error
	a.Listener, err = c.loop.Listen(socket.FD, &loop.ListenerConfig{Acceptor: a, Before: a.before})
	if err != nil {
		return err
	}
	c.acceptors = append(c.acceptors, a)
	return nil
}

// before sees to it that there will be what a client needs. At the limit it is not
// accepted; between the look and the accept others may take the last place, so that
// each core may get one client more, which waits for its turn.
func (a *acceptor) before() error {
	if !a.core.closing && !a.core.group.gate.room() {
		return errFull
	}
	return a.core.spares.Reserve()
}

// Accepted takes a client on, or hands it to the core that has fewer; or it waits
// for a place, in the order in which clients came.
func (a *acceptor) Accepted(fd int) {
	c, g, n := a.core, a.core.group, client{fd, a.socket.TCP}
	g.clients.Add(1)
	if !g.gate.acquire() {
		c.spares.Release()
		g.waiting.push(n)
		c.nudge()
		return
	}
	if g.gate.shut() {
		c.nudgeAll()
		c.resumeOrSuspend()
	}
	to := g.lightest(c)
	to.load.Add(1)
	if to == c {
		c.begin(n, true)
		return
	}
	c.spares.Release()
	c.handedOver++
	to.inbox.give(to, n)
}

// Paused is told that accepting failed.
func (a *acceptor) Paused(err error) {
	a.failed = true
	c := a.core
	if errors.Is(err, errFull) {
		c.nudge()
		return
	}
	if !c.paused {
		c.paused = true
		c.group.paused.Add(1)
	}
	c.spares.Trim()
	g := c.group
	g.cfg.Host.Paused(a.socket.index, err, g.gate.active.Load(), a.socket.pauses.Add(1))
}

// lightest returns the core that is to have a client that c has accepted: c itself,
// unless it has clearly more than the one that has fewest.
func (g *Group) lightest(c *core) *core {
	own := c.load.Load()
	if own <= 1 {
		return c
	}
	to, fewest := c, own
	for _, other := range g.cores {
		if n := other.load.Load(); n < fewest {
			to, fewest = other, n
		}
	}
	if own-fewest > max(1, own/8) {
		return to
	}
	return c
}

// A client is one for which nothing was done yet.
type client struct {
	fd  int // owned
	tcp bool
}

// An inbox is the clients that were handed to a core. They have places.
type inbox struct {
	mu      sync.Mutex
	clients []client
	spare   []client // the core's own
}

// give adds one. Of several that come before the core has looked, it is told once.
func (b *inbox) give(to *core, c client) {
	b.mu.Lock()
	b.clients = append(b.clients, c)
	first := len(b.clients) == 1
	b.mu.Unlock()
	if first {
		to.post(to.collect)
	}
}

// collect takes on what is in the inbox.
func (c *core) collectInbox() {
	b := &c.inbox
	b.mu.Lock()
	clients := b.clients
	b.clients = b.spare[:0]
	b.mu.Unlock()
	for _, n := range clients {
		c.begin(n, c.spares.Reserve() == nil)
	}
	b.spare = clients
}

// A queue is the clients that wait for a place under the limit, of all cores: first
// in, first out.
type queue struct {
	n       atomic.Int64
	mu      sync.Mutex
	clients []client
}

func (q *queue) push(c client) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clients = append(q.clients, c)
	q.n.Add(1)
}

func (q *queue) pop() (c client, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.clients) == 0 {
		return c, false
	}
	c, q.clients = q.clients[0], q.clients[1:]
	q.n.Add(-1)
	return c, true
}
