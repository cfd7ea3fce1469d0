package worker

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/sockopt"
	"github.com/penstock/penstock/relay"
)

// A worker serves clients on one loop. Its parts are structs: a method whose receiver is a part
// touches nothing else. Fields belong to the loop's goroutine, but for those of shared.
type worker struct {
	group  *Group
	index  int
	loop   *loop.Loop    // the group's
	driver *relay.Driver // owned

	places      // of clients
	acceptors   // of listening sockets
	descriptors // for the next sockets
	notes       // on sessions
	counters
	pendingPool
	buffers
	statistics
	records     records // of sessions
	arrived     arrivals
	turnedAway  arrivals // that were refused
	mirrors     mirrors  // of sessions
	lateOptions map[sockopt.Options]*lateSockopts
	windows     *windows // closed ones, of peers of sessions
	lanes       lanes
	callbacks
	shared

	canceled error // the reason that no client is served any more
}

// acceptors are the worker's parts in listening sockets.
type acceptors struct {
	accepting []*acceptor  // that are not closed
	waiters   []*acceptor  // of those, that wait for room
	emptying  []*acceptor  // with queues that are being emptied
	unopened  []*Listening // that could not be accepted from
	paused    bool         // accepting is, somewhere, for want of something
}

// counters are the worker's counts since it began.
type counters struct {
	accepted, active, refused, handedOver, canceledClients, leftClients int64
	peeks, hellosMissing, taken                                         int64
	refusals                                                            Refusals
	ended                                                               Totals
}

// buffers are memory that is used by one client after the other.
type buffers struct {
	asked  Client // that is asked for
	first  []byte // first bytes of clients, until they were looked at
	header []byte // the first bytes to an endpoint: PROXY header, then those of the client
}

// firstBytes returns the buffer for the first bytes of clients.
func (b *buffers) firstBytes() []byte {
	if b.first == nil {
		b.first = make([]byte, scratchSize)
	}
	return b.first
}

// statistics are the readings of others that are under way.
type statistics struct {
	scan        statsScan
	deferred    bytesByBinding // bytes not reported to meters yet; nil: they are reported at once
	clientScans []*clientScan  // one after the other
}

// callbacks are functions for the loop, made once.
type callbacks struct {
	adjustOnce, settleGate, collect, changeOn, wakeOn, scanClientsOn func()
}

// shared is the state that other goroutines change.
type shared struct {
	load    atomic.Int64 // clients that the worker has or is going to get
	woken   atomic.Bool  // the worker is going to look at the shared state
	inbox   inbox
	changes changes
	wakes   wakes
	part    chan struct{} // holds one while the loop is asked for a part of something, see askPart
}

func newWorker(g *Group, index int, l *loop.Loop, mem *arena.Local) (*worker, error) {
	w := &worker{
		group: g, index: index, loop: l, notes: newNotes(),
		lateOptions: make(map[sockopt.Options]*lateSockopts),
		arrived:     newArrivals(mostArrivals), turnedAway: newArrivals(mostRefusals),
	}
	w.mirrors.init()
	w.windows = newWindows(w)
	w.part = make(chan struct{}, 1)
	w.adjustOnce, w.settleGate, w.collect = w.adjust, g.gate.notify, w.collectInbox
	w.changeOn, w.wakeOn, w.scanClientsOn = w.change, w.collectWakes, w.scanSomeClients
	var err error
	w.driver, err = g.cfg.Relay.NewDriver(l, mem)
	return w, err
}

// post has f called by the loop. One that never runs again has nothing to do.
func (w *worker) post(f func()) { _ = w.loop.Post(f) }

// wake has the worker look at the shared state. It may be called by any goroutine.
func (w *worker) wake() {
	if !w.woken.Swap(true) {
		w.post(w.adjustOnce)
	}
}

// adjust reacts to changes by others.
func (w *worker) adjust() {
	w.woken.Store(false)
	w.retryWaitingForFD(false)
	w.admitWaiting()
	w.emptyQueues()
	w.resume()
}

// admitWaiting serves those that have waited, as far as there are places.
func (w *worker) admitWaiting() {
	g := w.group
	for g.waiting.n.Load() > 0 && g.gate.holds.Load() == 0 {
		if !g.gate.acquire() {
			if g.gate.markFull() {
				return
			}
			continue
		}
		n, ok := g.waiting.pop()
		if !ok {
			g.gate.release()
			g.wake() // a client may have found no place meanwhile
			return
		}
		w.load.Add(1)
		w.begin(n, w.fdReserve.Reserve() == nil)
	}
}

// resume accepts further clients if they may come.
func (w *worker) resume() {
	g := &w.group.gate
	if g.holds.Load() > 0 || g.markFull() || w.group.waiting.n.Load() > 0 {
		return
	}
	if g.markFree() {
		w.post(w.settleGate) // which is called after the next turn's accepting
	}
	w.unpause()
	var next [resumeBatch]*acceptor
	n := copy(next[:], w.waiters)
	left := copy(w.waiters, w.waiters[n:])
	clear(w.waiters[left:])
	w.waiters = w.waiters[:left]
	for _, a := range next[:n] {
		a.resume()
	}
	if left > 0 {
		w.wake() // if there is room then for more than those
	}
}

// resumeBatch is how many of the sockets with waiting clients are accepted from again in one
// turn, in the order in which they began to wait. If there is room for one client only, the
// others would find that out for nothing.
const resumeBatch = 64

// resume accepts again where there was no room, or asks whether there is some now.
func (a *acceptor) resume() {
	if a.waits = false; a.closing {
		return
	}
	a.unshort()
	a.Resume()
	a.Retry()
}

// unshort notes that it does not wait because of CanAccept any more.
func (a *acceptor) unshort() {
	if a.pausedByAdmitter {
		a.pausedByAdmitter = false
		a.socket.short.Add(-1)
	}
}

// unpause tries to accept again where that has failed.
func (w *worker) unpause() {
	if !w.paused {
		return
	}
	w.paused = false
	w.group.paused.Add(-1)
	w.reopen()
	for _, a := range w.accepting {
		a.Retry()
	}
}

// cut ends everything at once.
func (w *worker) cut(cause error) {
	if w.canceled != nil {
		return
	}
	w.canceled = cause
	for w.closeAny() {
	}
	for _, slab := range w.slabs {
		for i := range slab {
			switch n := &slab[i]; n.state {
			case joined:
				n.driven().Cut(cause)
			case connecting:
				w.refuse(n.ref.pending, cause)
			}
		}
	}
	w.cutMirrors()
	w.wake()
}

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

// A change is something that was asked of a worker: to accept from a socket, to accept
// from it no more, or to say that all that was asked before is done.
type change struct {
	listening *Listening
	do        changing
	done      chan<- struct{} // of settling
}

type changing uint8

const (
	opening changing = iota
	closing
	settling
)

// changes are made in the order in which they were asked for, some in each turn of the
// loop.
type changes struct {
	mu      sync.Mutex
	waiting []change
	next    int // of those, the loop's to be done
}

// give adds one. Of several that come before the worker has done all, it is notified once.
func (q *changes) give(to *worker, ch change) {
	q.mu.Lock()
	q.waiting = append(q.waiting, ch)
	first := len(q.waiting) == 1
	q.mu.Unlock()
	if first {
		to.post(to.changeOn)
	}
}

// take returns the next change. If there is none, the next one that is given posts
// again.
func (q *changes) take() (ch change, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next == len(q.waiting) {
		clear(q.waiting)
		q.waiting, q.next = q.waiting[:0], 0
		return ch, false
	}
	ch = q.waiting[q.next]
	q.next++
	return ch, true
}

// turnTime is how long a worker does work without hurry in one turn, beside the time of the
// last piece.
const turnTime = 250 * time.Microsecond

// change makes changes for as long as one turn may take.
func (w *worker) change() {
	for began := time.Now(); time.Since(began) < turnTime; {
		ch, ok := w.changes.take()
		if !ok {
			return
		}
		switch ch.do {
		case opening:
			w.listen(ch.listening)
		case closing:
			w.closeListening(ch.listening)
		case settling:
			ch.done <- struct{}{}
		}
	}
	w.post(w.changeOn)
}
