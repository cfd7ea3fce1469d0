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
	client *pendingClient
	use    uint64
}

// wake implements [wakeable].
func (c *pendingClient) wake(use uint64) {
	w := &c.worker.wakes
	w.mu.Lock()
	w.due = append(w.due, wake{c, use})
	first := len(w.due) == 1
	w.mu.Unlock()
	if first {
		c.worker.post(c.worker.wakeOn)
	}
}

// hungUp implements [wakeable].
func (c *pendingClient) hungUp(use uint64) bool { return c.hung.Load() == use+1 }

// take returns the next one that is to be woken.
func (w *wakes) take() (due wake, ok bool) {
	if w.next == len(w.now) {
		w.mu.Lock()
		w.now, w.due, w.next = w.due, w.now[:0], 0
		w.mu.Unlock()
	}
	if len(w.now) == 0 {
		return due, false
	}
	due, w.now[w.next] = w.now[w.next], wake{}
	w.next++
	return due, true
}

// collectWakes wakes those that are still parked, for as long as one turn may take.
func (w *worker) collectWakes() {
	for began := time.Now(); time.Since(began) < turnTime; {
		due, ok := w.wakes.take()
		if !ok {
			return
		}
		if c := due.client; c.use == due.use && c.phase == parked {
			w.loop.Disarm(&c.timer)
			w.proceed(c)
		}
	}
	w.post(w.wakeOn)
}
