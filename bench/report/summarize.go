package report

import (
	"math"
	"slices"
)

// Summarize computes the figures of the scenario's cells from its trials. It can be called again when there are
// more trials.
func (s *Scenario) Summarize() {
	figures := Figures(s.Workload)
	for _, c := range s.Cells {
		c.Figures, c.Rounds = nil, nil
		if c.Void != "" || c.Failed != "" {
			continue
		}
		s.pair(c, figures)
		for _, f := range figures {
			if sum, ok := s.summary(c, &f); ok {
				if c.Figures == nil {
					c.Figures = make(map[string]Summary)
				}
				c.Figures[f.Name] = sum
			}
		}
	}
}

func (s *Scenario) trials(c *Cell, role Role) []*Trial {
	return slices.DeleteFunc(slices.Clone(s.Trials), func(t *Trial) bool {
		return t.Contestant != c.Contestant || t.Role != role
	})
}

// base returns the indexes of the trials of the baseline that t is compared with: the baseline's trial beside t,
// or all trials of the round that are beside all contestants.
func (s *Scenario) base(t *Trial) (places []int) {
	for i, b := range s.Trials {
		switch {
		case b.Round != t.Round || b == t:
		case b.Role == Baseline && (b.Beside == t.Beside || b.Beside == ""),
			b.Role == Again && b.Beside == "" && t.Role == Contender:
			places = append(places, i)
		}
	}
	return places
}

func (s *Scenario) pair(c *Cell, figures []Figure) {
	if c.Role == Baseline {
		return
	}
	for _, t := range s.trials(c, c.Role) {
		base := s.base(t)
		if len(base) == 0 {
			continue
		}
		r := Round{Round: t.Round, BaselineFirst: base[0] < slices.Index(s.Trials, t), Ratios: make(map[string]Number)}
		for _, f := range figures {
			if x := ratio(f.value(t), s.mean(base, &f)); x.Known() {
				r.Ratios[f.Name] = x
			}
		}
		c.Rounds = append(c.Rounds, r)
	}
}

// ratio returns an unknown number if x is below 0. Only a difference of two noisy figures can be below 0.
func ratio(x, base float64) Number {
	if x < 0 || base <= 0 {
		return Unmeasured()
	}
	return Number(x / base)
}

// mean returns the mean of a figure over the trials with these indexes. It leaves out trials without the figure.
func (s *Scenario) mean(places []int, f *Figure) float64 {
	var sum, n float64
	for _, i := range places {
		if x := f.value(s.Trials[i]); !math.IsNaN(x) {
			sum, n = sum+x, n+1
		}
	}
	return sum / n
}

// summary returns one figure of a cell, or false if no trial has it.
func (s *Scenario) summary(c *Cell, f *Figure) (Summary, bool) {
	role := c.Role
	if counted[f.Name] {
		role = Counting
	}
	values := s.sample(c, role, f)
	if len(values.known()) == 0 || c.Role == Again && role == Counting {
		return Summary{}, false
	}
	low, high := values.Stray()
	sum := Summary{Band: Band{Median: Number(values.Median()), Low: Number(low), High: Number(high), Values: len(values.known())}}
	var ratios Sample
	for _, r := range c.Rounds {
		if x, ok := r.Ratios[f.Name]; ok {
			ratios = append(ratios, float64(x))
		}
	}
	if role == Counting && c.Role != Baseline {
		ratios = append(ratios, float64(ratio(values.Median(), s.counted(f))))
	}
	sum.Ratio = ratios.band()
	return sum, true
}

// sample returns the figure of each of the cell's trials in a role.
func (s *Scenario) sample(c *Cell, role Role, f *Figure) Sample {
	var values Sample
	for _, t := range s.trials(c, role) {
		values = append(values, f.value(t))
	}
	return values
}

// counted returns the baseline's figure in its Counting trials.
func (s *Scenario) counted(f *Figure) float64 {
	for _, c := range s.Cells {
		if c.Role == Baseline {
			return s.sample(c, Counting, f).Median()
		}
	}
	return math.NaN()
}

// band returns nil if the sample has no finite number.
func (s Sample) band() *Band {
	s = slices.DeleteFunc(slices.Clone(s), func(x float64) bool { return !Number(x).Known() })
	if len(s) == 0 {
		return nil
	}
	low, high := s.Stray()
	return &Band{Median: Number(s.Median()), Low: Number(low), High: Number(high), Values: len(s)}
}
