package compare

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	lagFloor   = 10 // times below 2^10 ns are in the first bucket
	lagOctaves = 27 // up to 2^37 ns, 137 s
	lagSteps   = 4  // buckets of an octave
	lagBuckets = 1 + lagOctaves*lagSteps
)

// A histogram counts how much later the shadow was, in buckets that are a fourth of an octave
// wide, and how much earlier.
type histogram struct {
	later, earlier [lagBuckets]atomic.Uint64
}

// bucket returns the bucket of a time.
func bucket(ns uint64) int {
	if ns < 1<<lagFloor {
		return 0
	}
	octave := bits.Len64(ns) - 1
	step := ns >> (octave - 2) & (lagSteps - 1)
	return min(1+(octave-lagFloor)*lagSteps+int(step), lagBuckets-1)
}

// bound returns the middle of a bucket.
func middle(bucket int) time.Duration {
	if bucket == 0 {
		return 0
	}
	octave, step := lagFloor+(bucket-1)/lagSteps, (bucket-1)%lagSteps
	low := uint64(1)<<octave + uint64(step)<<(octave-2)
	return time.Duration(low + 1<<(octave-3))
}

func (h *histogram) add(lag int64) {
	if lag >= 0 {
		h.later[bucket(uint64(lag))].Add(1)
	} else {
		h.earlier[bucket(uint64(-lag))].Add(1)
	}
}

// counts returns the buckets from the earliest to the latest.
func (h *histogram) counts() (all [2 * lagBuckets]uint64) {
	for i := range lagBuckets {
		all[lagBuckets-1-i] = h.earlier[i].Load()
		all[lagBuckets+i] = h.later[i].Load()
	}
	return all
}

// lag returns the figures of the buckets that counts has returned.
func lagOf(all *[2 * lagBuckets]uint64) (l Lag) {
	for i, n := range all {
		switch {
		case i < lagBuckets-1:
			l.Faster += n
		case i > lagBuckets:
			l.Slower += n
		default:
			l.Alike += n
		}
	}
	total := l.Faster + l.Slower + l.Alike
	l.P50, l.P90, l.P99 = quantile(all, total, 50), quantile(all, total, 90), quantile(all, total, 99)
	return l
}

// quantile returns the time that so many percent of all do not exceed, to an eighth.
func quantile(all *[2 * lagBuckets]uint64, total, percent uint64) time.Duration {
	if total == 0 {
		return 0
	}
	rank, sum := (total*percent+99)/100, uint64(0)
	for i, n := range all {
		if sum += n; sum >= rank {
			if i < lagBuckets {
				return -middle(lagBuckets - 1 - i)
			}
			return middle(i - lagBuckets)
		}
	}
	return 0
}
