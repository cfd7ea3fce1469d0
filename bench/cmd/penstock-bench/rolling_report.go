package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rolling"
	"github.com/penstock/penstock/proxy/cli"
)

// rollingFormat is the number of the document's form.
const rollingFormat = 1

// rollingDocument is the document of --json.
type rollingDocument struct {
	benchHead
	hostInfo
	*rolling.Report
	markdown bool
}

// measured reports whether a scenario is over.
func (d *rollingDocument) measured() bool {
	if d.Report == nil || len(d.Scenarios) == 0 || len(d.Scenarios[0].Cells) == 0 {
		return false
	}
	return d.Scenarios[0].Cells[0].Total != nil
}

// rollingPage writes the document for people.
type rollingPage struct {
	*page
	*rollingDocument
}

func (d *rollingDocument) print(e *cli.Env) {
	p := &rollingPage{newDocumentPage(e), d}
	if d.markdown {
		p.page.markdown, p.width, p.strong = true, math.MaxInt, false
	}
	p.heading("Endpoints that restart, die and fall silent")
	p.header(&d.benchHead, d.facts())
	p.summary("Clients lost", func(f *rolling.Figures) string { return report.Exact(f.Lost) })
	p.summary("The longest wait of a client that was served", func(f *rolling.Figures) string { return seconds(f.Longest) })
	p.standings()
	for i := range d.Scenarios {
		if r := &d.Scenarios[i]; r.Cells[0].Total != nil {
			p.scenario(r)
		}
	}
	p.legend()
}

// facts returns the circumstances and the method of the measurement.
func (d *rollingDocument) facts() *facts {
	f := d.benchHead.facts(d.network())
	f.add("method", "%s clients in a second for each contestant, all contestants at the same time; a client gives up after %s; %s",
		report.Count(d.ClientsPerS), seconds(d.TimeoutSeconds), roundsText(d.Rounds))
	for i := range d.Scenarios {
		f.add(d.Scenarios[i].Scenario, "%s; %s", d.Scenarios[i].About, seconds(d.Scenarios[i].Seconds))
	}
	for _, c := range d.Contestants {
		f.add(c.Name, "%s%s", c.About, strings.TrimRight(" ("+c.Version, " (")+map[bool]string{true: ")"}[c.Version != ""])
	}
	for _, m := range d.Missing {
		f.add("not here", "%s", m)
	}
	return f
}

// summary is a table of one figure: a row for each contestant, a column for each scenario.
func (p *rollingPage) summary(title string, figure func(*rolling.Figures) string) {
	p.heading(title)
	var t report.Table
	head := []string{""}
	for i := range p.Scenarios {
		head = append(head, p.Scenarios[i].Scenario)
	}
	t.Row(head...)
	for j, c := range p.Contestants {
		row := []string{c.Name}
		for i := range p.Scenarios {
			text := report.Unknown
			if total := p.Scenarios[i].Cells[j].Total; total != nil {
				text = figure(total)
			}
			row = append(row, text)
		}
		t.Row(row...)
	}
	p.table(&t)
}

// standings are the verdicts.
func (p *rollingPage) standings() {
	p.heading("Beside the peer that lost fewest")
	var t report.Table
	t.Row("", "", "lost", "peer", "lost", "verdict")
	for _, s := range p.Standings {
		peer, lost := report.Unknown, report.Unknown
		if s.Peer != "" {
			peer, lost = s.Peer, report.Exact(s.PeerLost)
		}
		t.Row(s.Scenario, s.Contestant, report.Exact(s.Lost), peer, lost, string(s.Verdict))
	}
	p.table(&t)
}

// scenario is everything about one.
func (p *rollingPage) scenario(r *rolling.Result) {
	p.heading(r.Scenario + ": " + r.About)
	var t report.Table
	t.Row("", "clients", "lost", "by round", "under way", "p50", "p99", "longest", "why")
	for i := range r.Cells {
		c := &r.Cells[i]
		f, by := c.Total, make([]string, len(c.Rounds))
		for i := range c.Rounds {
			by[i] = fmt.Sprint(c.Rounds[i].Lost)
		}
		t.Row(c.Contestant, report.Exact(f.Clients), report.Exact(f.Lost), strings.Join(by, " "), report.Exact(f.UnderWay),
			seconds(f.P50), seconds(f.P99), seconds(f.Longest), reasons(f.Reasons))
	}
	p.table(&t)
}

// legend explains the columns of the tables.
func (p *rollingPage) legend() {
	p.heading("How to read it")
	p.prose(`A client is lost if it does not get its whole answer: it is refused, reset, told nothing, or gives up. Times are from the moment at which it was
		to begin to the answer's first byte, of those that were served: the median of the rounds' p50 and p99, the longest of all. under way: lost, but
		not counted as such, because they were there when an endpoint failed, and may have been on it. What befalls an endpoint befalls those of all
		contestants at the same moment. Contestants whose name ends in -checks ask for an answer, and are compared with each other alone. Beside a peer that lost some as well, a
		difference of less than the square root of the sum is chance.`)
}
