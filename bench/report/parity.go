package report

import (
	"fmt"
	"math"
)

// Parity is whether a contestant that does more than the baseline costs no more, in one
// figure of one scenario.
type Parity struct {
	Scenario   string `json:"scenario"`
	Figure     string `json:"figure"`
	Title      string `json:"title"` // of Figure, in a table
	Contestant string `json:"contestant"`
	Ratio      *Band  `json:"ratio"` // to the baseline; null if not measured
	Noise      *Band  `json:"noise"` // of the baseline to itself; null likewise
	// Spliced and BaseSpliced are which part of their bytes the contestant and the
	// baseline have spliced in the scenario, by their own counters; the rest was copied.
	Spliced     Number `json:"spliced"`
	BaseSpliced Number `json:"baseline_spliced"`
	// Within: the median is no more than Tolerance on the wrong side.
	Within bool `json:"within"`
}

// Tolerance is how much worse than the baseline counts as the same, and Share by how
// much the spliced parts may differ.
const (
	Tolerance = 0.05
	Share     = 0.01
)

// Compare fills in the document's Parities: for each scenario the main figures of every
// contestant beside the baseline.
func (d *Document) Compare() {
	d.Parities = nil
	for _, s := range d.Scenarios {
		for _, c := range s.Cells {
			if c.Role != Contender || s.Workload == "correct" {
				continue
			}
			for _, f := range Figures(s.Workload) {
				if f.Main {
					d.Parities = append(d.Parities, s.parity(c, &f, d.Method.Baseline))
				}
			}
		}
	}
}

// parity compares one figure.
func (s *Scenario) parity(c *Cell, f *Figure, baseline string) Parity {
	p := Parity{
		Scenario: s.Name, Figure: f.Name, Title: f.Title, Contestant: c.Contestant,
		Spliced: s.spliced(c.Contestant), BaseSpliced: s.spliced(baseline),
	}
	if sum, ok := c.Figures[f.Name]; ok && sum.Ratio != nil {
		p.Ratio = sum.Ratio
		worse := float64(sum.Ratio.Median)
		if f.More {
			worse = 1 / worse
		}
		p.Within = worse <= 1+Tolerance
	}
	for _, other := range s.Cells {
		if sum, ok := other.Figures[f.Name]; ok && other.Role == Again {
			p.Noise = sum.Ratio
		}
	}
	return p
}

// SameWay reports whether both have moved their bytes the same way.
func (p *Parity) SameWay() bool {
	return math.Abs(float64(p.Spliced-p.BaseSpliced)) <= Share
}

// spliced is which part of its bytes a contestant has spliced in all timed trials.
func (s *Scenario) spliced(contestant string) Number {
	var spliced, all float64
	for _, t := range s.Trials {
		if t.Contestant == contestant && t.Role != Counting && t.SplicedBytes.Known() {
			spliced += float64(t.SplicedBytes)
			all += float64(t.SentBytes + t.ReceivedBytes)
		}
	}
	return Number(spliced / all)
}

// Differences are the parities that are none, a text for each.
func (d *Document) Differences() (list []string) {
	said := make(map[[2]string]bool)
	for _, p := range d.Parities {
		switch {
		case p.Ratio == nil:
			list = append(list, fmt.Sprintf("%s, %s: %s was not measured", p.Scenario, p.Contestant, p.Figure))
		case !p.Within:
			list = append(list, fmt.Sprintf("%s, %s: %s is %s of the baseline's", p.Scenario, p.Contestant, p.Figure, Ratio(float64(p.Ratio.Median))))
		}
		if cell := [2]string{p.Scenario, p.Contestant}; !said[cell] && p.Spliced.Known() && !p.SameWay() {
			said[cell] = true
			list = append(list, fmt.Sprintf("%s, %s: %.1f %% of the bytes spliced, %.1f %% by the baseline", p.Scenario, p.Contestant, 100*p.Spliced, 100*p.BaseSpliced))
		}
	}
	return list
}

// parities writes them.
func (p *printer) parities(d *Document) {
	if len(d.Parities) == 0 {
		return
	}
	p.heading("Within 5 % of " + d.Method.Baseline)
	p.table(0, func(int) *Table { return d.parityTable() })
	if p.markdown {
		p.line("")
	}
	p.prose(fmt.Sprintf(`A ratio is the median of the ratios to %s right beside, in brackets how far those stray; noise is %s beside itself in the same run.
		"within": the median is at most 5 %% worse. spliced: which part of the bytes each has moved without copying them, by its own counters in all timed trials.`,
		d.Method.Baseline, d.Method.Baseline))
}

// parityTable has a row for each.
func (d *Document) parityTable() *Table {
	t := new(Table)
	t.Row("", "", "ratio", "noise", "verdict", "spliced", "baseline's")
	for i := range d.Parities {
		q := &d.Parities[i]
		verdict := "more than 5 %"
		if q.Within {
			verdict = "within"
		}
		if q.Ratio == nil {
			verdict = string(Unjudged)
		}
		t.Row(q.Scenario+": "+q.Title, q.Contestant, band(q.Ratio, true), band(q.Noise, true), verdict, share(q.Spliced), share(q.BaseSpliced))
	}
	return t
}

// share writes a part in percent.
func share(n Number) string {
	if !n.Known() {
		return Unknown
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n))
}
