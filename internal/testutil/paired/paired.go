// Package paired compares contestants within one benchmark: they take turns in short rounds, so that whatever else the
// machine does affects all of them.
package paired

import (
	"slices"
	"testing"
	"time"
)

// A Contestant does something n times, and returns the time that it took.
type Contestant struct {
	Name string
	Run  func(n int) time.Duration
}

// Timed makes a contestant from an operation.
func Timed(name string, op func()) Contestant {
	return Contestant{name, func(n int) time.Duration {
		start := time.Now()
		for range n {
			op()
		}
		return time.Since(start)
	}}
}

// Run lets contestants take turns, one round for each of the benchmark's iterations. In each round a contestant
// runs for about a slice of time, or once if slice is 0. Run reports for each contestant the median time of an
// operation as NAME-ns, and for each rival the first contestant's time divided by the rival's: the median of
// the rounds as x-of-NAME, and the 10th and the 90th percentile.
func Run(b *testing.B, slice time.Duration, first Contestant, rivals ...Contestant) {
	all := append([]Contestant{first}, rivals...)
	n := make([]int, len(all))
	for i, c := range all {
		n[i] = calibrate(c, slice)
	}
	took := make([][]float64, len(all)) // ns per operation in each round
	round := 0
	for b.Loop() {
		for i := range all {
			k := (i + round) % len(all) // the order changes, so that nobody always follows the same one
			took[k] = append(took[k], float64(all[k].Run(n[k]))/float64(n[k]))
		}
		round++
	}
	b.ReportMetric(0, "ns/op") // the time of a round is meaningless
	for i, c := range all {
		b.ReportMetric(Quantile(took[i], 0.5), c.Name+"-ns")
		if i == 0 {
			continue
		}
		ratios := make([]float64, round)
		for r := range ratios {
			ratios[r] = took[0][r] / took[i][r]
		}
		b.ReportMetric(Quantile(ratios, 0.5), "x-of-"+c.Name)
		b.ReportMetric(Quantile(ratios, 0.1), "x-p10-"+c.Name)
		b.ReportMetric(Quantile(ratios, 0.9), "x-p90-"+c.Name)
	}
}

// calibrate returns how many operations fill a slice. It takes the fastest of some runs, because others were
// disturbed. Without a slice it lets the contestant warm up.
func calibrate(c Contestant, slice time.Duration) int {
	begin := time.Now()
	for n := 1; ; n *= 2 {
		d := min(c.Run(n), c.Run(n), c.Run(n))
		if slice == 0 {
			return 1
		}
		if d >= slice/2 || time.Since(begin) > 100*slice {
			return max(1, int(float64(n)*float64(slice)/float64(max(d, slice/8))))
		}
	}
}

// Quantile returns a quantile of some values.
func Quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[int(q*float64(len(s)-1)+0.5)]
}
