// Package report turns the figures of a benchmark into something to read:
// medians and spreads, ratios of contestants measured side by side, numbers
// with their units, tables.
package report

import (
	"math"
	"slices"
)

// Sample is one figure of one contestant, a value for each round.
// Where a round has no figure it holds NaN, which the statistics leave out.
type Sample []float64

// known returns the values that are numbers.
func (s Sample) known() Sample {
	return slices.DeleteFunc(slices.Clone(s), math.IsNaN)
}

// Median returns the middle value, the mean of the two middle ones of an even
// number, and NaN of an empty sample.
func (s Sample) Median() float64 {
	sorted := s.known()
	if len(sorted) == 0 {
		return math.NaN()
	}
	slices.Sort(sorted)
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// Range returns the least and the greatest value, NaN of an empty sample.
func (s Sample) Range() (low, high float64) {
	known := s.known()
	if len(known) == 0 {
		return math.NaN(), math.NaN()
	}
	return slices.Min(known), slices.Max(known)
}

// few is the number of values below which percentiles say nothing.
const few = 10

// Stray returns how far the values stray: from the 10th to the 90th
// percentile, of fewer than ten values from the least to the greatest, NaN of
// an empty sample.
func (s Sample) Stray() (low, high float64) {
	known := s.known()
	if len(known) < few {
		return known.Range()
	}
	return known.At(0.1), known.At(0.9)
}

// At returns the value that such a share of the values is below, NaN of an empty sample.
func (s Sample) At(share float64) float64 {
	sorted := s.known()
	if len(sorted) == 0 {
		return math.NaN()
	}
	slices.Sort(sorted)
	return sorted[int(math.Round(share*float64(len(sorted)-1)))]
}

// Over returns the ratio of s to base round by round. In the same round two contestants had a
// machine in the same state. So the median of these ratios means more than the ratio of the
// medians. Rounds that only one of them has do not count.
func (s Sample) Over(base Sample) Sample {
	ratios := make(Sample, min(len(s), len(base)))
	for i := range ratios {
		ratios[i] = s[i] / base[i]
	}
	return ratios
}
