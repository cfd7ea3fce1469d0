// Package pauses measures how long the Go runtime has stopped the world of this process, and
// counts its collections and goroutines.
package pauses

import (
	"math"
	"runtime/metrics"
	"time"
)

// Pauses are those of a while.
type Pauses struct {
	// Longest is the upper bound of the bucket that the longest pause is counted
	// in, at most a quarter above it; 0 if there was none.
	Longest time.Duration `json:"longest"`
	Count   uint64        `json:"count"`
	// Collections is how many collections of garbage ended.
	Collections uint64 `json:"collections"`
	// Goroutines is how many there are at its end.
	Goroutines uint64 `json:"goroutines"`
}

// The metrics, by the names of runtime/metrics: pauses to collect garbage and others, from the
// decision to stop until all go on.
var names = []string{
	"/sched/pauses/total/gc:seconds", "/sched/pauses/total/other:seconds",
	"/gc/cycles/total:gc-cycles", "/sched/goroutines:goroutines",
}

// The places of names.
const (
	histograms = 2 // are the first
	cycles     = 2
	goroutines = 3
)

// Meter reads pauses. It is not safe for concurrent use.
type Meter struct {
	samples     []metrics.Sample
	counts      [histograms][]uint64 // of the buckets, at the last reading
	collections uint64
}

// New returns a meter that begins now.
func New() *Meter {
	m := new(Meter)
	for _, name := range names {
		m.samples = append(m.samples, metrics.Sample{Name: name})
	}
	m.Since()
	return m
}

// Since returns the pauses since the last call, or since New. It stops nothing
// itself.
func (m *Meter) Since() Pauses {
	metrics.Read(m.samples)
	var p Pauses
	for i := range m.counts {
		h := m.samples[i].Value.Float64Histogram()
		before := m.counts[i]
		m.counts[i] = append([]uint64(nil), h.Counts...)
		for bucket, n := range h.Counts {
			if before != nil {
				n -= before[bucket]
			}
			if n > 0 {
				p.Count += n
				p.Longest = max(p.Longest, bound(h.Buckets, bucket))
			}
		}
	}
	now := m.samples[cycles].Value.Uint64()
	p.Collections, m.collections = now-m.collections, now
	p.Goroutines = m.samples[goroutines].Value.Uint64()
	return p
}

// bound is the upper bound of a bucket, of the last one the lower.
func bound(buckets []float64, bucket int) time.Duration {
	seconds := buckets[bucket+1]
	if math.IsInf(seconds, 1) {
		seconds = buckets[bucket]
	}
	return time.Duration(seconds * float64(time.Second))
}
