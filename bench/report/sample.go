// Package report presents the figures of a benchmark: medians and spreads, ratios of contestants measured side by
// side, numbers with units, and tables.
package report

import (
	"math"
	"slices"
)

// Sample is one figure of one contestant, with a value for each round. A round without the figure has NaN, which
// the statistics leave out.
type Sample []float64

// known returns the values that are numbers.
func (s Sample) known() Sample {
	return slices.DeleteFunc(slices.Clone(s), math.IsNaN)
}

// Median returns the middle value, or the mean of the two middle values. For an empty sample it returns NaN.
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

// Range returns the smallest and the largest value. For an empty sample it returns NaN.
func (s Sample) Range() (low, high float64) {
	known := s.known()
	if len(known) == 0 {
		return math.NaN(), math.NaN()
	}
	return slices.Min(known), slices.Max(known)
}

// few is the number of values below which percentiles mean nothing.
const few = 10

// Stray returns the spread of the values: from the 10th to the 90th percentile, or with fewer than ten values from
// the smallest to the largest. For an empty sample it returns NaN.
func (s Sample) Stray() (low, high float64) {
	known := s.known()
	if len(known) < few {
		return known.Range()
	}
	return known.At(0.1), known.At(0.9)
}

// At returns the value below which this share of the values is. For an empty sample it returns NaN.
func (s Sample) At(share float64) float64 {
	sorted := s.known()
	if len(sorted) == 0 {
		return math.NaN()
	}
	slices.Sort(sorted)
	return sorted[int(math.Round(share*float64(len(sorted)-1)))]
}

// Over returns the ratio of s to base, round by round. In the same round, both contestants had a machine in the
// same state. So the median of these ratios means more than the ratio of the medians. Rounds without a value in s
// or base do not count.
func (s Sample) Over(base Sample) Sample {
	ratios := make(Sample, min(len(s), len(base)))
	for i := range ratios {
		ratios[i] = s[i] / base[i]
	}
	return ratios
}
