package filter

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/tally"
)

// Buckets is the number of buckets of times. Bucket n counts times below 2^n µs, the last bucket all longer times.
const Buckets = 18

// A Ledger holds the counts of a filter, or of the streams of Rewriters. A filter that replaces another continues its
// Ledger. It is safe for concurrent use.
type Ledger struct {
	// Verdicts are the answers of a filter, by [Verdict]. A failed call counts as the verdict that OnError gives.
	Verdicts *tally.Reasons
	// Failures are the calls of a filter without an answer, or the streams that have ended by a failure, by [Failure].
	Failures *tally.Reasons
	// Passed are the streams that went on unchanged after a failure, by Failure.
	Passed *tally.Reasons
	Tagged atomic.Int64
	// Logged is how many lines were logged. Unlogged is how many lines were dropped.
	Logged, Unlogged atomic.Int64
	// In counts the bytes that streams got, and Out the bytes that were passed on.
	In, Out atomic.Int64

	calls, nanos atomic.Int64
	times        [Buckets]atomic.Int64
}

// NewLedger returns the Ledger of a filter.
func NewLedger() *Ledger {
	return &Ledger{Verdicts: tally.NewReasons(verdictNames[:]...), Failures: tally.NewReasons(failureNames[:failures]...)}
}

// NewStreamLedger returns the Ledger of Rewriters.
func NewStreamLedger() *Ledger {
	passed := failureNames
	for f := range streamFailures {
		if !f.Passes() {
			passed[f] = ""
		}
	}
	return &Ledger{Failures: tally.NewReasons(failureNames[:]...), Passed: tally.NewReasons(passed[:]...)}
}

func (l *Ledger) took(d time.Duration) {
	l.calls.Add(1)
	l.nanos.Add(int64(d))
}

// Calls returns the number of calls of the filter, or of calls with a chunk of a stream, and the sum of their
// durations.
func (l *Ledger) Calls() (n int64, took time.Duration) {
	return l.calls.Load(), time.Duration(l.nanos.Load())
}

func (l *Ledger) note(d time.Duration) {
	l.took(d)
	l.times[min(bits.Len64(uint64(max(d.Microseconds(), 0))), Buckets-1)].Add(1)
}

// Times returns the durations of calls of a filter, see [Buckets].
func (l *Ledger) Times() (n [Buckets]int64) {
	for i := range n {
		n[i] = l.times[i].Load()
	}
	return n
}

// Sizes returns the number of clients that wait for an instance, and the numbers of instances.
func (f *Filter) Sizes() (waiting, running, idle int) {
	running, idle = f.engine.Load().pool.Sizes()
	return f.clients.length(), running, idle
}
