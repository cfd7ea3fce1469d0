package filter

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Buckets is the number of buckets of times. Bucket n has the times below 2^n µs, the last bucket all longer times.
const Buckets = 18

// counts are the counters of a filter. They last as long as there is a filter with its name.
type counts struct {
	calls    atomic.Int64
	nanos    atomic.Int64
	verdicts [verdicts]atomic.Int64
	failures [failures]atomic.Int64
	tagged   atomic.Int64
	logged   atomic.Int64
	unlogged atomic.Int64
	times    [Buckets]atomic.Int64
}

// Counts are the figures of a filter.
type Counts struct {
	// Calls counts the calls of the filter, and Time is the sum of their durations.
	Calls int64
	Time  time.Duration
	// Verdicts are the answers, by [Verdict]. A failed call counts as the verdict that OnError gives.
	Verdicts [verdicts]int64
	// Failures are the calls without an answer, by [Failure].
	Failures [failures]int64
	Tagged   int64
	// Logged is how many lines were logged. Unlogged is how many lines were dropped.
	Logged, Unlogged int64
	// Times are the durations of calls, see [Buckets].
	Times [Buckets]int64
	// Waiting is the number of clients that wait for an instance. Running and Idle are numbers of instances.
	Waiting, Running, Idle int
}

func (c *counts) took(d time.Duration) {
	c.calls.Add(1)
	c.nanos.Add(int64(d))
	c.times[min(bits.Len64(uint64(max(d.Microseconds(), 0))), Buckets-1)].Add(1)
}

// Counts returns the present figures.
func (f *Filter) Counts() (n Counts) {
	c := &f.counts.counts
	n.Calls, n.Time = c.calls.Load(), time.Duration(c.nanos.Load())
	for i := range n.Verdicts {
		n.Verdicts[i] = c.verdicts[i].Load()
	}
	n.Failures = f.counts.Failures()
	for i := range n.Times {
		n.Times[i] = c.times[i].Load()
	}
	n.Tagged, n.Logged, n.Unlogged = c.tagged.Load(), c.logged.Load(), c.unlogged.Load()
	n.Running, n.Idle = f.engine.Load().pool.Sizes()
	n.Waiting = f.clients.length()
	return n
}

// A Ledger holds the counts of a filter. A filter that replaces another continues its Ledger.
type Ledger struct{ counts }

// Failures returns the calls without an answer, by [Failure].
func (l *Ledger) Failures() (n [failures]int64) {
	for i := range n {
		n[i] = l.failures[i].Load()
	}
	return n
}
