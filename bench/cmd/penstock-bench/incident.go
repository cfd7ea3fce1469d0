package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/incident"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// incidentCmd makes endpoints fail under load.
type incidentCmd struct {
	programFlag
	outFlag

	Quick        bool     `help:"Measure only silent endpoints, with the configurations off and on, during an incident of 6 s. This takes half a minute."`
	Failures     names    `placeholder:"NAME,..." help:"Let the endpoints fail in these ways: silent, slow, refuse (default: all)."`
	Modes        names    `placeholder:"NAME,..." help:"Measure these configurations: off, least_conn, defaults, first_byte, on (default: off,defaults,on)."`
	Seconds      *float64 `placeholder:"S" help:"Let the incident last this long. The time before the incident is an eighth of this, the time after it a quarter, and a client gives up after 0.175 of this (default: 40)."`
	Rate         float64  `default:"500" placeholder:"N" help:"Send this many requests each second, each on its own connection (default: ${default})."`
	PrintConfigs bool     `help:"Print the configurations, and exit."`
}

func (*incidentCmd) Help() string {
	return `Requests go through penstock run to nine endpoints at a steady rate. Then three endpoints
fail for some time: they fall silent (accept, and answer nothing), answer 3 s late on
average, or refuse. This is measured with each configuration:

    off         no checks, no outlier detection, no circuit breaker, no retries
    least_conn  the same with balance: least_conn
    defaults    the defaults of a configuration
    first_byte  defaults, and first_byte: 500ms
    on          defaults, answer_within: 200ms, and HTTP checks every second

All configurations but least_conn balance by round_robin. The report has the mean, the 99th
percentile and the failures before, during and after the incident. It also says when the
load balancer stopped using the endpoints, and when a circuit breaker opened.
--print-configs shows the files.`
}

const (
	incidentEndpoints = 9
	incidentFailing   = 3
	incidentFirstByte = 500 * time.Millisecond
	incidentWithin    = 200 * time.Millisecond
)

// Validate is called by kong once the flags are read.
func (c *incidentCmd) Validate() error {
	return cmp.Or(bounded("seconds", given(c.Seconds, 40), 0.1, 600), bounded("rate", c.Rate, 1, 10_000))
}

func (c *incidentCmd) Run(e *cli.Env) error {
	failures, modes, err := c.chosen()
	if err != nil {
		return err
	}
	if c.PrintConfigs {
		return c.printConfigs(e, modes)
	}
	program, err := c.program()
	if err != nil {
		return err
	}
	d := &incidentDocument{head: newHead(e, 2)}
	return c.measure(e, "incident", d, func(ctx context.Context, dir string) (err error) {
		during := given(c.Seconds, 40)
		if c.Quick && c.Seconds == nil {
			during = 6
		}
		share := func(of float64) time.Duration { return time.Duration(of * during * float64(time.Second)) }
		s := incident.Setup{
			Setup: d.rounds(e, 1), Program: program, Dir: dir,
			Failures: failures, Modes: modes, Endpoints: incidentEndpoints, Failing: incidentFailing,
			Rate: c.Rate, Service: 5 * time.Millisecond, Delay: 3 * time.Second, FirstByte: incidentFirstByte, Within: incidentWithin, Bytes: 1 << 10,
			Timeout: share(0.175), Before: share(0.125), During: share(1), After: share(0.25),
		}
		defer s.Group.Close()
		d.Report, err = incident.Measure(ctx, s)
		return err
	})
}

func (c *incidentCmd) chosen() (failures []endpoint.Failure, modes []incident.Mode, err error) {
	wanted, files := c.Failures, c.Modes
	if len(files) == 0 {
		files = names{incident.Off, incident.On}
		if !c.Quick {
			files = append(files, incident.Defaults)
		}
	}
	switch {
	case len(wanted) > 0:
	case c.Quick:
		wanted = names{string(endpoint.Silent)}
	default:
		failures = incident.Failures
	}
	if _, err := choose("failure", incident.Failures, wanted, func(f endpoint.Failure) string { return string(f) }); err != nil {
		return nil, nil, cli.Usagef("--failures: %w", err)
	}
	for _, name := range wanted {
		if f := endpoint.Failure(name); !slices.Contains(failures, f) {
			failures = append(failures, f)
		}
	}
	modes, err = choose("mode", incident.Modes(), files, func(m incident.Mode) string { return m.Name })
	if err != nil {
		return nil, nil, cli.Usagef("--modes: %w", err)
	}
	return failures, modes, nil
}

// printConfigs prints the configuration files, with endpoints that do not exist.
func (c *incidentCmd) printConfigs(e *cli.Env, modes []incident.Mode) error {
	at := make([]string, incidentEndpoints)
	for i := range at {
		at[i] = fmt.Sprintf("127.0.0.1:%d", 8001+i)
	}
	for i := range modes {
		m := &modes[i]
		if err := printConfig(e, m.Name, m.About, strings.TrimSpace(m.File("127.0.0.1:8000", at, incidentFirstByte, incidentWithin))); err != nil {
			return err
		}
	}
	return nil
}

// incidentDocument is the document of --json.
type incidentDocument struct {
	head
	*incident.Report
}

func (d *incidentDocument) measured() bool {
	return d.Report != nil && slices.ContainsFunc(d.Incidents, func(in incident.Incident) bool { return len(in.Modes) > 0 })
}

func (d *incidentDocument) write(p *report.Page) {
	p.Heading("An incident: %d of %d endpoints fail", d.Failing, d.Endpoints)
	more := [][2]string{
		{"method", fmt.Sprintf(`%s requests in a second, evenly spaced, each on a connection of its own and given up after %s; an answer takes %s; %s before the
			incident, %s of it, %s after`, report.Count(d.RequestsPerS), seconds(d.TimeoutSeconds), seconds(d.ServiceSeconds),
			seconds(d.BeforeSeconds), seconds(d.DuringSeconds), seconds(d.AfterSeconds))},
		{"slow", fmt.Sprintf("answers come late by %s in the mean, exponentially distributed", seconds(d.DelaySeconds))},
	}
	for _, m := range d.Incidents[0].Modes {
		more = append(more, [2]string{m.Mode, m.About})
	}
	p.Facts(&d.Head, d.Network(), more...)
	for i := range d.Incidents {
		if len(d.Incidents[i].Modes) > 0 {
			d.incident(p, &d.Incidents[i])
		}
	}
	if len(d.Standings) > 0 {
		p.Heading("Protection: how many times less than without, during the incident")
		var t report.Table
		t.Row("", "figure", "mode", "times less", "must", "verdict")
		for _, s := range d.Standings {
			t.Row(string(s.Failure), s.Figure, s.Mode, report.Digits(float64(s.Value)), "≥ "+report.Digits(float64(s.Must)), string(s.Verdict))
		}
		p.Table(&t)
	}
	p.Heading("How to read it")
	p.Prose(`A time begins when a request is scheduled, and ends with its answer or its failure; all figures include the requests that failed.
		Requests belong to the phase in which they began. Requests of the last 100 ms before the incident belong to the incident, because it finds some of
		them under way. Kept away: the log says that an endpoint is ejected or unhealthy, or that its circuit breaker is open.
		p99 back: the beginning of three seconds in a row with a 99th percentile at most 50 ms above the one before the incident. Requests can
		fail again later, when an ejection ends early.`)
	p.Prose(`The bounds are ratios of figures published elsewhere, for a load and an incident that are not known in detail: without protection a mean of
		842 ms and 3.2 %% of all requests failed, with protection 127 ms and 0.18 %%. The number of requests that fail with protection depends on
		how long the detection takes, and their share on the length of the incident; a mode that lost none is counted as if it had lost one. A refusing
		endpoint answers its clients at once even without protection. The mean cannot become better, so it is not judged.`)
}

func (d *incidentDocument) incident(p *report.Page, in *incident.Incident) {
	p.Heading("%s: %d of %d endpoints %s", in.Failure, d.Failing, d.Endpoints, in.Failure.About())
	var t, found report.Table
	t.Row("", "", "requests", "mean", "p50", "p99", "longest", "failed", "lost", "why")
	found.Row("seconds from its beginning", "first kept away", fmt.Sprintf("all %d", d.Failing), "breaker opened", "p99 back", "or, from its end")
	for i := range in.Modes {
		m := &in.Modes[i]
		phase := func(name string, f *incident.Figures) {
			failed := report.Unknown
			if n := f.FailedShare(); n.Known() {
				failed = report.Digits(float64(n)*100) + " %"
			}
			t.Row(m.Mode, name, report.Exact(f.Requests), seconds(f.Mean), seconds(f.P50), seconds(f.P99), seconds(f.Max), failed, report.Exact(f.Failed), reasons(f.Reasons))
		}
		phase("before", &m.Before)
		phase("during", &m.During)
		phase("after", &m.After)
		found.Row(m.Mode, moment(m.First), moment(m.All), moment(m.FirstOpened), moment(m.Back), moment(m.BackAfter))
	}
	p.Table(&t)
	p.Table(&found)
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
