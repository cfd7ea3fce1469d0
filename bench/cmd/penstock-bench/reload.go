package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock/penstock/bench/reload"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// reloadCmd measures changes of the configuration of a process that serves.
type reloadCmd struct {
	programFlag
	outFlag

	Quick  bool `help:"Measure 50 listeners with 500 endpoints in 2 rounds, and then 20 reloads in a row with 200 idle connections and 10 listeners."`
	Rounds *int `placeholder:"N" help:"Reload this many times each way (an even number, default: 6)."`
}

func (*reloadCmd) Help() string {
	return `The command starts penstock run with 1,000 listeners, 10,000 endpoints and health checks
every 30 s. It changes the configuration, sends SIGHUP, and connects to a listener again and
again until a new endpoint greets it. The process reports the time from a valid configuration
to a configuration in force, and how many turns of its loops took a millisecond or more.

Then a thousand reloads follow each other without a pause, with 100 listeners. Meanwhile
8,000 clients (or as many as RLIMIT_NOFILE allows) are idle, and others come and go. If a
connection is closed or refused, or if memory, descriptors or goroutines grow, the exit code
is 1. The whole command takes two or three minutes.`
}

// Validate is called by kong once the flags are read.
func (c *reloadCmd) Validate() error { return bounded("rounds", given(c.Rounds, 2), 1, 1000) }

func (c *reloadCmd) Run(e *cli.Env) error {
	program, err := c.program()
	if err != nil {
		return err
	}
	d := &reloadDocument{head: newHead(e, 2)}
	return c.measure(e, "reload", d, func(ctx context.Context, dir string) (err error) {
		s, count, idle := reload.Setup{Listeners: 1000, Endpoints: 10_000, Reloads: 1000, RowListeners: 100}, 6, 8000
		if c.Quick {
			s, count, idle = reload.Setup{Listeners: 50, Endpoints: 500, Reloads: 20, RowListeners: 10}, 2, 200
		}
		s.Program, s.Dir, s.Busy, s.Interval, s.Setup = program, dir, 8, "30s", d.rounds(e, given(c.Rounds, count))
		defer s.Group.Close()
		s.Idle = min(idle, cli.Affordable(cli.Descriptors(), cli.DefaultLoops())-2*s.Busy-100)
		d.Report, err = reload.Measure(ctx, s)
		if err == nil && d.Steady != nil && len(d.Steady.Violations) > 0 {
			err = errors.New(strings.Join(d.Steady.Violations, "; "))
		}
		return err
	})
}

// reloadDocument is the document of --json.
type reloadDocument struct {
	head
	*reload.Report
}

func (d *reloadDocument) measured() bool {
	return d.Report != nil && (len(d.Rows) > 0 && d.Rows[0].Median != nil || d.Steady != nil)
}

func (d *reloadDocument) write(p *report.Page) {
	p.Heading("A configuration that changes while it serves")
	p.Facts(&d.Head, d.Network(), [2]string{"reloads", fmt.Sprintf("%s listeners, %s endpoints, a file of %s; health checks: each every %s",
		report.Exact(int64(d.Listeners)), report.Exact(int64(d.Endpoints)), report.Bytes(float64(d.FileBytes)), d.Interval)})
	t := new(report.Table)
	t.Row("", "first", "worst", "valid to swapped", "worst", "prepared", "swapped", "long turns", "overruns", "before")
	for _, r := range d.Rows {
		if m, w := r.Median, r.Worst; m != nil {
			t.Row(r.Name, seconds(m.First), seconds(w.First), seconds(m.ValidToSwapped), seconds(w.ValidToSwapped), seconds(m.Prepared), seconds(m.Swapped),
				countsOf(m.LongTurns, w.LongTurns), countsOf(m.Overruns, w.Overruns), countsOf(m.QuietTurns, w.QuietTurns))
		}
	}
	p.Table(t)
	if d.Steady != nil {
		d.steady(p, d.Steady)
	}
	p.Heading("How to read it")
	for _, r := range d.Rows {
		p.Items(r.Name + ": " + r.About)
	}
	p.Prose(`first: from SIGHUP, parsing included, to the greeting of the first connection that the new configuration served. valid to swapped: from a valid configuration
		to a configuration in force. It has two parts: prepared, until the new state exists beside the old state, and swapped, from then on. long turns: turns of loops of a millisecond or more, from SIGHUP to 200 ms
		after the first connection, in the median and at worst. overruns: the long turns that used a millisecond of CPU time themselves; the other long turns
		waited for a busy CPU. before: long turns in half a second without a reload.`)
}

func countsOf(a, b report.Number) string {
	return report.Count(float64(a)) + ", " + report.Count(float64(b))
}

func (d *reloadDocument) steady(p *report.Page, l *reload.Long) {
	p.Heading("%s reloads in a row, %s listeners, %s endpoints", report.Exact(int64(l.Reloads)), report.Exact(int64(l.Listeners)), report.Exact(int64(l.Endpoints)))
	t := new(report.Table)
	t.Row("reloads", "memory", "descriptors", "goroutines")
	for _, h := range l.Held {
		t.Row(report.Exact(int64(h.Reloads)), report.Bytes(float64(h.RssAnon)), report.Exact(int64(h.Descriptors)), report.Exact(h.Goroutines))
	}
	p.Table(t)
	if c := l.Clients; c != nil {
		p.Prose("%s idle connections (%s were closed); meanwhile %s others were opened, echoed on and closed, and %s failed. p50 %s, p99 %s, the longest %s. It took %s.",
			report.Exact(int64(c.Idle)), report.Exact(c.Closed), report.Exact(c.Served), report.Exact(c.Failed),
			report.Seconds(c.P50), report.Seconds(c.P99), report.Seconds(c.Longest), seconds(l.Elapsed))
	}
	for _, v := range l.Violations {
		p.Prose("Violated: %s", v)
	}
}
