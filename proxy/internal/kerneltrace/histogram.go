package kerneltrace

import "time"

// A Histogram counts durations in buckets, of which four are between a power of two and the next:
// a quantile is at most a quarter too high.
type Histogram struct {
	Count uint64
	Sum   time.Duration
	Max   time.Duration

	buckets [128]uint32
}

func histogramOf(h *traceHistogram) Histogram {
	return Histogram{Count: h.Count, Sum: time.Duration(h.Sum), Max: time.Duration(h.Max), buckets: h.Bucket}
}

// Add adds the durations of another histogram.
func (h *Histogram) Add(o *Histogram) {
	h.Count, h.Sum, h.Max = h.Count+o.Count, h.Sum+o.Sum, max(h.Max, o.Max)
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
}

// Quantile returns a duration that a share q of all, from 0 to 1, does not exceed; 0 if there are
// none.
func (h *Histogram) Quantile(q float64) time.Duration {
	var all, below uint64
	for _, n := range h.buckets {
		all += uint64(n)
	}
	for i, n := range h.buckets {
		below += uint64(n)
		if n > 0 && float64(below) >= q*float64(all) {
			return min(bucketEnd(i), h.Max)
		}
	}
	return 0
}

// bucketEnd returns the first duration beyond a bucket, see record in bpf/trace.c; the last bucket has
// no end.
func bucketEnd(i int) time.Duration {
	if i == 127 {
		return 1<<63 - 1
	}
	return time.Duration(4+(i+1)%4) << ((i+1)/4 + 5)
}
