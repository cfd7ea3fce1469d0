package worker

import (
	"sync"
	"time"
)

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
