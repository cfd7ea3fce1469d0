package health

import "sync"

// maxPending is the number of transitions that may be queued; beyond it the latest are
// dropped.
const maxPending = 1 << 16

// A notifier reports transitions, on a goroutine of its own: the report may be written to a
// stalled reader.
type notifier struct {
	report func(Transition)
	wake   chan struct{}

	mu      sync.Mutex
	pending []Transition
	lost    int // dropped since the last one queued
}

// queue queues a transition. It never waits for the reader.
func (v *notifier) queue(t Transition) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.pending) == maxPending {
		v.lost++
		return
	}
	t.Suppressed += v.lost
	v.lost = 0
	v.pending = append(v.pending, t)
	nudge(v.wake)
}

// run reports transitions until stop, and then the rest of the queue.
func (v *notifier) run(stop chan struct{}) {
	for {
		select {
		case <-stop:
			v.reportAll()
			return
		case <-v.wake:
			v.reportAll()
		}
	}
}

func (v *notifier) reportAll() {
	v.mu.Lock()
	untold := v.pending
	v.pending = nil
	v.mu.Unlock()
	for _, t := range untold {
		v.report(t)
	}
}
