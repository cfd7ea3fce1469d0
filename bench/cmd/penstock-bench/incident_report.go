package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock/penstock/bench/incident"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// incidentFormat is the number of the document's form.
const incidentFormat = 1

// incidentDocument is the document of --json.
type incidentDocument struct {
	benchHead
	hostInfo
	*incident.Report
}

// measured reports whether there is a trial.
func (d *incidentDocument) measured() bool {
	return d.Report != nil && slices.ContainsFunc(d.Incidents, func(in incident.Incident) bool { return len(in.Modes) > 0 })
}

// incidentPage writes the document for people.
type incidentPage struct {
	*page
	*incidentDocument
}

func (d *incidentDocument) print(e *cli.Env) {
	p := &incidentPage{newDocumentPage(e), d}
	p.heading(fmt.Sprintf("An incident: %d of %d endpoints fail", p.Failing, p.Endpoints))
	p.header(&d.benchHead, d.facts())
	for i := range p.Incidents {
		if len(p.Incidents[i].Modes) > 0 {
			p.incident(&p.Incidents[i])
		}
	}
	p.standings()
	p.files()
	p.legend()
}

// method describes the method.
func (d *incidentDocument) method() string {
	return fmt.Sprintf(`%s requests in a second, evenly spaced, each on a connection of its own and given up after %s; an answer takes %s; %s before the
		incident, %s of it, %s after`, report.Count(d.RequestsPerS), seconds(d.TimeoutSeconds), seconds(d.ServiceSeconds),
		seconds(d.BeforeSeconds), seconds(d.DuringSeconds), seconds(d.AfterSeconds))
}

func seconds(n report.Number) string { return report.Seconds(float64(n)) }

// facts returns the circumstances and the method of the measurement.
func (d *incidentDocument) facts() *facts {
	f := d.benchHead.facts(d.network())
	f.add("method", "%s", d.method())
	f.add("slow", "answers come late by %s in the mean, exponentially distributed", seconds(d.DelaySeconds))
	for _, m := range d.modes() {
		f.add(m.Mode, "%s", m.About)
	}
	return f
}

// modes are one trial with each configuration.
func (d *incidentDocument) modes() (most []incident.Trial) {
	for _, in := range d.Incidents {
		if len(in.Modes) > len(most) {
			most = in.Modes
		}
	}
	return most
}

// about are the picture's conditions.
func (d *incidentDocument) about() []string {
	m := &d.Machine
	return []string{
		fmt.Sprintf("%s, %d CPUs, %s, %s; %s; %s", m.CPU, m.CPUs, m.Kernel, m.Go, d.Began.Format("2006-01-02"), d.network()),
		d.method() + "; slow answers are late by " + seconds(d.DelaySeconds) + " in the mean.",
	}
}

// incident writes the tables of one failure.
func (p *incidentPage) incident(in *incident.Incident) {
	p.heading(fmt.Sprintf("%s: %d of %d endpoints %s", in.Failure, p.Failing, p.Endpoints, in.Failure.About()))
	var t report.Table
	t.Row("", "", "requests", "mean", "p50", "p99", "longest", "failed", "lost")
	for i := range in.Modes {
		m := &in.Modes[i]
		t.Row(phaseRow(m.Mode, "before", &m.Before)...)
		t.Row(phaseRow("", "during", &m.During)...)
		t.Row(phaseRow("", "after", &m.After)...)
	}
	p.table(&t)
	p.line("")
	p.foundOut(in)
}

func phaseRow(mode, phase string, f *incident.Figures) []string {
	return []string{
		mode, phase, report.Exact(f.Requests), seconds(f.Mean), seconds(f.P50), seconds(f.P99), seconds(f.Max),
		share(f.FailedShare()), report.Exact(f.Failed),
	}
}

// share writes a part in percent.
func share(n report.Number) string {
	if !n.Known() {
		return report.Unknown
	}
	return report.Digits(float64(n)*100) + " %"
}

// foundOut reports when the load balancer reacted, how, and why requests were lost.
func (p *incidentPage) foundOut(in *incident.Incident) {
	var t report.Table
	t.Row("seconds from its beginning", "first kept away", fmt.Sprintf("all %d", p.Failing), "breaker opened", "p99 back", "or, from its end")
	for i := range in.Modes {
		m := &in.Modes[i]
		t.Row(m.Mode, moment(m.First), moment(m.All), moment(m.FirstOpened), moment(m.Back), moment(m.BackAfter))
	}
	p.table(&t)
	for i := range in.Modes {
		m := &in.Modes[i]
		if len(m.During.Reasons) > 0 {
			p.prose("%s lost in the incident: %s.", m.Mode, reasons(m.During.Reasons))
		}
		if len(m.Opened) > 0 {
			p.prose("%s opened circuit breakers: %s.", m.Mode, breakers(m.Opened))
		}
		for _, e := range firstEvents(m) {
			p.line(fmt.Sprintf("  %s %8s  %s %s %s: %s", m.Mode, fmt.Sprintf("%+.2f s", e.Seconds), e.Kind, e.Subject, e.State, e.Cause))
		}
	}
}

// breakers lists which circuit breakers opened when.
func breakers(opened []incident.Opened) string {
	all := make([]string, 0, shownEvents+1)
	for i, o := range opened {
		if i == shownEvents {
			all = append(all, fmt.Sprintf("and %d more", len(opened)-i))
			break
		}
		all = append(all, fmt.Sprintf("%s %+.2f s", o.Subject, float64(o.Seconds)))
	}
	return strings.Join(all, ", ")
}

func moment(n report.Number) string {
	if !n.Known() {
		return report.Unknown
	}
	return fmt.Sprintf("%.2f", float64(n))
}

// reasons lists counts by reason, the most frequent first.
func reasons(counts map[string]int64) string {
	all := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if d := counts[b] - counts[a]; d != 0 {
			return int(d)
		}
		return strings.Compare(a, b)
	})
	for i, reason := range all {
		all[i] = report.Exact(counts[reason]) + " " + reason
	}
	return strings.Join(all, ", ")
}

// shownEvents is how many transitions of a trial a page has; all are in the JSON.
const shownEvents = 4

// firstEvents are the first that are for the worse, of the incident.
func firstEvents(m *incident.Trial) (all []incident.Event) {
	for _, e := range m.Events {
		if e.Bad && e.Seconds >= 0 && len(all) < shownEvents {
			all = append(all, e)
		}
	}
	return all
}

// standings are the verdicts.
func (p *incidentPage) standings() {
	if len(p.Standings) == 0 {
		return
	}
	p.heading("Protection: how many times less than without, during the incident")
	var t report.Table
	t.Row("", "figure", "mode", "times less", "must", "verdict")
	for _, s := range p.Standings {
		t.Row(string(s.Failure), s.Figure, s.Mode, report.Digits(float64(s.Value)), "≥ "+report.Digits(float64(s.Must)), string(s.Verdict))
	}
	p.table(&t)
}

// missed lists the bounds that the configuration on misses.
func (d *incidentDocument) missed() (all []string) {
	for _, s := range d.Standings {
		if s.Mode == incident.On && s.Verdict == report.Missed {
			all = append(all, fmt.Sprintf("%s, %s: %s times less, must be %s", s.Failure, s.Figure, report.Digits(float64(s.Value)), report.Digits(float64(s.Must))))
		}
	}
	return all
}

// files shows the configurations.
func (p *incidentPage) files() {
	for _, m := range p.modes() {
		p.heading(m.Mode + ":")
		for line := range strings.Lines(m.File) {
			p.line("    " + strings.TrimRight(line, "\n"))
		}
	}
}

// legend explains the columns of the tables.
func (p *incidentPage) legend() {
	p.heading("How to read it")
	p.prose(`A time is from the moment at which a request was to begin until its answer was there or it failed; those that failed are in all
		figures. Requests belong to the phase in which they began; those of the last 100 ms before the incident, some of which it finds
		under way, to the incident. Kept away: the log says that an endpoint is ejected, unhealthy, or that its circuit breaker is open.
		Breaker opened: the first circuit breaker that the log says is open, of an endpoint or of the upstream; – where none opened, as when ejection
		was sooner and no more failures came to count.
		p99 back: from which moment on three seconds in a row had a 99th percentile at most 50 ms above that of before, whatever came
		later; an ejection that is over early may cost some requests again.`)
	p.prose(`The bounds are ratios of figures published elsewhere, of a load and an incident that are not known in detail: a mean of 842 and of
		127 ms, and 3.2 and 0.18 %% of all requests failed, without protection and with it. How many requests fail with protection depends on how long
		it takes to find out, and their share on how long the incident is; a mode that lost none is taken to have lost one. Of refusing endpoints a
		client without protection is told at once, so there is nothing in the mean to win, and it is not judged.`)
}
