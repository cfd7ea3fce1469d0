package evring_test

import (
	"slices"
	"testing"
	"time"
)

// contestant passes n events and returns the time taken.
type contestant struct {
	name string
	run  func(n int) time.Duration
}

// paired lets contestants run by turns, one round for each of the benchmark's
// iterations, each of about a slice, and reports their medians in nanoseconds per event
// and for every pair of the first and a rival the median of the rounds' ratios, rival's
// time to the first one's, and as spread the 10th and the 90th percentile.
func paired(b *testing.B, slice time.Duration, all ...contestant) {
	n := make([]int, len(all))
	for i, c := range all {
		n[i] = calibrate(c, slice)
	}
	took := make([][]float64, len(all)) // ns per event of each round
	round := 0
	for b.Loop() {
		for i := range all {
			k := (i + round) % len(all) // none always follows the same one
			took[k] = append(took[k], float64(all[k].run(n[k]))/float64(n[k]))
		}
		round++
	}
	b.ReportMetric(0, "ns/op") // of a round: meaningless
	for i, c := range all {
		b.ReportMetric(quantile(took[i], 0.5), c.name+"-ns")
		if i == 0 {
			continue
		}
		ratios := make([]float64, round)
		for r := range ratios {
			ratios[r] = took[i][r] / took[0][r]
		}
		b.ReportMetric(quantile(ratios, 0.5), "x-"+c.name)
		b.ReportMetric(quantile(ratios, 0.1), "x-p10-"+c.name)
		b.ReportMetric(quantile(ratios, 0.9), "x-p90-"+c.name)
	}
}

// calibrate finds how many events fill a slice of time, 16 for a slice of 0. It believes the fastest of
// some runs: others were disturbed.
func calibrate(c contestant, slice time.Duration) int {
	if slice == 0 {
		return 16
	}
	for n := 64; ; n *= 2 {
		start := time.Now()
		c.run(n)
		d := min(time.Since(start), c.run(n), c.run(n))
		if d >= slice/2 || time.Since(start) > 4*slice {
			return max(64, int(float64(n)*float64(slice)/float64(max(d, slice/8))))
		}
	}
}

func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[int(q*float64(len(s)-1)+0.5)]
}
