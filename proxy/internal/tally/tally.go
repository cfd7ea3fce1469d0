// Package tally counts connections and sessions of a listener, an upstream or an endpoint: how long they took, and
// why they ended. Each loop counts in cache lines of its own, so that no two loops write to the same line.
package tally

import (
	"sync/atomic"
	"time"
)

// A Close is the reason that a session ended, with the side that began it.
type Close uint8

// The reasons.
const (
	ClientClosed Close = iota // both ends of file were passed on, the client's first
	EndpointClosed
	ClientReset
	EndpointReset
	ClientFailed // a read or a write failed otherwise
	EndpointFailed
	Idle
	HalfClose
	Lifetime
	FirstByte
	Canceled // by a drain or a reload
	Operator // by a request to end sessions
	Other

	Closes // how many there are
)

// ConnectBounds and SessionBounds are the upper bounds of the buckets of connect and session
// times, without the last bucket, which has none.
var (
	ConnectBounds = [...]time.Duration{
		time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond,
		500 * time.Millisecond, 1500 * time.Millisecond, 5 * time.Second, 15 * time.Second,
	}
	SessionBounds = [...]time.Duration{
		10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second,
		time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour,
	}
)

// A Histogram is counts of times by bucket, and their sum. A bucket has the times up to its bound that are in no
// earlier bucket.
type Histogram struct {
	Buckets [len(ConnectBounds) + 1]int64
	Sum     time.Duration
}

// Count returns the number of times.
func (h *Histogram) Count() (n int64) {
	for _, bucket := range h.Buckets {
		n += bucket
	}
	return n
}

// Counts is the content of a [Tally].
type Counts struct {
	Connects Histogram // connections that were made to endpoints
	Sessions Histogram // sessions that have ended
	Closes   [Closes]int64
}

// A Count is one of several counts, with its name.
type Count struct {
	Of string
	N  int64
}

// stripes is how many loops have counters of their own; a further loop shares another loop's.
const stripes = 16

// A Tally counts connections and sessions. The zero value is ready. It may be used by any
// goroutine at any time.
type Tally struct {
	loops [stripes]atomic.Pointer[block] // nil: none has counted there
}

// A block is one loop's counters. Its size is a size class of the runtime and a multiple of a
// cache line, so that no other object is in its lines.
type block struct {
	connects, sessions histogram
	closes             [Closes]atomic.Int64
	_                  [7]int64
}

type histogram struct {
	buckets [len(ConnectBounds) + 1]atomic.Int64
	sum     atomic.Int64 // nanoseconds
}

// Connected counts a connection that was made by a loop, and the time that it took.
func (t *Tally) Connected(loop int, took time.Duration) {
	t.of(loop).connects.add(ConnectBounds[:], took)
}

// Ended counts the end of a session of a loop.
func (t *Tally) Ended(loop int, lasted time.Duration, why Close) {
	b := t.of(loop)
	b.sessions.add(SessionBounds[:], lasted)
	b.closes[why].Add(1)
}

// of returns the counters of a loop. A negative number stands for what happens outside the loops.
func (t *Tally) of(loop int) *block {
	at := &t.loops[uint(loop)%stripes]
	if b := at.Load(); b != nil {
		return b
	}
	at.CompareAndSwap(nil, new(block))
	return at.Load()
}

func (h *histogram) add(bounds []time.Duration, took time.Duration) {
	i := 0
	for i < len(bounds) && took > bounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.sum.Add(int64(max(took, 0)))
}

func (h *histogram) addTo(sum *Histogram) {
	for i := range h.buckets {
		sum.Buckets[i] += h.buckets[i].Load()
	}
	sum.Sum += time.Duration(h.sum.Load())
}

// Read returns the counts until now. None is less than in an earlier answer.
func (t *Tally) Read() (c Counts) {
	for i := range t.loops {
		b := t.loops[i].Load()
		if b == nil {
			continue
		}
		b.connects.addTo(&c.Connects)
		b.sessions.addTo(&c.Sessions)
		for why := range b.closes {
			c.Closes[why] += b.closes[why].Load()
		}
	}
	return c
}
