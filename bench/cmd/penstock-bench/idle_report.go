package main

import (
	"fmt"
	"slices"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/million"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// idleFormat is the number of the document's form.
const idleFormat = 1

// idleDocument is the document of --json.
type idleDocument struct {
	benchHead
	bench.SessionsReport
	Simulated *million.Report `json:"simulated,omitempty"`
}

// measured reports whether there is a trial.
func (d *idleDocument) measured() bool {
	return slices.ContainsFunc(d.Rows, func(r bench.SessionsRow) bool { return r.Median != nil })
}

// printSessions writes a line of progress.
func printSessions(e *cli.Env, s *bench.SessionsStep) {
	done := "sessions are opened, and rest"
	if s.Figures != nil {
		done = fmt.Sprintf("%s for a message, %s of memory for a session", report.Seconds(float64(s.Figures.Message)), report.Bytes(float64(s.Figures.RssAnonBytes)))
	}
	fmt.Fprintf(e.Stderr, "round %d of %d  %-19s %s\n", s.Round, s.Rounds, s.Contestant, done)
}

// idlePage writes the document for people.
type idlePage struct {
	*page
	*idleDocument
}

func (d *idleDocument) print(e *cli.Env) {
	p := &idlePage{newDocumentPage(e), d}
	p.heading(fmt.Sprintf("%s idle sessions, and %s that talk", report.Exact(int64(p.Sessions)), report.Exact(int64(p.Talking))))
	p.header(&d.benchHead, p.facts())
	p.line("")
	p.table(p.figures())
	p.legend()
	if p.Simulated != nil {
		p.simulated(p.Simulated)
	}
}

// facts returns the circumstances of the measurement, and the limits of the machine.
func (d *idleDocument) facts() *facts {
	limit := "none met; next is " + d.Limit.String()
	if d.Sessions < d.Asked {
		limit = fmt.Sprintf("%s sessions were asked for, but %s", report.Exact(int64(d.Asked)), d.Limit.String())
	}
	f := d.benchHead.facts(report.Network(d.NetworkNamespace, d.NamespaceMissing))
	f.add("limit", "%s", limit)
	f.add("kernel slab", "%s", d.KernelSlab)
	for _, r := range d.Rows {
		f.add(r.Contestant, "%s", r.About)
	}
	return f
}

// idleRow is a line of the table.
type idleRow struct {
	title string
	of    func(*bench.SessionFigures) report.Number
	write func(float64) string
}

var idleRows = []idleRow{
	{"user memory of a session", func(f *bench.SessionFigures) report.Number { return f.RssAnonBytes }, report.Bytes},
	{"kernel slab of a session", func(f *bench.SessionFigures) report.Number { return f.SlabBytes }, report.Bytes},
	{"descriptors of a session", func(f *bench.SessionFigures) report.Number { return f.Descriptors }, report.Digits},
	{"goroutines of a session", func(f *bench.SessionFigures) report.Number { return f.Goroutines }, report.Ratio},
	{"time for a message", func(f *bench.SessionFigures) report.Number { return f.Message }, report.Seconds},
	{"CPU for a message", func(f *bench.SessionFigures) report.Number { return f.CPU }, report.Seconds},
	{"latency, median", func(f *bench.SessionFigures) report.Number { return f.P50 }, report.Seconds},
	{"latency, p99", func(f *bench.SessionFigures) report.Number { return f.P99 }, report.Seconds},
	{"the same, garbage collected meanwhile", func(f *bench.SessionFigures) report.Number { return f.CollectP99 }, report.Seconds},
	{"longest pause while they talk", func(f *bench.SessionFigures) report.Number { return f.TalkPause }, report.Seconds},
	{"longest pause while sessions open", func(f *bench.SessionFigures) report.Number { return f.OpenPause }, report.Seconds},
	{"collections of garbage", func(f *bench.SessionFigures) report.Number { return f.Collections }, report.Digits},
}

// figures has a column for each proxy, and one for its ratio to the first.
func (p *idlePage) figures() *report.Table {
	head := []string{""}
	for _, r := range p.Rows {
		head = append(head, r.Contestant)
		if r.Ratio != nil {
			head = append(head, "ratio")
		}
	}
	t := new(report.Table)
	t.Row(head...)
	for _, line := range idleRows {
		row := []string{line.title}
		for i := range p.Rows {
			row = append(row, line.cells(&p.Rows[i])...)
		}
		t.Row(row...)
	}
	return t
}

// cells are the median of a proxy and its ratio.
func (l *idleRow) cells(r *bench.SessionsRow) []string {
	if r.Median == nil {
		return []string{report.Unknown}
	}
	cells := []string{l.write(float64(l.of(r.Median)))}
	if r.Ratio != nil {
		cells = append(cells, report.Ratio(float64(l.of(r.Ratio))))
	}
	return cells
}

// legend explains the table.
func (p *idlePage) legend() {
	p.heading("How to read it")
	p.prose(`Every session has carried 64 KiB both ways and then rested for %s. %s of them, chosen at random, then exchanged messages of
		%d bytes for %s, each the next one when the last had come back, and once more for half that time, in the middle of which the proxy
		collected its garbage. Medians of %s; a ratio is the median of the rounds' ratios to %s.`,
		report.Seconds(float64(p.QuietSeconds)), report.Exact(int64(p.Talking)), p.MessageBytes, report.Seconds(float64(p.TalkSeconds)), roundsText(p.Rounds), p.Rows[0].Contestant)
	p.prose(`The time for a message is what passed divided by all messages; the load and the server behind the proxy are in it. User
		memory is the proxy's RssAnon, with the sessions less without them. Kernel slab is of all ends of the sessions, the far ones
		included. A pause is from the runtime's decision to stop the world until all go on, as runtime/metrics has it: the upper bound
		of its bucket, at most a quarter too much; 0 is none.`)
}
