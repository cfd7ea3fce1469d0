package router

import (
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A queue is clients that wait for room, first come first served: a client that comes while
// others wait has to wait behind them, and one that comes back has the place that it had. It
// has a lock, which only waiting clients take, and calls that report room while some wait.
type queue struct {
	places      *limit.Connections // places that this queue shares with other queues; nil: any number
	waiting     atomic.Int64       // number of waiting clients, the one that has the turn included
	mu          sync.Mutex
	first, last *waiter // under mu
	turn        *waiter // the client that was woken and has not looked yet; under mu
	again       bool    // there was room once more meanwhile; under mu
}

// A waiter is a client's place in a queue. It is used again for others.
type waiter struct {
	waker      worker.Waker
	next, prev *waiter
	since      int64                 // clock, by which the queue is in order
	in         atomic.Pointer[queue] // nil while it is in none, which others may end
	woken      bool                  // it is its turn; under the queue's mu
}

// join adds a client that comes now, unless most wait already that still want an answer.
func (q *queue) join(w *waiter, waker worker.Waker, most, now int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.take(most) && !(most > 0 && q.evict() && q.take(most)) {
		return false
	}
	q.add(w, waker, now)
	return true
}

// rejoin adds a client that has waited since a time, however many wait. It reports whether that is the
// first.
func (q *queue) rejoin(w *waiter, waker worker.Waker, since int64) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.places != nil {
		q.places.Add()
	}
	q.add(w, waker, since)
	return q.first == w
}

// add adds a client behind those that have waited for as long. The caller holds mu, and has a place for
// it. It looks from the end where the last ones are, and from the beginning where those are that come
// back.
func (q *queue) add(w *waiter, waker worker.Waker, since int64) {
	prev, next := q.last, (*waiter)(nil)
	if prev != nil && prev.since > since {
		for next = q.first; next.since <= since; next = next.next {
		}
		prev = next.prev
	}
	w.waker, w.since, w.woken, w.prev, w.next = waker, since, false, prev, next
	w.in.Store(q)
	if prev != nil {
		prev.next = w
	} else {
		q.first = w
	}
	if next != nil {
		next.prev = w
	} else {
		q.last = w
	}
	q.waiting.Add(1)
}

// take takes a place.
func (q *queue) take(limit int64) bool {
	return q.waiting.Load() < limit && (q.places == nil || q.places.Take())
}

// maxLooked is how many are looked at for one that has hung up.
const maxLooked = 1024

// evict ends the waiting of one that has hung up, and reports whether there was one. It finds
// out by [queue.has].
func (q *queue) evict() bool {
	w := q.first
	for n := 0; w != nil && (w.woken || !w.waker.HungUp()); n++ {
		if w = w.next; n == maxLooked {
			return false
		}
	}
	if w == nil {
		return false
	}
	waker := w.waker
	q.remove(w)
	waker.Wake()
	return true
}

// has reports whether a client has its place still.
func (q *queue) has(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return w.in.Load() == q
}

// isFirst reports whether a client is the first.
func (q *queue) isFirst(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.first == w
}

// next says that there may be room: the first client is asked again.
func (q *queue) next() {
	if q.waiting.Load() == 0 {
		return
	}
	q.mu.Lock()
	q.wake()
	q.mu.Unlock()
}

// wake has the first one asked, or notes that there was room while it is being asked.
func (q *queue) wake() {
	switch {
	case q.turn != nil:
		q.again = true
	case q.first != nil:
		q.turn, q.first.woken = q.first, true
		q.first.waker.Wake()
	}
}

// wakeAll has all clients asked again, which gives none the turn.
func (q *queue) wakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := q.first; w != nil; w = w.next {
		w.waker.Wake()
	}
}

// claim gives the first client the turn, unless another has it. It reports whether it is the
// client's turn.
func (q *queue) claim(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turn == nil && q.first == w {
		q.turn, w.woken = w, true
	}
	return w.woken
}

// turnOf reports whether it is a client's turn.
func (q *queue) turnOf(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return w.woken
}

// stay has the client that had the turn, and has found no room, wait on as the first. It
// reports whether there may be room again already.
func (q *queue) stay(w *waiter) (again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.again {
		q.again = false
		return true
	}
	w.woken, q.turn = false, nil
	return false
}

// stayFor is stay for a client that has found that there is no room or, unless full, none that is for
// it: then it does not look again.
func (q *queue) stayFor(w *waiter, full bool) (again bool) {
	if full {
		return q.stay(w)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	w.woken, q.turn, q.again = false, nil, false
	return false
}

// maxLooks is how often in a row a client looks for room that came while it looked. Other clients of its
// worker are served before it looks again.
const maxLooks = 8

// later has the client that has the turn, and for which there may be room again, look after
// others of its worker.
func (q *queue) later(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.woken {
		w.woken, q.turn, q.again = false, nil, false
		q.wake()
	}
}

// leave ends a client's waiting. If it was its turn the next one is asked, since it may have
// left room, or have left without having looked; and if it was the first, since the first one
// may look without being asked.
func (q *queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.in.Load() == q {
		q.remove(w)
	}
}

// remove is leave for one that is there.
func (q *queue) remove(w *waiter) {
	first := q.first == w
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.last = w.prev
	}
	q.waiting.Add(-1)
	if q.places != nil {
		q.places.Give()
	}
	if q.turn == w {
		q.turn, q.again, first = nil, false, true
	}
	if first {
		q.wake()
	}
	w.waker, w.next, w.prev, w.woken = worker.Waker{}, nil, nil, false
	w.in.Store(nil) // the last: from then on it is its owner's alone
}
