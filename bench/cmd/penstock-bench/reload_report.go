package main

import (
	"fmt"

	"github.com/penstock/penstock/bench/reload"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// reloadPage writes the document for people.
type reloadPage struct {
	*page
	*reloadDocument
}

func (d *reloadDocument) print(e *cli.Env) {
	p := &reloadPage{newDocumentPage(e), d}
	p.heading("A configuration that changes while it serves")
	f := d.benchHead.facts(d.network())
	if len(p.Rows) > 0 {
		checks := "none"
		if p.Interval != "" {
			checks = "each every " + p.Interval
		}
		f.add("reloads", "%s listeners, %s endpoints, a file of %s; health checks: %s",
			report.Exact(int64(p.Listeners)), report.Exact(int64(p.Endpoints)), report.Bytes(float64(p.FileBytes)), checks)
	}
	p.header(&d.benchHead, f)
	if len(p.Rows) > 0 {
		p.reloads()
	}
	if p.Steady != nil {
		p.steady(p.Steady)
	}
}

// reloads is the table of single ones.
func (p *reloadPage) reloads() {
	p.line("")
	t := new(report.Table)
	t.Row("", "first", "worst", "valid to swapped", "worst", "prepared", "swapped", "long turns", "overruns", "before", "longest echo", "before")
	for _, r := range p.Rows {
		m, w := r.Median, r.Worst
		if m == nil {
			continue
		}
		t.Row(r.Name, told(m.First), told(w.First), told(m.ValidToSwapped), told(w.ValidToSwapped), told(m.Prepared), told(m.Swapped),
			countsOf(m.LongTurns, w.LongTurns), countsOf(m.Overruns, w.Overruns), countsOf(m.QuietTurns, w.QuietTurns), told(w.LongestEcho), told(w.QuietEcho))
	}
	p.table(t)
	p.heading("How to read it")
	for _, r := range p.Rows {
		p.prose("%s: %s.", r.Name, r.About)
	}
	p.prose(`first: from SIGHUP, parsing included, to the greeting of the first connection that the new state served. valid to swapped: from a valid configuration
		to one that is in force, in two parts: prepared, until it stands beside the old one, and swapped, from there on. long turns: turns of loops of a millisecond and more, from SIGHUP to %s
		after the first connection, in the median and at worst; overruns: those that used a millisecond of CPU time themselves, where the others
		waited for a CPU that somebody else had; "before" in half a second without a reload. longest echo: of a byte on a connection that was
		there before and has one after the other, at worst; client and endpoints share the processors.`, "200 ms")
}

// told returns a time as text, or [report.Unknown].
func told(n report.Number) string {
	if !n.Known() {
		return report.Unknown
	}
	return report.Seconds(float64(n))
}

// countsOf are two numbers.
func countsOf(a, b report.Number) string {
	return fmt.Sprintf("%s, %s", report.Count(float64(a)), report.Count(float64(b)))
}

// steady reports reloads in a row.
func (p *reloadPage) steady(l *reload.Long) {
	p.heading(fmt.Sprintf("%s reloads in a row, %s listeners, %s endpoints", report.Exact(int64(l.Reloads)), report.Exact(int64(l.Listeners)), report.Exact(int64(l.Endpoints))))
	if c := l.Clients; c != nil {
		p.prose("%s idle connections, of which %s were closed; meanwhile %s others were opened, echoed on and closed, and %s failed. p50 %s, p99 %s, the longest %s. It took %s.",
			report.Exact(int64(c.Idle)), report.Exact(c.Closed), report.Exact(c.Served), report.Exact(c.Failed),
			report.Seconds(c.P50), report.Seconds(c.P99), report.Seconds(c.Longest), told(l.Elapsed))
	}
	t := new(report.Table)
	t.Row("reloads", "memory", "descriptors", "goroutines")
	for _, h := range l.Held {
		t.Row(report.Exact(int64(h.Reloads)), report.Bytes(float64(h.RssAnon)), report.Exact(int64(h.Descriptors)), report.Exact(h.Goroutines))
	}
	p.table(t)
	for _, v := range l.Violations {
		p.prose("Violated: %s", v)
	}
}
