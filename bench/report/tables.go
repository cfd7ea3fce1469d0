package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// againName is how the noise floor is called in tables.
const againName = "again (noise floor)"

// The parts that a table of figures leaves out when it is too wide, one after the other.
const (
	mainFigures = iota // the others are left out
	plainRatios
	mainRanges // of the first figure only
	allRanges
	mainStrays // of the first figure only
	allStrays
)

// scenario writes one scenario's table and notes.
func (p *printer) scenario(d *Document, s *Scenario) {
	p.heading(s.Name + ": " + s.Title)
	switch {
	case s.Workload == "correct":
		p.table(0, func(int) *Table { return s.checkTable() })
	default:
		p.table(allStrays, func(level int) *Table { return s.figureTable(level, d.Method.estimated()) })
	}
	if notes := s.notes(); len(notes) > 0 {
		if p.markdown {
			p.line("") // or they would be rows of the table
		}
		p.items(notes)
	}
}

// name is how a cell is called.
func (c *Cell) name() string {
	switch c.Role {
	case Again:
		return againName
	case Baseline:
		return c.Contestant + " (baseline)"
	}
	return c.Contestant
}

// figureTable has a row for each cell. estimated marks the system calls.
func (s *Scenario) figureTable(level int, estimated bool) *Table {
	figures := Figures(s.Workload)
	if level == mainFigures {
		figures = slices.DeleteFunc(slices.Clone(figures), func(f Figure) bool { return !f.Main })
	}
	head := []string{""}
	for _, f := range figures {
		title := f.Title
		if estimated && counted[f.Name] {
			title += " (strace)"
		}
		head = append(head, title)
		if !f.Plain {
			head = append(head, "ratio")
		}
	}
	t := new(Table)
	t.Row(head...)
	for _, c := range s.Cells {
		row := []string{c.name()}
		for i, f := range figures {
			sum, ok := c.Figures[f.Name]
			row = append(row, f.cell(sum, ok, f.Main && (level >= allStrays || level >= mainStrays && i == 0)))
			if !f.Plain {
				row = append(row, c.ratio(sum, ok, f.Main && (level >= allRanges || level >= mainRanges && i == 0)))
			}
		}
		t.Row(row...)
	}
	return t
}

// cell writes the median and, if wide, half of its spread in percent of it.
func (f *Figure) cell(sum Summary, ok, wide bool) string {
	if !ok {
		return Unknown
	}
	text := f.Write(float64(sum.Median))
	stray := float64(sum.High-sum.Low) / 2 / math.Abs(float64(sum.Median)) * 100
	if !wide || sum.Values < 2 || math.IsNaN(stray) || math.IsInf(stray, 0) {
		return text
	}
	return fmt.Sprintf("%s ±%.0f%%", text, stray)
}

// ratio writes the median and, if wide, the spread.
func (c *Cell) ratio(sum Summary, ok, wide bool) string {
	switch {
	case ok && c.Role == Baseline:
		return "1"
	}
	return band(sum.Ratio, wide)
}

// checkTable has a column for each check.
func (s *Scenario) checkTable() *Table {
	t := new(Table)
	t.Row("", "checks", "passed", "failed")
	for _, c := range s.Cells {
		if c.Checks == nil || c.Void != "" {
			t.Row(c.Contestant, Unknown, Unknown, Unknown)
			continue
		}
		failed := len(c.failedChecks())
		t.Row(c.Contestant, fmt.Sprint(len(c.Checks)), fmt.Sprint(len(c.Checks)-failed), fmt.Sprint(failed))
	}
	return t
}

func (c *Cell) failedChecks() []Check {
	var failed []Check
	for _, k := range c.Checks {
		if !k.OK {
			failed = append(failed, k)
		}
	}
	return failed
}

// notes are facts that the table does not show.
func (s *Scenario) notes() []string {
	var notes []string
	for _, c := range s.Cells {
		add := func(format string, args ...any) { notes = append(notes, c.name()+": "+fmt.Sprintf(format, args...)) }
		if c.Failed != "" {
			add("failed: %s", c.Failed)
		}
		if c.Void != "" {
			add("not counted: %s", c.Void)
		}
		for _, k := range c.failedChecks() {
			if c.Void != "" {
				break
			}
			add("%s: %s", k.Name, k.Said)
		}
		for _, n := range c.Notes {
			add("%s", n)
		}
	}
	return notes
}

// ours reports whether the contestant is one of Penstock's engines.
func (c *Cell) ours() bool { return IsPenstock(c.Contestant) }

// IsPenstock reports whether a contestant of that name is Penstock, by
// whichever engine.
func IsPenstock(name string) bool {
	return name == "penstock" || strings.HasPrefix(name, "penstock-")
}
