package main

import (
	"fmt"
	"io"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/report"
)

// benchProgress shows on standard error how far a run is: one line that
// changes on a terminal, a line for each round elsewhere.
type benchProgress struct {
	w     io.Writer
	width func() (columns int, terminal bool)
	last  string // the round told last
}

func newBenchProgress(e *env, estimate time.Duration) *benchProgress {
	fmt.Fprintf(e.stderr, "This takes %s. Ctrl-C ends it and reports what was measured until then.\n", about(estimate))
	return &benchProgress{w: e.stderr, width: func() (int, bool) { return terminalWidth(e.stderr, e.getenv) }}
}

// about writes a time that nobody knows better.
func about(d time.Duration) string {
	switch {
	case d < 8*time.Second:
		return "a few seconds"
	case d < 90*time.Second:
		return fmt.Sprintf("about %d seconds", int(d.Round(5*time.Second).Seconds()))
	case d < 90*time.Minute:
		return fmt.Sprintf("about %d minutes", int(d.Round(time.Minute).Minutes()))
	}
	return fmt.Sprintf("about %.1f hours", d.Hours())
}

// show is called as the run goes on.
func (p *benchProgress) show(s bench.Step) {
	width, live := p.width()
	if s.Failed != "" {
		if live {
			fmt.Fprint(p.w, eraseLine)
		}
		fmt.Fprintf(p.w, "%s: %s failed: %s\n", s.Scenario, s.Contestant, s.Failed)
		return
	}
	round := fmt.Sprintf("%-13s round %d of %d", s.Scenario, s.Round, s.Rounds)
	if !live {
		p.line(&s, round)
		return
	}
	left := max(s.Planned-s.Done, time.Second)
	text := fmt.Sprintf("%s %s  %s left  %s", fraction(float64(s.Done)/float64(s.Planned)), round, about(left), doing(&s))
	runes := []rune(text)
	fmt.Fprint(p.w, eraseLine+string(runes[:min(len(runes), max(width-1, 0))]))
}

// line writes one when something else is begun.
func (p *benchProgress) line(s *bench.Step, text string) {
	switch {
	case s.Trial != nil:
		return // has ended
	case s.Workload == string(load.Idle):
		text += ", " + s.Contestant // one is slow enough
	case s.Doing != "":
		text = fmt.Sprintf("%-13s %s", s.Scenario, s.Doing)
	}
	if text != p.last {
		fmt.Fprintln(p.w, text)
	}
	p.last = text
}

// doing says who does what, and what just came out.
func doing(s *bench.Step) string {
	text := s.Contestant
	if s.Doing != "" {
		text += ", " + s.Doing
	}
	if t := s.Trial; t != nil {
		if figure, ok := report.Headline(s.Workload, t); ok {
			text += ": " + figure
		}
	}
	return text
}

// end leaves a clean line for what follows.
func (p *benchProgress) end() {
	if _, live := p.width(); live {
		fmt.Fprint(p.w, eraseLine)
	}
}
