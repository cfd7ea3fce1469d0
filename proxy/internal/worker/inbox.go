package worker

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// A client is one for which nothing was done yet.
type client struct {
	fd             int            // owned
	peer           netip.AddrPort // as [loop.Acceptor] has it
	socket         *Listening
	service        *Service
	admissionToken uint64 // the service's Admitter's, who has admitted it if there is one
	accepted       int64  // clock
}

// An inbox is the clients that were handed to a worker. They have places.
type inbox struct {
	mu      sync.Mutex
	clients []client
	reused  []client // the worker's own
}

// give adds one. Of several that come before the worker has looked, it is notified once.
func (b *inbox) give(to *worker, c client) {
	b.mu.Lock()
	b.clients = append(b.clients, c)
	first := len(b.clients) == 1
	b.mu.Unlock()
	if first {
		to.post(to.collect)
	}
}

// collectInbox takes on the clients in the inbox.
func (w *worker) collectInbox() {
	b := &w.inbox
	b.mu.Lock()
	clients := b.clients
	b.clients = b.reused[:0]
	b.mu.Unlock()
	for _, n := range clients {
		w.begin(n, w.fdReserve.Reserve() == nil)
	}
	clear(clients) // their services may be given up
	b.reused = clients
}

// A queue is the clients that wait for a place under the limit, of all workers: first
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
	c, q.clients[0] = q.clients[0], client{}
	q.clients = q.clients[1:]
	q.n.Add(-1)
	return c, true
}
