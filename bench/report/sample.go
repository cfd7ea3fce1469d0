// Package report presents the figures of a benchmark: medians and spreads, ratios of contestants measured side by
// side, numbers with units, and tables.
package report

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
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

// Most returns the largest value. For an empty sample it returns NaN.
func (s Sample) Most() float64 {
	_, most := s.Range()
	return most
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

// Number is a figure that may be unknown: NaN, which JSON writes as null.
type Number float64

// Unmeasured is the unknown Number.
func Unmeasured() Number { return Number(math.NaN()) }

// Known reports whether n is a finite number.
func (n Number) Known() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// MarshalJSON writes null for an unknown number.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.Known() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *Number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = Unmeasured()
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

// values calls the function use with the name of each figure of the rounds of a comparison, and its values. R
// is a struct of Numbers. The names are the ones in JSON.
func values[R any](rounds []R, use func(field int, name string, values Sample)) {
	for i := range reflect.TypeFor[R]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[R]().Field(i).Tag.Get("json"), ",")
		sample := make(Sample, len(rounds))
		for j := range rounds {
			sample[j] = reflect.ValueOf(&rounds[j]).Elem().Field(i).Float()
		}
		use(i, name, sample)
	}
}

// Over returns a round in which each figure is computed by the function of from its values in all rounds:
// such as their median.
func Over[R any](rounds []R, of func(Sample) float64) *R {
	over := new(R)
	values(rounds, func(field int, _ string, values Sample) {
		reflect.ValueOf(over).Elem().Field(field).SetFloat(of(values))
	})
	return over
}

// A FigureRatio is the ratio of a contestant's figure to another contestant's, round by round.
type FigureRatio struct {
	Figure string `json:"figure"`
	Band
}

// FigureRatios are the ratios for several figures.
type FigureRatios []*FigureRatio

// RoundRatios returns the ratios of rounds to the rounds of base, for each figure with a known ratio. usable
// returns a sample without the values for which there is no ratio.
func RoundRatios[R any](rounds, base []R, usable func(Sample) Sample) (all FigureRatios) {
	var bases []Sample
	values(base, func(_ int, _ string, values Sample) { bases = append(bases, usable(values)) })
	values(rounds, func(field int, name string, values Sample) {
		ratios := usable(values).Over(bases[field])
		if m := Number(ratios.Median()); m.Known() {
			low, high := ratios.Stray()
			all = append(all, &FigureRatio{name, Band{Median: m, Low: Number(low), High: Number(high), Values: len(ratios)}})
		}
	})
	return all
}

// Of returns the ratio for a figure, or nil if there is none.
func (r FigureRatios) Of(figure string) *Band {
	for _, x := range r {
		if x.Figure == figure {
			return &x.Band
		}
	}
	return nil
}
