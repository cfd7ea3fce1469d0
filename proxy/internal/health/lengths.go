package health

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// lengths count sessions by their length, in powers of two of a millisecond; the last one
// holds all that are longer. They are safe for concurrent use.
type lengths [20]atomic.Int64

func (l *lengths) add(lasted time.Duration) {
	l[min(bits.Len64(uint64(max(lasted.Milliseconds(), 0))), len(l)-1)].Add(1)
}

func (l *lengths) forget() {
	for i := range l {
		l[i].Store(0)
	}
}

// lengthCounts are the lengths of several endpoints at a moment.
type lengthCounts [len(lengths{})]float64

func (t *lengthCounts) add(l *lengths) {
	for i := range t {
		t[i] += float64(l[i].Load())
	}
}

func (t *lengthCounts) total() (sum float64) {
	for _, n := range t {
		sum += n
	}
	return sum
}

// distance is the total variation distance of two distributions: 0 if they are the same, 1 if
// no length is in both.
func (t *lengthCounts) distance(other *lengthCounts) (d float64) {
	mine, theirs := max(t.total(), 1), max(other.total(), 1)
	for i := range t {
		d += math.Abs(t[i]/mine-other[i]/theirs) / 2
	}
	return d
}
