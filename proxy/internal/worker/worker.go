package worker

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/compare"
	"github.com/penstock/penstock/proxy/sockopt"
	"github.com/penstock/penstock/relay"
)

// A worker serves clients on one loop. Its parts are structs: a part's methods touch nothing else.
// Fields belong to the loop's goroutine, except shared.
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
	pool stack[*Client]
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
	accepting []*acceptor  // not closed
	waiters   []*acceptor  // waiting for room
	emptying  []*acceptor  // closing, with queues to be emptied
	unopened  []*Listening // could not be accepted from
	paused    bool         // accepting is, somewhere, for lack of a resource
}

type counters struct {
	accepted, active, handedOver, canceledClients, leftClients int64
	peeks, hellosMissing, taken                                int64
	refusals                                                   Refusals
	ended                                                      Totals
}

// buffers are memory that is used by one client after the other.
type buffers struct {
	first  []byte // first bytes of clients, until they were looked at
	header []byte // the first bytes to an endpoint: PROXY header, then the client's
}

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
	rebinds     []func()       // of adopted sessions, once they are
	clientScans []*clientScan  // one after the other
}

// callbacks are functions for the loop, made once.
type callbacks struct {
	adjustOnce, settleGate, scanClientsOn func()
}

// shared is the state that other goroutines change.
type shared struct {
	load    atomic.Int64      // clients that the worker has or is going to get
	woken   atomic.Bool       // the worker is going to look at the shared state
	inbox   mailbox[accepted] // clients that others have accepted, which have places
	changes mailbox[func()]
	wakes   mailbox[Waker]
	part    chan struct{} // holds one while the loop is asked for a part of something, see askPart
}

func newWorker(g *Group, index int, l *loop.Loop, mem *arena.Local) (*worker, error) {
	w := &worker{
		group: g, index: index, loop: l, notes: notes{sources: make(map[*conn]netip.AddrPort), ends: make(map[*conn]func())},
		lateOptions: make(map[sockopt.Options]*lateSockopts),
		arrived:     newArrivals(mostArrivals), turnedAway: newArrivals(mostRefusals),
	}
	w.line = math.MaxInt
	if n, err := sys.RlimitNoFile(); err == nil && n <= math.MaxInt32 {
		w.line = int(n) - sys.KeptDescriptors(int(n))
	}
	w.mirrors.meter = compare.NewMeter()
	w.windows = &windows{worker: w, shut: make(map[windowOf]*shutWindow)}
	w.part = make(chan struct{}, 1)
	w.adjustOnce, w.settleGate, w.scanClientsOn = w.adjust, g.gate.notify, w.scanSomeClients
	w.inbox.init(w, func(in accepted) { w.begin(w.newClient(&in), &in, w.takeSpare(in.spare)) })
	w.changes.init(w, func(do func()) { do() })
	w.wakes.init(w, w.wakeUp)
	var err error
	w.driver, err = g.cfg.Relay.NewDriver(l, mem)
	return w, err
}

// post makes the loop call f. A loop that never runs again has nothing to do.
func (w *worker) post(f func()) { _ = w.loop.Post(f) }

// wake makes the worker look at the shared state. It may be called by any goroutine.
func (w *worker) wake() {
	if !w.woken.Swap(true) {
		w.post(w.adjustOnce)
	}
}

func (w *worker) adjust() {
	w.woken.Store(false)
	w.retryWaitingForFD(false)
	w.admitWaiting()
	w.emptyQueues()
	w.resume()
}

// admitWaiting serves waiting clients, as far as there are places.
func (w *worker) admitWaiting() {
	g := w.group
	for g.waiting.n.Load() > 0 && g.gate.holds.Load() == 0 {
		if !g.gate.acquire() {
			if g.gate.markFull() {
				return
			}
			continue
		}
		in, ok := g.waiting.pop()
		if !ok {
			g.gate.release()
			g.wake() // a client may have found no place meanwhile
			return
		}
		w.load.Add(1)
		w.begin(w.newClient(&in), &in, w.need() == nil)
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

// resumeBatch is from how many sockets with waiting clients a loop accepts again in one turn, in
// the order in which they began to wait. If there is room for only one client, trying the other
// sockets would be useless.
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

// unshort notes that it no longer waits because of CanAccept.
func (a *acceptor) unshort() {
	if a.pausedByAdmitter {
		a.pausedByAdmitter = false
		a.socket.short.Add(-1)
	}
}

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

func (w *worker) cut(cause error) {
	if w.canceled != nil {
		return
	}
	w.canceled = cause
	for len(w.accepting) > 0 {
		a := w.accepting[len(w.accepting)-1]
		a.closing = true
		a.close()
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

// turnTime is how long a worker does background work in one turn, not counting the time of the last
// piece.
const turnTime = 250 * time.Microsecond

// A mailbox is what other goroutines give a worker to do, which it does in order, some in each turn of its loop.
type mailbox[T any] struct {
	worker *worker
	open   func() // made once
	mu     sync.Mutex
	given  []T // under mu
	taken  []T // the worker's own
	next   int // in taken
}

func (b *mailbox[T]) init(w *worker, do func(T)) {
	b.worker = w
	b.open = func() {
		for began := time.Now(); time.Since(began) < turnTime; {
			v, ok := b.take()
			if !ok {
				return
			}
			do(v)
		}
		w.post(b.open)
	}
}

// give adds something. If several come before the worker takes them, only the first is posted.
func (b *mailbox[T]) give(v T) {
	b.mu.Lock()
	b.given = append(b.given, v)
	first := len(b.given) == 1
	b.mu.Unlock()
	if first {
		b.worker.post(b.open)
	}
}

func (b *mailbox[T]) take() (v T, ok bool) {
	if b.next == len(b.taken) {
		b.mu.Lock()
		b.taken, b.given, b.next = b.given, b.taken[:0], 0
		b.mu.Unlock()
	}
	if len(b.taken) == 0 {
		return v, false
	}
	var none T // what is done is not kept
	v, b.taken[b.next] = b.taken[b.next], none
	b.next++
	return v, true
}
