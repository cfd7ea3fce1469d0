package worker

import (
	"sync"
	"time"
)

// wakes are clients of a worker that are to be woken.
type wakes struct {
	mu  sync.Mutex
	due []wake

	now  []wake // the worker's own: those that it is waking
	next int    // of those
}

type wake struct {
	d   *pendingClient
	use uint64
}

// wake implements [wakeable].
func (d *pendingClient) wake(use uint64) {
	w := &d.worker.wakes
	w.mu.Lock()
	w.due = append(w.due, wake{d, use})
	first := len(w.due) == 1
	w.mu.Unlock()
	if first {
		d.worker.post(d.worker.wakeOn)
	}
}

// hungUp implements [wakeable].
func (d *pendingClient) hungUp(use uint64) bool { return d.hung.Load() == use+1 }

// take returns the next one that is to be woken.
func (w *wakes) take() (k wake, ok bool) {
	if w.next == len(w.now) {
		w.mu.Lock()
		w.now, w.due, w.next = w.due, w.now[:0], 0
		w.mu.Unlock()
	}
	if len(w.now) == 0 {
		return k, false
	}
	k, w.now[w.next] = w.now[w.next], wake{}
	w.next++
	return k, true
}

// collectWakes wakes those that are still parked, for as long as one turn may take.
func (w *worker) collectWakes() {
	for began := time.Now(); time.Since(began) < turnTime; {
		k, ok := w.wakes.take()
		if !ok {
			return
		}
		if d := k.d; d.use == k.use && d.phase == parked {
			w.loop.Disarm(&d.timer)
			w.proceed(d)
		}
	}
	w.post(w.wakeOn)
}
