package report

import (
	"math"
	"slices"
)

// Summarize computes the figures of the scenario's cells from its trials. It
// may be called again when there are more.
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

// trials are those of a cell.
func (s *Scenario) trials(c *Cell, role Role) []*Trial {
	return slices.DeleteFunc(slices.Clone(s.Trials), func(t *Trial) bool {
		return t.Contestant != c.Contestant || t.Role != role
	})
}

// beside returns the place of the baseline's trial that t was measured beside,
// negative if there is none.
func (s *Scenario) beside(t *Trial) int {
	return slices.IndexFunc(s.Trials, func(b *Trial) bool {
		return b.Role == Baseline && b.Round == t.Round && (b.Beside == t.Beside || b.Beside == "")
	})
}

// pair fills in the cell's rounds.
func (s *Scenario) pair(c *Cell, figures []Figure) {
	if c.Role == Baseline {
		return
	}
	for _, t := range s.trials(c, c.Role) {
		i := s.beside(t)
		if i < 0 {
			continue
		}
		r := Round{Round: t.Round, BaselineFirst: i < slices.Index(s.Trials, t), Ratios: make(map[string]Number)}
		for _, f := range figures {
			if x := Number(f.value(t) / f.value(s.Trials[i])); x.Known() {
				r.Ratios[f.Name] = x
			}
		}
		c.Rounds = append(c.Rounds, r)
	}
}

// summary is one figure of a cell, false if no trial tells it.
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
	sum := Summary{Median: Number(values.Median()), Low: Number(low), High: Number(high), Values: len(values.known())}
	var ratios Sample
	for _, r := range c.Rounds {
		if x, ok := r.Ratios[f.Name]; ok {
			ratios = append(ratios, float64(x))
		}
	}
	if role == Counting && c.Role != Baseline {
		ratios = append(ratios, values.Median()/s.counted(f))
	}
	sum.Ratio = ratios.band()
	return sum, true
}

// sample is the figure in each of the cell's trials of a role.
func (s *Scenario) sample(c *Cell, role Role, f *Figure) Sample {
	var values Sample
	for _, t := range s.trials(c, role) {
		values = append(values, f.value(t))
	}
	return values
}

// counted is the baseline's figure of its Counting trials.
func (s *Scenario) counted(f *Figure) float64 {
	for _, c := range s.Cells {
		if c.Role == Baseline {
			return s.sample(c, Counting, f).Median()
		}
	}
	return math.NaN()
}

// band is nil of a sample that holds no finite number.
func (s Sample) band() *Band {
	s = slices.DeleteFunc(slices.Clone(s), func(x float64) bool { return !Number(x).Known() })
	if len(s) == 0 {
		return nil
	}
	low, high := s.Stray()
	return &Band{Median: Number(s.Median()), Low: Number(low), High: Number(high), Values: len(s)}
}
