package loop

import (
	"bytes"
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"
)

// timeBuckets is the number of buckets in [Stats.Lag] and [Stats.TimerLate].
const timeBuckets = 32

// Stats has the counters of a loop since it was made.
type Stats struct {
	Turns   int64 // rounds of waiting and serving
	Events  int64 // events that epoll_wait returned
	Blocked int64 // times that the loop slept
	Gathers int64 // times that it let events gather, see [Loop.Gather]
	// BusyPollHits counts the times that busy polling found something to do, so that the loop did not sleep.
	BusyPollHits int64
	// Batches counts how often the loop switched to SCHED_BATCH, see [Config.KeepPolicy]. BatchRefused counts
	// how often a thread did not get it, because it had another policy than SCHED_OTHER or the kernel refused.
	Batches, BatchRefused int64
	// Lag counts turns by their duration, from the return of epoll_wait, including the time given to other
	// goroutines. Lag[i] counts turns of at least 2^(i-1) and less than 2^i microseconds. A ready descriptor
	// may have waited this long for its handler, and a descriptor that became ready during the turn may have
	// waited this long to be found. Lag lacks the time that a sleeping loop waited for a CPU, for instance
	// under SCHED_BATCH.
	Lag [timeBuckets]int64
	// MaxLag is the longest turn.
	MaxLag time.Duration
	// Overruns counts, with [Config.TurnCPU], the turns that used a millisecond of CPU time. Other long turns have
	// mostly waited for a CPU, or for goroutines that the loop let run.
	Overruns int64
	// TimerLate counts the ticks (of a quarter of a millisecond) at which timers were due, by their delay, in
	// buckets as in Lag. A timer is due at the first tick at or after its time. The delay lasts until the
	// beginning of the turn that called the timers; the work before them in this turn counts in Lag. If the loop
	// slept, the delay contains the wait for a CPU, which Lag lacks; if not, the rest of the previous turn and the
	// delay of [Loop.Gather]. It also contains the rounding of epoll_wait's timeout, up to a millisecond without
	// epoll_pwait2(2). Ticks that passed while the loop did not run count as well.
	TimerLate [timeBuckets]int64
	// MaxTimerLate is the longest such delay.
	MaxTimerLate time.Duration
}

// times counts durations by powers of two of a microsecond.
type times struct {
	n   [timeBuckets]atomic.Int64
	max atomic.Int64
}

func (t *times) add(took int64) {
	bump(&t.n[min(bits.Len64(uint64(took/1000)), timeBuckets-1)], 1)
	if took > t.max.Load() {
		t.max.Store(took)
	}
}

func (t *times) load() (n [timeBuckets]int64, longest time.Duration) {
	for i := range n {
		n[i] = t.n[i].Load()
	}
	return n, time.Duration(t.max.Load())
}

// counts are written by the loop and read by any goroutine.
type counts struct {
	turns, events, sleeps, gathers, hits, overruns atomic.Int64
	lag                                            times
}

func (c *counts) turn(events int, took int64) {
	bump(&c.turns, 1)
	bump(&c.events, int64(events))
	c.lag.add(took)
}

func (c *counts) blocked() { bump(&c.sleeps, 1) }

func (c *counts) rested() { bump(&c.gathers, 1) }

func (c *counts) hit() { bump(&c.hits, 1) }

// bump adds to a counter with a single writer.
func bump(c *atomic.Int64, n int64) { c.Store(c.Load() + n) }

// Stats returns the loop's counters. It may be called by any goroutine at any time.
func (l *Loop) Stats() Stats {
	c := &l.counts
	s := Stats{
		Turns: c.turns.Load(), Events: c.events.Load(), Blocked: c.sleeps.Load(), Gathers: c.gathers.Load(),
		BusyPollHits: c.hits.Load(), Overruns: c.overruns.Load(),
		Batches: l.load.batches.Load(), BatchRefused: l.load.refused.Load(),
	}
	s.Lag, s.MaxLag = c.lag.load()
	s.TimerLate, s.MaxTimerLate = l.wheel.late.load()
	return s
}

// overrun is the CPU time of a turn that counts in Overruns.
const overrun = time.Millisecond

// cpuTime is the CPU time that a thread has used.
type cpuTime struct {
	thread int // 0: unknown
	used   time.Duration
}

// since returns the CPU time that the thread has used after an earlier reading, or 0 if the reading is of
// another thread.
func (t cpuTime) since(before cpuTime) time.Duration {
	if t.thread == 0 || t.thread != before.thread {
		return 0
	}
	return t.used - before.used
}

// used returns the CPU time of the present thread, if turns are measured.
func (l *Loop) used() cpuTime {
	if !l.turnCPU {
		return cpuTime{}
	}
	return threadTime()
}

const (
	stuckTime  = int64(time.Second)     // how long a handler runs before it is reported
	stuckCheck = 250 * time.Millisecond // between two looks at the handlers
)

// watch reports handlers that do not come back, until the server ends.
func (s *Server) watch(one *serve) {
	reported := make([]int64, len(one.parts)) // when the reported handler began
	tick := time.NewTicker(stuckCheck)
	defer tick.Stop()
	for {
		select {
		case <-one.over:
			return
		case <-tick.C:
		}
		for i, part := range one.parts {
			began, now := part.began.Load(), monotonic()
			if began != 0 && began != reported[i] && now-began >= stuckTime {
				reported[i] = began
				s.Stuck(time.Duration(now-began), stacksAtWork())
			}
		}
	}
}

// maxStacks bounds the text of all goroutines' stacks.
const maxStacks = 64 << 20

// stacksAtWork returns the stacks of all goroutines that are in a running handler, not in a waiting coroutine.
func stacksAtWork() (found []byte) {
	all := make([]byte, min(1<<20+runtime.NumGoroutine()<<11, maxStacks))
	n := runtime.Stack(all, true)
	for ; n == len(all) && n < maxStacks; n = runtime.Stack(all, true) {
		all = make([]byte, 4*len(all))
	}
	for one := range bytes.SplitSeq(all[:n], []byte("\n\n")) {
		head, rest, _ := bytes.Cut(one, []byte("\n"))
		if bytes.Contains(head, []byte("[coroutine")) {
			continue
		}
		if bytes.Contains(rest, []byte("loop.(*serving).run(")) || bytes.Contains(rest, []byte("loop.(*Conn).run(")) {
			found = append(append(found, one...), '\n')
		}
	}
	return found
}
