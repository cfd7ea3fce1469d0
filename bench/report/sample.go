// Package report turns the figures of a benchmark into something to read:
// medians and spreads, ratios of contestants measured side by side, numbers
// with their units, tables.
package report

import (
	"math"
	"slices"
)

// Sample is one figure of one contestant, a value for each round.
type Sample []float64

// Median returns the middle value, the mean of the two middle ones of an even
// number, and NaN of an empty sample.
func (s Sample) Median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// Range returns the least and the greatest value, NaN of an empty sample.
func (s Sample) Range() (low, high float64) {
	if len(s) == 0 {
		return math.NaN(), math.NaN()
	}
	return slices.Min(s), slices.Max(s)
}

// Over returns the ratio of s to base round by round. What two contestants
// did in the same round they did on a machine in the same mood, so the median
// of these ratios says more than the ratio of the medians. Rounds that only
// one of them has do not count.
func (s Sample) Over(base Sample) Sample {
	ratios := make(Sample, min(len(s), len(base)))
	for i := range ratios {
		ratios[i] = s[i] / base[i]
	}
	return ratios
}
