package report

import (
	"math"
	"slices"
)

// noProxy is the contestant without a proxy. No proxy can be better.
const noProxy = "direct"

// Verdict says whether Penstock reaches a Goal.
type Verdict string

// The verdicts. Unjudged means that the run did not measure enough for the goal.
const (
	AimReached  Verdict = "aim reached"
	MustReached Verdict = "met"
	Missed      Verdict = "missed"
	Unjudged    Verdict = "not measured"
)

// Standing says how Penstock compares with a Goal in this run.
type Standing struct {
	Goal
	// Peer is the peer against which Penstock does worst, and Ratio is the ratio to that peer. For an absolute
	// Goal, or without a peer, they are empty and null.
	Peer  string `json:"peer,omitempty"`
	Ratio *Band  `json:"ratio"`
	// Value is the figure of an absolute Goal; otherwise null.
	Value Number `json:"value"`
	// Limit is the ratio of direct, which is no proxy, to that Peer. It is null if it was not measured.
	Limit   *Band        `json:"limit"`
	Verdict Verdict      `json:"verdict"`
	Beside  []PeerRounds `json:"beside,omitempty"` // all peers
}

// PeerRounds are the ratios of Penstock to one peer.
type PeerRounds struct {
	Peer string `json:"peer"`
	Band Band   `json:"ratio"`
	// Rounds are the ratios by round. A ratio is null if only one of the two has that round.
	Rounds []Number `json:"rounds"`
	// Paired says that the trials of the two were made directly one after the other. Otherwise each was made
	// beside a trial of the baseline, and the ratio contains both ratios to the baseline.
	Paired bool `json:"paired"`
}

// Judge fills in the document's Standings from its scenarios. It adds a standing for each Goal if the scenario was
// measured with the Goal's subject.
func (d *Document) Judge(goals []Goal) {
	d.Standings = nil
	for _, g := range goals {
		for _, s := range d.Scenarios {
			if s.Name == g.Scenario && s.cell(g.Subject) != nil {
				d.Standings = append(d.Standings, s.judge(g))
			}
		}
	}
}

// cell returns the contestant's cell, or nil if it has none. The cell of the noise floor belongs to no contestant.
func (s *Scenario) cell(contestant string) *Cell {
	for _, c := range s.Cells {
		if c.Contestant == contestant && c.Role != Again {
			return c
		}
	}
	return nil
}

func (s *Scenario) judge(g Goal) Standing {
	st := Standing{Goal: g, Value: Unmeasured(), Verdict: Unjudged}
	f := g.figure()
	if c := s.cell(g.Subject); c.Void != "" || c.Failed != "" {
		st.Verdict = Missed
		return st
	}
	reached := Unmeasured()
	if g.Absolute {
		if sum, ok := s.cell(g.Subject).Figures[g.Figure]; ok {
			st.Value = sum.Median
		}
		reached = st.Value
	} else {
		st.compare(s, f.More)
		if st.Ratio != nil {
			reached = st.Ratio.Median
		}
	}
	st.Verdict = g.verdict(reached, f.More)
	return st
}

func (st *Standing) compare(s *Scenario, more bool) {
	for _, c := range s.Cells {
		if c.Role == Again || !st.isPeer(c.Contestant) {
			continue
		}
		p, ok := s.beside(st.Subject, c.Contestant, st.Figure)
		if !ok {
			continue
		}
		st.Beside = append(st.Beside, p)
		if st.Ratio == nil || worse(p.Band.Median, st.Ratio.Median, more) {
			st.Peer, st.Ratio = p.Peer, &p.Band
		}
	}
	if limit, ok := s.beside(noProxy, st.Peer, st.Figure); ok {
		st.Limit = &limit.Band
	}
}

// worse reports whether x is worse than y.
func worse(x, y Number, more bool) bool {
	if more {
		return x < y
	}
	return x > y
}

func (g *Goal) verdict(reached Number, more bool) Verdict {
	switch {
	case !reached.Known():
		return Unjudged
	case g.Aim.Known() && !worse(reached, g.Aim, more):
		return AimReached
	case !worse(reached, g.Must, more):
		return MustReached
	}
	return Missed
}

// beside returns the ratios of one contestant to another, round by round. If one of them is the baseline, they are
// ratios of pairs. Otherwise both were measured beside the baseline, and they are quotients of two ratios to the
// baseline in the same round.
func (s *Scenario) beside(subject, peer, figure string) (PeerRounds, bool) {
	of, to := s.cell(subject), s.cell(peer)
	if of == nil || to == nil || of == to {
		return PeerRounds{}, false
	}
	p := PeerRounds{Peer: peer, Paired: of.Role == Baseline || to.Role == Baseline}
	var known Sample
	for round := 1; round <= s.Rounds; round++ {
		x := Number(of.toBaseline(round, figure) / to.toBaseline(round, figure))
		p.Rounds = append(p.Rounds, x)
		if x.Known() {
			known = append(known, float64(x))
		}
	}
	band := known.band()
	if band == nil {
		return PeerRounds{}, false
	}
	p.Band = *band
	return p, true
}

// toBaseline returns the cell's ratio to the baseline in a round, or NaN if it has none.
func (c *Cell) toBaseline(round int, figure string) float64 {
	if c.Role == Baseline {
		return 1
	}
	at := slices.IndexFunc(c.Rounds, func(r Round) bool { return r.Round == round })
	if at < 0 {
		return math.NaN()
	}
	if x, ok := c.Rounds[at].Ratios[figure]; ok && x > 0 {
		return float64(x)
	}
	return math.NaN()
}

// figure returns the figure of the goal. If several workloads have a figure, its name and meaning are the same in
// all of them.
func (g *Goal) figure() Figure {
	for _, workload := range []string{"bulk", "echo", "connect", "idle"} {
		for _, f := range Figures(workload) {
			if f.Name == g.Figure {
				return f
			}
		}
	}
	panic("report: a goal of a figure that is none: " + g.Figure) // the goals are constants
}
