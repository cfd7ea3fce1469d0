package pipe_test

import (
	"slices"
	"testing"
	"time"
)

// contestant does something n times and returns the time taken.
type contestant struct {
	name string
	run  func(n int) time.Duration
}

// timed makes a contestant of an operation.
func timed(name string, op func()) contestant {
	return contestant{name, func(n int) time.Duration {
		start := time.Now()
		for range n {
			op()
		}
		return time.Since(start)
	}}
}

// slice is how long a contestant runs at a time: so short that on a busy machine
// most slices pass undisturbed, and long against the clock's own cost.
const slice = 400 * time.Microsecond

// paired lets contestants run by turns, one round for each of the benchmark's
// iterations, and reports for every rival how much time the first one took per
// round relative to it: the median of the rounds and, as spread, the 10th and the
// 90th percentile. Units are "x-of-NAME" and so on; ns is the median per
// operation. With less, the ratio is put as percent of the time that is saved.
func paired(b *testing.B, less bool, first contestant, rivals ...contestant) {
	all := append([]contestant{first}, rivals...)
	n := make([]int, len(all))
	for i, c := range all {
		n[i] = calibrate(c)
	}
	took := make([][]float64, len(all)) // ns per operation of each round
	round := 0
	for b.Loop() {
		for i := range all {
			k := (i + round) % len(all) // none always follows the same one
			took[k] = append(took[k], float64(all[k].run(n[k]))/float64(n[k]))
		}
		round++
	}
	b.ReportMetric(0, "ns/op") // of a round: meaningless
	b.ReportMetric(quantile(took[0], 0.5), first.name+"-ns")
	for i := 1; i < len(all); i++ {
		ratios := make([]float64, round)
		for r := range ratios {
			ratios[r] = took[0][r] / took[i][r]
		}
		name := all[i].name
		b.ReportMetric(quantile(took[i], 0.5), name+"-ns")
		if less {
			b.ReportMetric(100*(1-quantile(ratios, 0.5)), "%less-than-"+name)
			b.ReportMetric(100*(1-quantile(ratios, 0.9)), "%less-p10-"+name)
			b.ReportMetric(100*(1-quantile(ratios, 0.1)), "%less-p90-"+name)
			continue
		}
		b.ReportMetric(quantile(ratios, 0.5), "x-of-"+name)
		b.ReportMetric(quantile(ratios, 0.1), "x-p10-"+name)
		b.ReportMetric(quantile(ratios, 0.9), "x-p90-"+name)
	}
}

// calibrate finds how many operations fill a slice. It believes the fastest of
// some runs: others were disturbed.
func calibrate(c contestant) int {
	for n := 1; ; n *= 2 {
		d := min(c.run(n), c.run(n), c.run(n), c.run(n))
		if d >= slice/2 {
			return max(1, int(float64(n)*float64(slice)/float64(d)))
		}
	}
}

func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[int(q*float64(len(s)-1)+0.5)]
}
