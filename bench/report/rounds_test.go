package report

import (
	"math"
	"testing"
)

// A round is one with two figures.
type round struct {
	Rate  Number `json:"rate"`
	Added Number `json:"added,omitempty"`
}

// TestRounds: medians and ratios are by figure and by round; a figure without a ratio has none, and values that are not usable do
// not count.
func TestRounds(t *testing.T) {
	rounds := []round{{10, -1}, {20, 4}, {60, Unmeasured()}}
	base := []round{{5, 1}, {20, 2}, {20, 3}}
	if m := Over(rounds, Sample.Median); m.Rate != 20 || m.Added != 1.5 {
		t.Errorf("medians: %+v", m)
	}
	all := func(s Sample) Sample { return s }
	ratios := RoundRatios(rounds, base, all)
	if r := ratios.Of("rate"); r == nil || r.Median != 2 || r.Low != 1 || r.High != 3 || r.Values != 3 {
		t.Errorf("rate: %+v", r)
	}
	if r := ratios.Of("added"); r == nil || r.Median != 0.5 {
		t.Errorf("added: %+v", r)
	}
	positive := func(s Sample) Sample {
		for i := range s {
			if s[i] <= 0 {
				s[i] = math.NaN()
			}
		}
		return s
	}
	if r := RoundRatios(rounds, base, positive).Of("added"); r == nil || r.Median != 2 {
		t.Errorf("added, above 0: %+v", r)
	}
	if r := RoundRatios([]round{{1, Unmeasured()}}, base, all); r.Of("added") != nil || r.Of("rate") == nil || r.Of("other") != nil {
		t.Errorf("a figure that no round has: %+v", r)
	}
	if rounds[0].Added != -1 {
		t.Error("a round was changed")
	}
}
