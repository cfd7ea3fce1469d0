package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/shadow"
	"github.com/penstock/penstock/proxy/cli"
)

// mirrorCmd measures the cost of a mirror for the sessions that are mirrored.
type mirrorCmd struct {
	programFlag

	Quick   bool     `help:"2 rounds, trials of 0.3 s."`
	Rounds  *int     `placeholder:"N" help:"Rounds in which the shadows take turns (default: 6)."`
	Seconds *float64 `placeholder:"S" help:"Seconds of each of the two trials of a shadow in a round (default: 3)."`
	JSON    string   `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
	Format  string   `default:"text" enum:"text,markdown" placeholder:"text|markdown" help:"Of the report (default: ${default})."`
}

// Help is kong's text below the summary.
func (*mirrorCmd) Help() string {
	return `penstock run whose sessions have no mirror, beside the same with a mirror to a shadow that
is like the endpoint, one that refuses, one that accepts and never reads, and one that
reads slowly. 8 connections send bulk, then 64 have messages of 64 bytes echoed. The
clients, the endpoint and the shadows are on the same processors.`
}

// Validate is called by kong once the flags are read.
func (c *mirrorCmd) Validate() error {
	switch {
	case c.Rounds != nil && *c.Rounds < 1:
		return cli.Usagef("--rounds %d: write 1 or more", *c.Rounds)
	case c.Seconds != nil && (!(*c.Seconds >= 0.05) || *c.Seconds > 3600):
		return cli.Usagef("--seconds %v: write 0.05 or more, and at most 3600", *c.Seconds)
	}
	return nil
}

// mirrorDocument is the document of --json.
type mirrorDocument struct {
	benchHead
	hostInfo
	*shadow.Report
	markdown bool
}

// measured reports whether there is anything.
func (d *mirrorDocument) measured() bool {
	return d.Report != nil && len(d.Rows) > 0 && d.Rows[0].Median != nil
}

// Run measures and reports.
func (c *mirrorCmd) Run(e *cli.Env) error {
	d := &mirrorDocument{benchHead: newBenchHead(e, 1), markdown: c.Format == "markdown"}
	return measureDocument(e, "mirror", c.JSON, d, func(ctx context.Context) error {
		return c.measure(ctx, e, d, "Load balancers, an endpoint and shadows, each a process of its own", shadow.Measure)
	})
}

// measure has the document's report measured by a function, with the settings of the flags.
func (c *mirrorCmd) measure(ctx context.Context, e *cli.Env, d *mirrorDocument, parts string, by func(context.Context, shadow.Setup) (*shadow.Report, error)) (err error) {
	rounds, seconds := 6, 3.0
	if c.Quick {
		rounds, seconds = 2, 0.3
	}
	s := shadow.Setup{Trial: time.Duration(given(c.Seconds, seconds) * float64(time.Second))}
	if s.Program, err = c.program(); err != nil {
		return err
	}
	if s.Dir, err = os.MkdirTemp("", "penstock-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.Dir)
	d.NamespaceMissing = "the clients are in this process" // which is not in a group's namespace
	s.Setup = inRounds(e, process.NewGroup(), given(c.Rounds, rounds))
	defer s.Group.Close()
	announce(e, parts)
	d.Report, err = by(ctx, s)
	return err
}

func (d *mirrorDocument) print(e *cli.Env) {
	p := newDocumentPage(e)
	p.markdown = d.markdown
	p.heading("The cost of a mirror")
	f := d.benchHead.facts(d.network())
	f.add("method", "%s, trials of %s; the shadows take turns in alternating order", roundsText(d.Rounds), report.Seconds(float64(d.Trial)))
	for _, r := range d.Rows {
		f.add(r.Shadow, "%s", r.About)
	}
	p.header(&d.benchHead, f)
	p.line("")
	var ends report.Table
	ends.Row("shadow", "teed", "copied", "undelivered", "ended")
	for _, r := range d.Rows {
		if t := r.Mirrors; t != nil && r.Median != nil {
			ends.Row(r.Shadow, report.Bytes(float64(t.Teed)), report.Bytes(float64(t.Copied)), report.Bytes(float64(t.Undelivered)), byReason(t.Ended))
		}
	}
	p.table(shadowTable("shadow", d.Rows))
	p.line("")
	p.table(&ends)
	p.heading("How to read it")
	p.prose(`bulk 8: bytes that 8 connections have sent to the endpoint. echo 64 × 64: messages of 64 bytes on 64 connections, there and back, and the 99th percentile
		of their time. A ratio is the figure divided by that without a mirror, the median of the rounds'. The last table is of the mirrors of all rounds that have ended, by reason.`)
}

// byReason formats counts.
func byReason(counts map[string]int64) string {
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%s %d", reason, counts[reason]))
	}
	return strings.Join(list, ", ")
}

// shadowTable has the figures of each row, and their ratios to the first. name is that of the rows.
func shadowTable(name string, rows []shadow.Row) *report.Table {
	var figures report.Table
	figures.Row(name, "bulk 8", "ratio", "CPU/GB", "ratio", "echo 64 × 64", "ratio", "p99", "ratio")
	for i, r := range rows {
		m := r.Median
		if m == nil {
			continue
		}
		ratio := func(figure string) string { return ratioOf(r.Ratios.Of(figure), i == 0) }
		figures.Row(r.Shadow, report.Bytes(float64(m.Bulk))+"/s", ratio("bulk_bytes_per_second"), told(m.BulkCPU), ratio("bulk_cpu_seconds_per_gigabyte"),
			report.Count(float64(m.Messages))+"/s", ratio("messages_per_second"), told(m.P99), ratio("message_p99_seconds"))
	}
	return &figures
}
