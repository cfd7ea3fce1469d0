package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/write"
	"github.com/penstock/penstock/proxy/cli"
)

// writeFormat is the number of the document's form.
const writeFormat = 1

// writeDocument is the document of --json.
type writeDocument struct {
	benchHead
	hostInfo
	// MissesMissing says why nothing counted cache misses.
	MissesMissing string `json:"cache_miss_counter_missing,omitempty"`
	Profiles      string `json:"profiles,omitempty"` // the directory
	*write.Report
}

// measured reports whether there is a trial.
func (d *writeDocument) measured() bool {
	return d.Report != nil && slices.ContainsFunc(d.Groups, func(g write.Group) bool {
		return slices.ContainsFunc(g.Rows, func(r write.Row) bool { return r.Median != nil })
	})
}

// writePage writes the document for people.
type writePage struct {
	*page
	*writeDocument
}

func (d *writeDocument) print(e *cli.Env) {
	p := &writePage{newDocumentPage(e), d}
	p.heading("Many pieces of data to one connection")
	p.header(&d.benchHead, d.facts())
	for i := range p.Groups {
		p.group(&p.Groups[i])
	}
	p.nagle()
	p.standings()
	p.legend()
	if p.Profiles != "" {
		p.line("")
		p.prose("Profiles, one for each way and size, such as: go tool pprof -http=: %s", write.ProfileName(p.Profiles, p.Groups[0].Rows[0].Way, &p.Groups[0].Shape))
	}
}

// facts returns the circumstances and the method of the measurement.
func (d *writeDocument) facts() *facts {
	misses := "counted by perf in separate, untimed trials"
	if d.MissesMissing != "" {
		misses = "not counted: " + d.MissesMissing
	}
	f := d.benchHead.facts(d.network())
	f.add("method", `%s, in each a new process for every way and size, which writes %s in %d turns; the ways take turns in
		alternating order, a ratio is of two turns of the same pass; a batch is as many pieces as %d KiB hold, at least one, and
		is with the kernel before the next one begins; the receiver discards without copying (MSG_TRUNC)`,
		roundsText(d.Rounds), report.Bytes(float64(d.TotalBytes)), d.Turns, d.BatchBytes>>10)
	f.add("system calls", "%s", d.counted(d.SystemCallCounter))
	f.add("cache misses", "%s", misses)
	for _, r := range d.Groups[0].Rows {
		f.add(r.Way, "%s", r.About)
	}
	return f
}

// group writes the tables of one shape, and the gaps in them.
func (p *writePage) group(g *write.Group) {
	title := fmt.Sprintf("pieces of %s, %s to a batch", g.Name, report.Exact(int64(g.Count)))
	if g.Size == 0 {
		title = "messages of " + g.Name
	}
	p.heading(title)
	var t report.Table
	t.Row("", "Gbit/s", "ratio", "to best", "user/GB", "sys/GB", "calls/s", "calls/MB", "copied", "allocs", "GCs")
	for i := range g.Rows {
		if r := &g.Rows[i]; r.Median != nil {
			t.Row(p.row(g, r)...)
		}
	}
	p.table(&t)
	if n := g.Noise; n != nil {
		p.prose("Noise floor, net.Buffers beside itself: %s.", ranged(n, false))
	}
	if g.Size == 0 {
		p.message(g)
	}
	for _, r := range g.Rows {
		if r.CallsFailed != "" {
			p.prose("%s: system calls not counted: %s", r.Way, r.CallsFailed)
		}
	}
}

// row is the medians of a way and its ratios.
func (p *writePage) row(g *write.Group, r *write.Row) []string {
	m := r.Median
	return []string{
		r.Way, report.Ratio(float64(m.BitsPerSecond) / 1e9), ratioOf(r.ToWrite, r.Way == g.Rows[0].Way), ratioOf(r.ToBest, r.Way == g.Best),
		report.Seconds(float64(m.UserPerGB)), report.Seconds(float64(m.SystemPerGB)),
		report.Count(float64(r.CallsPerSecond)), report.Digits(float64(r.CallsPerMB)),
		report.Ratio(float64(m.Copied)), report.Digits(float64(r.Objects)), report.Digits(float64(m.Collections)),
	}
}

// message writes the cost of one message.
func (p *writePage) message(g *write.Group) {
	p.line("")
	var t report.Table
	t.Row("each message", "calls", "copied in user space", "cache misses")
	for _, r := range g.Rows {
		if r.Median != nil {
			t.Row(r.Way, report.Digits(float64(r.CallsPerBatch)), report.Exact(int64(float64(r.Median.Copied)*float64(g.Bytes)+0.5))+" B",
				report.Count(float64(r.MissesPerBatch)))
		}
	}
	p.table(&t)
}

// nagle is the trap of two writes before a read.
func (p *writePage) nagle() {
	n := p.Nagle
	if n == nil {
		return
	}
	p.heading("A request of 16 + 240 B in two pieces, and its answer of 64 B")
	seconds := func(s write.Seconds) []string {
		return []string{report.Seconds(float64(s.P50)), report.Seconds(float64(s.P99)), report.Seconds(float64(s.Max))}
	}
	var t report.Table
	t.Row("", "p50", "p99", "longest")
	t.Row(append([]string{"two Writes, Nagle's algorithm on"}, seconds(n.Before)...)...)
	t.Row(append([]string{"vecio, one flush"}, seconds(n.After)...)...)
	p.table(&t)
	p.prose(`%s exchanges of each by turns: the second Write waits until the first is acknowledged, which the peer delays, for it has nothing to
		answer yet.`, report.Exact(int64(n.Exchanges)))
}

// standings writes the verdicts, and the spread of the turns of which the median is judged.
func (p *writePage) standings() {
	p.heading("What gathered writes hold themselves to")
	var t report.Table
	t.Row("", "way", "beside", "here", "must", "verdict")
	var lost []string
	for _, s := range p.Standings {
		here := bounded(&s, s.Value)
		if s.Turns != nil {
			here += fmt.Sprintf(" (%.3g–%.3g)", float64(s.Turns.Low), float64(s.Turns.High))
		}
		t.Row(s.Figure, s.Way, cmp.Or(s.Beside, report.Unknown), here, sign(s.More)+" "+bounded(&s, s.Must), string(s.Verdict))
		if s.Verdict == report.Missed {
			lost = append(lost, fmt.Sprintf("%s, %s%s (%s)", s.Way, s.Figure, besides(s.Beside), bounded(&s, s.Value)))
		}
	}
	p.table(&t)
	if len(lost) > 0 {
		p.prose("It does not win here: %s.", strings.Join(lost, "; "))
	}
}

func besides(way string) string {
	if way == "" {
		return ""
	}
	return " beside " + way
}

func sign(more bool) string {
	if more {
		return "≥"
	}
	return "≤"
}

// bounded writes a figure that has a bound, or the bound.
func bounded(s *write.Standing, n report.Number) string {
	switch {
	case !n.Known():
		return report.Unknown
	case s.Unit == "bit/s":
		return report.BitRate(n)
	case s.Unit != "":
		return report.Exact(int64(n))
	}
	return fmt.Sprintf("%.3g", float64(n))
}

// legend explains the columns of the tables.
func (p *writePage) legend() {
	p.heading("How to read it")
	p.prose(`ratio: throughput to net.Conn.Write's, to best: to the fastest of net.Buffers and bufio at that size, each the median of the
		turns' ratios. user, sys: CPU of the process that writes, of all rounds together, for the kernel divides the sum of the two by what it
		sees at ticks. calls/MB were counted in a trial of their own; calls/s is that times the throughput. copied: bytes copied in user
		space for each byte written; vecio counts them, of bufio they are worked out; the kernel's own copy into socket buffers comes to
		all of them. allocs: objects allocated in a turn, GCs: collections in a round, the
		medians.`)
	p.prose(`Over loopback there is no device, segments have 64 KiB, and what the receiver's kernel does with them is done in the sender's system
		calls. It is no 100 G card: the figures say what calls and copies cost, and nothing of a wire.`)
}
