package tlsterm

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Stats are the counters of handshakes. They only grow, but for Active; the zero value
// is ready, and is not copied.
type Stats struct {
	Started   atomic.Int64
	Active    atomic.Int64 // under way, or waiting for their turn
	Completed atomic.Int64
	Resumed   atomic.Int64 // of those completed: with a ticket
	Failed    [Kinds]atomic.Int64
	Durations Durations // of those completed, the wait for their turn included
}

// Failures is the sum of all that failed.
func (s *Stats) Failures() (n int64) {
	for i := range s.Failed {
		n += s.Failed[i].Load()
	}
	return n
}

// Durations counts durations in buckets, each twice as wide as the one before.
type Durations struct {
	sum     atomic.Int64
	buckets [buckets]atomic.Int64
}

const (
	buckets   = 20
	narrowest = 64 * time.Microsecond
)

func (d *Durations) add(t time.Duration) {
	d.sum.Add(int64(t))
	d.buckets[min(bits.Len64(uint64(t/narrowest)), buckets-1)].Add(1)
}

// Sum is that of all durations.
func (d *Durations) Sum() time.Duration { return time.Duration(d.sum.Load()) }

// Count is how many there were.
func (d *Durations) Count() (n int64) {
	for i := range d.buckets {
		n += d.buckets[i].Load()
	}
	return n
}

// Each calls f for each bucket, with its upper bound (exclusive; the last one has none: 0) and
// its count.
func (d *Durations) Each(f func(below time.Duration, n int64)) {
	for i := range d.buckets {
		below := narrowest << i
		if i == buckets-1 {
			below = 0
		}
		f(below, d.buckets[i].Load())
	}
}
