package loop

import (
	"math/bits"
	"sync/atomic"
)

const (
	// loadWindow is how long a loop measures its load before it chooses its thread's scheduling policy. It is
	// long enough to see several bulk flows at once, even if each is served only every ten milliseconds.
	loadWindow = int64(32e6)

	// A loop takes SCHED_BATCH if in a window it serves batchDescriptors descriptors, more than one session has,
	// and works a tenth of the time. It gives SCHED_BATCH up if it serves fewer, or works half as much. With a
	// single session nothing gathers while the thread waits for its CPU, and a loop that rarely works costs other
	// threads little.
	batchDescriptors = 3
	batchShare       = 10
)

// A load is a loop's recent work, and the policy that follows for its thread.
//
// A thread that wakes under SCHED_OTHER takes the CPU from its waker, which is about to wake it again: two
// switches for each event. Under SCHED_BATCH it waits until the CPU is free or its turn has come (sched(7);
// kernel/sched/fair.c, check_preempt_wakeup_fair), and then finds more to do. If a CPU is idle both are the
// same.
type load struct {
	keep   bool   // leave the policy alone
	since  int64  // beginning of the window
	busy   int64  // nanoseconds of turns in the window
	served uint64 // one of 64 bits for each descriptor served; more than 64 count as 64
	queues uint64 // the same for listeners only

	batch   bool
	owned   bool         // Run was called on a thread with a policy that the program had set
	tid     int          // the thread last seen under SCHED_BATCH
	unseen  int          // sleeps until the loop looks again whether it is on another thread
	threads []heldThread // the threads seen since the loop took SCHED_BATCH; goroutines move

	batches, refused atomic.Int64
}

// A heldThread is a thread on which a loop under SCHED_BATCH was about to sleep.
type heldThread struct {
	tid int
	has bool // the thread has the policy, and the loop holds it
}

// begin is called at the beginning of Run.
func (l *load) begin(now int64) {
	l.since, l.busy, l.served, l.queues = now, 0, 0, 0
	l.owned = !l.keep && owned()
}

func (l *load) serve(slot uint32) { l.served |= 1 << (slot & 63) }

// accepts says that a slot belongs to a listener.
func (l *load) accepts(slot uint32) { l.queues |= 1 << (slot & 63) }

// turn is called after each turn, with its beginning and its end.
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

// followEvery is how many times a loop under SCHED_BATCH sleeps before it looks again whether it is on another
// thread, unless a window ends first. Goroutines move rarely; after a move the new thread lacks the policy
// until the loop looks.
const followEvery = 16

// sleep is called before a loop under SCHED_BATCH sleeps, and returns the timeout to use. It makes a long timeout
// end soon after the window, so that an idle loop leaves SCHED_BATCH before the next event comes.
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
