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
	"github.com/penstock/penstock/proxy/internal/tally"
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
	turnedAway  arrivals // refused clients
	mirrors     mirrors  // of sessions
	lateOptions map[sockopt.Options]*lateSockopts
	windows     *windows // peers' closed windows
	lanes       lanes
	callbacks
	shared

	canceled error // why no client is served any more
}

// acceptors are the worker's parts in listening sockets.
type acceptors struct {
	accepting []*acceptor  // not closed
	waiters   []*acceptor  // waiting for room
	emptying  []*acceptor  // closing, with queues to be emptied
	unopened  []*Listening // accepting has not begun, for lack of a resource
	paused    bool         // some accepting is paused for lack of a resource
}

type counters struct {
	counts                                       tally.LoopCounts
	canceledClients, leftClients, refusedClients int64
	peeks, hellosMissing, taken                  int64
	ended                                        Totals
}

// buffers are memory that one client after the other uses.
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

// statistics are the scans under way.
type statistics struct {
	scan        statsScan
	deferred    bytesByBinding // bytes held back from bindings; nil: they get bytes at once
	rebinds     []func()       // of adopted sessions, for when bytes are no longer held back
	clientScans []*clientScan  // one after the other
}

// callbacks are functions for the loop, made once.
type callbacks struct {
	adjustOnce, settleGate, scanClientsOn func()
}

// shared is the state that other goroutines change.
type shared struct {
	load    atomic.Int64      // clients that the worker has or will get
	woken   atomic.Bool       // the worker will look at the shared state
	inbox   mailbox[accepted] // clients with places that other workers have accepted
	changes mailbox[func()]
	wakes   mailbox[Waker]
	part    chan struct{} // holds one while askPart asks the loop for a part
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

// post makes the loop call f, unless the loop has ended.
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
			g.wake() // meanwhile a client may have found no place
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
		w.post(w.settleGate) // called after the accepting in the next turn
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
		w.wake() // there may still be room for the rest
	}
}

// resumeBatch is the number of sockets with waiting clients from which a loop accepts again in one turn, in the order in
// which they began to wait. If there is room for only one client, trying more sockets would be useless.
const resumeBatch = 64

// resume accepts again, or asks again whether there is room.
func (a *acceptor) resume() {
	if a.waits = false; a.closing {
		return
	}
	a.unshort()
	a.Resume()
	a.Retry()
}

// unshort notes that the acceptor no longer waits because of CanAccept.
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
	w.group.handed.cut(cause) // on the loop: of its clients no later one leaves it uncut
	w.cutMirrors()
	w.wake()
}

// turnTime is how long a worker does background work in one turn, not counting the time of the last
// piece.
const turnTime = 250 * time.Microsecond

// A mailbox takes work for a worker from other goroutines. The worker does it in order, some in each turn of its loop.
type mailbox[T any] struct {
	worker *worker
	open   func() // made once
	mu     sync.Mutex
	given  []T // under mu
	taken  []T // owned by the worker
	next   int // index in taken
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

// give adds a piece of work. Only the first piece that the worker has not taken yet is posted.
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
	var none T // does not keep finished work in memory
	v, b.taken[b.next] = b.taken[b.next], none
	b.next++
	return v, true
}
