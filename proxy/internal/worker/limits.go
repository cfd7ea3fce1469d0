package worker

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/loop"
)

// A connLimit tells all workers whether more clients may be accepted.
type connLimit struct {
	max      atomic.Int64
	active   atomic.Int64 // clients that are served
	holds    atomic.Int64 // clients that lack a descriptor: no new client may take one
	full     atomic.Bool  // the limit was reached, and workers wait for room; written under mu
	mu       sync.Mutex
	reported bool            // the last argument of onFull; under mu
	onFull   func(full bool) // called under mu
}

// acquire takes a place, and reports whether there was one. The caller that takes the last place, or gets none, calls
// markFull.
func (g *connLimit) acquire() bool {
	n := g.active.Add(1)
	if n > g.max.Load() {
		g.active.Add(-1)
		return false
	}
	return true
}

// release gives a place back.
func (g *connLimit) release() { g.active.Add(-1) }

// adopt takes a place for a client that is here already, even beyond the limit.
func (g *connLimit) adopt() {
	g.active.Add(1)
	g.markFull()
}

// markFull notes and reports that there is no room, if this is true. It stores full before it looks for room, and release
// frees the room before full is read; both are sequentially consistent. So one of the two sees the other, and the waiting
// worker is woken or need not wait.
func (g *connLimit) markFull() bool {
	if g.active.Load() < g.max.Load() {
		return false
	}
	g.set(true) // it looks under mu: full may be about to become false
	return g.active.Load() >= g.max.Load()
}

// markFree notes that there is room again, if this is true, and reports whether this is new. The caller calls notify once
// the clients in accept queues have had their chance.
func (g *connLimit) markFree() bool { return g.full.Load() && g.set(false) }

// set changes full. It reports true at once. Only notify reports false: as long as clients wait, each client that leaves
// makes room for the next.
func (g *connLimit) set(full bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if full == g.full.Load() || !full && g.active.Load() >= g.max.Load() {
		return false
	}
	g.full.Store(full)
	if full {
		g.report(true)
	}
	return true
}

// notify reports that there is room, if there still is.
func (g *connLimit) notify() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.full.Load() {
		g.report(false)
	}
}

func (g *connLimit) report(full bool) {
	if full != g.reported {
		g.reported = full
		g.onFull(full)
	}
}

// room reports whether a further client may be accepted.
func (g *connLimit) room() bool { return g.holds.Load() == 0 && g.active.Load() < g.max.Load() }

// A queue holds the clients of all workers that wait for a place under the limit: first in, first out.
type queue struct {
	n       atomic.Int64
	mu      sync.Mutex
	clients []accepted
}

func (q *queue) push(c accepted) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clients = append(q.clients, c)
	q.n.Add(1)
}

func (q *queue) pop() (c accepted, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.clients) == 0 {
		return c, false
	}
	c, q.clients[0] = q.clients[0], accepted{}
	q.clients = q.clients[1:]
	q.n.Add(-1)
	return c, true
}

// LacksDescriptor reports whether err says that no descriptor is left.
func LacksDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// A client that lacks a descriptor tries again after fdRetryPause, or when another connection ends,
// and gives up after fdPatience. Otherwise clients that were accepted with the last descriptors
// would wait for each other.
const (
	fdRetryPause = 100 * time.Millisecond
	fdPatience   = 5 * time.Second
)

// descriptors keeps spare descriptors for connections to targets: one for each client that was accepted but has no socket
// to its target yet, and one for the next client, before it is accepted. Otherwise a burst of clients would take every
// descriptor, and none of them could be served. A connect takes a spare descriptor only if descriptors are short, so
// usually nothing is opened or closed for a connection.
type descriptors struct {
	spare        []*os.File // owned
	needed       int        // number of spare descriptors for clients, and for the next one
	reserved     bool       // one is for the next client, of any socket
	waitingForFD []*Client  // in the order in which they began to wait
	fdRetry      loop.Timer

	line int  // the first descriptor that clients and mirrors do not get: an administrator's connections may need the last ones
	near bool // the kernel has given out a descriptor from line on: since then each client needs two below line, for both of its sockets
}

// surplus is how many more descriptors than needed are kept, unless they are short.
const surplus = 4

// need makes sure that there is one more spare descriptor. Its error says that descriptors are short. If another error
// prevents a spare, need succeeds without one.
func (t *descriptors) need() error {
	if t.needed >= len(t.spare) {
		f, fd, err := openSpare()
		switch {
		case err == nil && t.beyond(fd):
			f.Close()
			return syscall.EMFILE
		case err == nil:
			t.spare = append(t.spare, f)
		case LacksDescriptor(err):
			return err
		}
	}
	t.needed++
	return nil
}

// beyond reports whether a new descriptor is beyond the line.
func (t *descriptors) beyond(fd int) bool {
	t.near = t.near || fd >= t.line
	return fd >= t.line
}

// below reports whether the next descriptor will be below the line. It looks only once one was beyond the line.
func (t *descriptors) below() bool {
	if !t.near {
		return true
	}
	f, fd, err := openSpare()
	if err != nil {
		return false
	}
	defer f.Close()
	return fd < t.line
}

// openSpare makes a descriptor that does nothing. os.Open would make four further system calls.
func openSpare() (f *os.File, fd int, err error) {
	fd, err = syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, -1, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	return os.NewFile(uintptr(fd), os.DevNull), fd, nil
}

// claim closes a spare descriptor for a caller that is about to open another, and reports whether there was one.
func (t *descriptors) claim() bool {
	last := len(t.spare) - 1
	if last < 0 {
		return false
	}
	t.spare[last].Close()
	t.spare = t.spare[:last]
	return true
}

// trim closes spare descriptors until at most most are left.
func (t *descriptors) trim(most int) {
	for len(t.spare) > most {
		t.claim()
	}
}

// reserve ensures that there is a spare descriptor for the next client.
func (t *descriptors) reserve() error {
	if t.reserved {
		return nil
	}
	err := t.need()
	t.reserved = err == nil
	return err
}

// reservation takes the descriptor of reserve, and reports whether there is one.
func (t *descriptors) reservation() bool {
	r := t.reserved
	t.reserved = false
	return r || t.need() == nil
}

// release undoes a need, if there was one.
func (t *descriptors) release(needed bool) {
	if !needed {
		return
	}
	if t.needed--; t.near {
		t.trim(t.needed)
	} else {
		t.trim(t.needed + surplus)
	}
}

// passSpare is release for a client that is handed over. It returns the client's spare descriptor, which the caller then
// owns.
func (t *descriptors) passSpare(needed bool) (spare *os.File) {
	if last := len(t.spare) - 1; needed && last >= 0 {
		spare, t.spare = t.spare[last], t.spare[:last]
	}
	t.release(needed)
	return spare
}

// takeSpare keeps the spare descriptor of a client that was handed over, or makes one. It reports whether there is one.
func (t *descriptors) takeSpare(spare *os.File) bool {
	if spare == nil {
		return t.need() == nil
	}
	t.spare = append(t.spare, spare)
	t.needed++
	return true
}

// unreserve is release for a client, once.
func (t *descriptors) unreserve(c *Client) {
	t.release(c.reserved)
	c.reserved = false
}

// waitForFD continues with a client that got no descriptor: at once if mirrors or idle pipes
// give up descriptors or one was reserved for the client, otherwise later. Meanwhile no other
// client is accepted.
func (w *worker) waitForFD(c *Client, err error) {
	now := w.loop.Now()
	switch {
	case w.shedMirrors(), w.group.cfg.Host.Trim() > 0, w.claim():
		w.search(c)
		return
	case c.waitsForFD == 0:
		c.waitsForFD = now
		w.group.gate.holds.Add(1)
		w.group.shedMirrors()
		w.group.wake()
	case now-c.waitsForFD > int64(fdPatience):
		w.refuse(c, err)
		return
	}
	w.waitingForFD = append(w.waitingForFD, c)
	w.armFDRetry()
}

// armFDRetry schedules another attempt for clients that lack a resource.
func (w *worker) armFDRetry() {
	if !w.fdRetry.Armed() {
		w.loop.Arm(&w.fdRetry, (*fdRetryTimer)(w), fdRetryPause)
	}
}

// fdAvailable notes that a client does not wait for a descriptor, or no longer does.
func (w *worker) fdAvailable(c *Client) {
	if c.waitsForFD == 0 {
		return
	}
	c.waitsForFD = 0
	w.waitingForFD = without(w.waitingForFD, c)
	w.group.gate.holds.Add(-1)
	w.group.wake()
}

// retryWaitingForFD tries again for the clients that wait for a descriptor, in order: for all of them, or until one still
// gets none.
func (w *worker) retryWaitingForFD(all bool) {
	for range len(w.waitingForFD) {
		if len(w.waitingForFD) == 0 {
			return
		}
		c := w.waitingForFD[0]
		w.waitingForFD = slices.Delete(w.waitingForFD, 0, 1)
		before := len(w.waitingForFD)
		w.search(c)
		if !all && len(w.waitingForFD) > before {
			return
		}
	}
}

// fdRetryTimer is a worker with clients that have waited for descriptors for a while.
type fdRetryTimer worker

func (h *fdRetryTimer) Expired(*loop.Timer) {
	w := (*worker)(h)
	w.retryWaitingForFD(true)
	w.reopen()
	w.emptyQueues()
}
