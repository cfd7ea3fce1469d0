package main

import (
	"fmt"
	"slices"

	"github.com/penstock/penstock/bench/iperf3"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// iperf3Format is the number of the document's form.
const iperf3Format = 1

// iperf3Document is the document of --json.
type iperf3Document struct {
	benchHead
	hostInfo
	LeftOut []report.LeftOut `json:"left_out,omitempty"`
	*iperf3.Report
}

// measured reports whether there is a flow.
func (d *iperf3Document) measured() bool {
	return d.Report != nil && slices.ContainsFunc(d.Rows, func(r iperf3.Row) bool { return r.Median != nil })
}

// iperf3Page writes the document for people.
type iperf3Page struct {
	*page
	*iperf3Document
}

func (d *iperf3Document) print(e *cli.Env) {
	p := &iperf3Page{newDocumentPage(e), d}
	p.heading("One flow of iperf3 through proxies")
	p.header(&d.benchHead, d.facts())
	p.line("")
	p.table(p.figures())
	for _, r := range p.Rows {
		if r.CallsFailed != "" {
			p.prose("%s: system calls not counted: %s", r.Contestant, r.CallsFailed)
		}
	}
	p.heading("How to read it")
	p.prose(`Gbit/s: what the server received, as iperf3 has it. CPU, sw: what the proxy used, and its context switches, per GB. A ratio is the median of the
		rounds' ratios to %s, of throughput with the least and the greatest. spliced: the part of the bytes that the proxy says to have spliced; what it
		has not it has copied twice, from the kernel and to it. calls/MB were counted in a flow of their own of a second. resent: segments that the client retransmitted. It is loopback,
		where client, proxy and server share the processors: no 100 G card.`, p.Rows[0].Contestant)
}

// facts returns the circumstances and the method of the measurement.
func (d *iperf3Document) facts() *facts {
	f := d.benchHead.facts(d.network())
	f.add("method", "%s, flows of %s; the proxies take turns in alternating order, each started anew for each flow", roundsText(d.Rounds), report.Seconds(float64(d.FlowSeconds)))
	f.add("system calls", "%s", d.counted(d.SystemCallCounter))
	for _, r := range d.Rows {
		f.add(r.Contestant, "%s", r.About)
	}
	for _, l := range d.LeftOut {
		f.add("left out", "%s: %s", l.Name, l.Reason)
	}
	return f
}

// figures has a row for each proxy.
func (p *iperf3Page) figures() *report.Table {
	t := new(report.Table)
	t.Row("", "Gbit/s", "ratio", "CPU/GB", "ratio", "sw/GB", "calls/MB", "spliced", "resent")
	for i, r := range p.Rows {
		m := r.Median
		if m == nil {
			continue
		}
		spliced := report.Unknown
		if m.Spliced.Known() {
			spliced = fmt.Sprintf("%.0f %%", 100*float64(m.Spliced))
		}
		t.Row(r.Contestant, report.Ratio(float64(m.BitsPerSecond)/1e9), ranged(r.Throughput, i == 0),
			report.Seconds(float64(m.CPUPerGB)), ratioOf(r.CPU, i == 0), report.Count(float64(m.SwitchesPerGB)),
			report.Digits(float64(r.CallsPerMB)), spliced, report.Exact(m.Retransmits))
	}
	return t
}

// ranged writes a ratio and how far it strays; 1 for the base.
func ranged(b *report.Band, base bool) string {
	if b == nil {
		return ratioOf(b, base)
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", float64(b.Median), float64(b.Low), float64(b.High))
}

// ratioOf writes a ratio; 1 for the base.
func ratioOf(b *report.Band, base bool) string {
	switch {
	case base:
		return "1"
	case b == nil:
		return report.Unknown
	}
	return report.Ratio(float64(b.Median))
}
