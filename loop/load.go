package loop

import (
	"math/bits"
	"sync/atomic"
)

const (
	// loadWindow is for how long a loop looks at what it has to do before it
	// chooses its thread's scheduling policy: long enough for bulk flows, each of
	// which may be served but every ten milliseconds, to be seen side by side.
	loadWindow = int64(32e6)

	// A loop takes SCHED_BATCH that serves so many descriptors in a window (more
	// than one session has) and is at work for a tenth of it, and gives it up if they are
	// fewer, or at half of that. With a single session nothing gathers while a
	// thread waits for its CPU, and a loop that is hardly ever at work costs others
	// little when it takes theirs.
	batchDescriptors = 3
	batchShare       = 10
)

// A load is what a loop has had to do lately, and the policy that its thread has for that.
//
// A thread that wakes under SCHED_OTHER takes the CPU from the one that woke it, which
// is about to wake it again: two switches for each event. Under SCHED_BATCH it waits
// until the CPU is free or its turn has come (sched(7); kernel/sched/fair.c,
// check_preempt_wakeup_fair), and finds more to do then. Where a CPU is idle it makes no
// difference.
type load struct {
	keep   bool   // the policy is left alone
	since  int64  // when the window began
	busy   int64  // ns of turns in it
	served uint64 // a bit for each descriptor of 64; more are as good as 64

	batch   bool
	tid     int   // the thread that was seen last under SCHED_BATCH
	threads []int // those that were given it; goroutines move

	batches, refused atomic.Int64
}

func (l *load) serve(slot uint32) { l.served |= 1 << (slot & 63) }

// turn is told of each turn, when it began and how long it took.
func (l *load) turn(began, took int64) {
	l.busy += took
	now := began + took
	if now-l.since < loadWindow {
		return
	}
	if !l.keep {
		l.judge(now - l.since)
	}
	l.since, l.busy, l.served = now, 0, 0
}

func (l *load) judge(span int64) {
	switch many, share := bits.OnesCount64(l.served) >= batchDescriptors, l.busy*100/span; {
	case many && share >= batchShare && !l.batch:
		l.batch = true
		bump(&l.batches, 1)
	case l.batch && (!many || share < batchShare/2):
		l.leave()
	}
}
