package loop

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// lagBuckets is how many there are in [Stats.Lag].
const lagBuckets = 32

// Stats is what a loop has done since it was made.
type Stats struct {
	Turns   int64 // rounds of waiting and serving
	Events  int64 // that were returned by epoll_wait
	Blocked int64 // times that the loop slept
	Gathers int64 // times that it let events gather, see [Loop.Gather]
	// BusyPollHits are the times that busy polling found something to do, so that the
	// loop did not sleep.
	BusyPollHits int64
	// Batches are the times that the loop took to SCHED_BATCH, see [Config.KeepPolicy],
	// and BatchRefused the threads that did not get it, because they had another policy
	// than SCHED_OTHER or the kernel would not have it.
	Batches, BatchRefused int64
	// Lag counts turns by how long they took, which is how long something that
	// became ready at their beginning may have waited: Lag[i] those below 2^i
	// microseconds, and not below half of that.
	Lag [lagBuckets]int64
	// MaxLag is the longest.
	MaxLag time.Duration
}

// counts are written by the loop and read by everybody.
type counts struct {
	turns, events, sleeps, gathers, hits, max atomic.Int64
	lag                                       [lagBuckets]atomic.Int64
}

func (c *counts) turn(events int, took int64) {
	bump(&c.turns, 1)
	bump(&c.events, int64(events))
	bump(&c.lag[min(bits.Len64(uint64(took/1000)), lagBuckets-1)], 1)
	if took > c.max.Load() {
		c.max.Store(took)
	}
}

func (c *counts) blocked() { bump(&c.sleeps, 1) }

func (c *counts) rested() { bump(&c.gathers, 1) }

func (c *counts) hit() { bump(&c.hits, 1) }

// bump adds to a counter that nobody else writes.
func bump(c *atomic.Int64, n int64) { c.Store(c.Load() + n) }

// Stats returns what the loop has done. It may be called by any goroutine at any
// time.
func (l *Loop) Stats() Stats {
	c := &l.counts
	s := Stats{
		Turns: c.turns.Load(), Events: c.events.Load(), Blocked: c.sleeps.Load(), Gathers: c.gathers.Load(),
		BusyPollHits: c.hits.Load(), MaxLag: time.Duration(c.max.Load()),
		Batches: l.load.batches.Load(), BatchRefused: l.load.refused.Load(),
	}
	for i := range s.Lag {
		s.Lag[i] = c.lag[i].Load()
	}
	return s
}
