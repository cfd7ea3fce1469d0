package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// benchProgress shows on standard error how far a run is: one line that
// changes on a terminal, a line for each round elsewhere.
type benchProgress struct {
	w     io.Writer
	width func() (columns int, terminal bool)
	last  string // the round shown last
}

func newBenchProgress(e *cli.Env, estimate time.Duration) *benchProgress {
	fmt.Fprintf(e.Stderr, "This takes %s. Ctrl-C ends it and reports what was measured until then.\n", report.About(estimate))
	return &benchProgress{w: e.Stderr, width: func() (int, bool) { return cli.TerminalWidth(e.Stderr, e.Getenv) }}
}

// show is called as the run goes on.
func (p *benchProgress) show(s bench.Step) {
	width, live := p.width()
	if s.Failed != "" {
		if live {
			fmt.Fprint(p.w, cli.EraseLine)
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
	text := fmt.Sprintf("%s %s  %s left  %s", fraction(float64(s.Done)/float64(s.Planned)), round, report.About(left), doing(&s))
	runes := []rune(text)
	fmt.Fprint(p.w, cli.EraseLine+string(runes[:min(len(runes), max(width-1, 0))]))
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

// doing returns the contestant, its activity, and the latest result.
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

// end leaves a clean line for further output.
func (p *benchProgress) end() {
	if _, live := p.width(); live {
		fmt.Fprint(p.w, cli.EraseLine)
	}
}

// barWidth is the number of characters of a bar.
const barWidth = 20

// fraction draws a part of 1, in ASCII.
func fraction(done float64) string {
	n := int(min(max(done, 0), 1) * barWidth)
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", barWidth-n) + "]"
}
