package loop

import (
	"math/bits"
	"sync/atomic"
)

const (
	// loadWindow is the time over which a loop measures its load before it chooses its
	// thread's scheduling policy: long enough to see several bulk flows at the same time,
	// even if each is served only every ten milliseconds.
	loadWindow = int64(32e6)

	// A loop takes SCHED_BATCH if it serves batchDescriptors descriptors in a window (more than a
	// session has) and works for a tenth of the window. It gives it up if the descriptors are fewer,
	// or the work is half of that. With a single session nothing gathers while a thread waits for
	// its CPU, and a loop that rarely works costs other threads little when it takes their CPU.
	batchDescriptors = 3
	batchShare       = 10
)

// A load is the recent work of a loop, and the policy of its thread for that.
//
// A thread that wakes under SCHED_OTHER takes the CPU from its waker, which is about to wake
// it again: two switches for each event. Under SCHED_BATCH it waits until the CPU is free or
// its turn has come (sched(7); kernel/sched/fair.c, check_preempt_wakeup_fair), and then finds
// more to do. If a CPU is idle it makes no difference.
type load struct {
	keep   bool   // the policy is left alone
	since  int64  // when the window began
	busy   int64  // ns of turns in it
	served uint64 // a bit for each descriptor of 64; more are as good as 64
	queues uint64 // the same, for listeners alone

	batch   bool
	owned   bool         // Run was called with another policy than the usual one
	tid     int          // the thread that was seen last under SCHED_BATCH
	unseen  int          // how many times it may sleep before it looks whether it has moved
	threads []heldThread // the threads seen since; goroutines move

	batches, refused atomic.Int64
}

// A heldThread is a thread on which a loop under SCHED_BATCH was about to sleep.
type heldThread struct {
	tid int
	has bool // the policy, and the loop holds it
}

// begin is called at the beginning of Run.
func (l *load) begin(now int64) {
	l.since, l.busy, l.served, l.queues = now, 0, 0, 0
	l.owned = !l.keep && owned()
}

func (l *load) serve(slot uint32) { l.served |= 1 << (slot & 63) }

// accepts says that a slot belongs to a listener, not to a session.
func (l *load) accepts(slot uint32) { l.queues |= 1 << (slot & 63) }

// turn is called after each turn, with its beginning and end.
func (l *load) turn(began, ended int64) {
	l.busy += ended - began
	if ended-l.since < loadWindow {
		return
	}
	if !l.keep {
		l.judge(ended - l.since)
	}
	l.since, l.busy, l.served, l.queues, l.unseen = ended, 0, 0, 0, 0
}

func (l *load) judge(span int64) {
	many := bits.OnesCount64(l.served&^l.queues) >= batchDescriptors
	switch share := l.busy * 100 / span; {
	case many && share >= batchShare && !l.batch:
		l.batch = true
		bump(&l.batches, 1)
	case l.batch && (!many || share < batchShare/2):
		l.leave()
	}
}

// followEvery is how many times a loop under SCHED_BATCH sleeps before it looks again
// whether it is on another thread, unless a window has ended. Goroutines move rarely;
// after a move the new thread lacks the policy until the loop looks.
const followEvery = 16

// sleep is called before a loop under SCHED_BATCH sleeps. It gets the timeout, and returns the
// timeout to use: one that ends soon after the window, so that an idle loop leaves SCHED_BATCH
// before the next event comes. A loop that works from time to time gets no shorter timeout.
func (l *load) sleep(now, timeout int64) int64 {
	if l.unseen--; l.unseen < 0 {
		l.follow()
		l.unseen = followEvery - 1
	}
	left := max(l.since+2*loadWindow-now, 1)
	if timeout < 0 {
		return left
	}
	return min(timeout, left)
}
