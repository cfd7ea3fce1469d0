package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/handshake"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// tlsFormat is the number of the document's form.
const tlsFormat = 1

// tlsDocument is the document of --json.
type tlsDocument struct {
	benchHead
	hostInfo
	*handshake.Report
}

// measured reports whether there is anything.
func (d *tlsDocument) measured() bool {
	return d.Report != nil && len(d.Rows) > 0 && d.Rows[0].Median != nil
}

// Run measures and reports.
func (c *benchTLSCmd) Run(e *cli.Env) error {
	d := &tlsDocument{benchHead: newBenchHead(e, tlsFormat)}
	return measureDocument(e, "tls", c.JSON, d, func(ctx context.Context) error { return c.measure(ctx, e, d) })
}

// measure compares.
func (c *benchTLSCmd) measure(ctx context.Context, e *cli.Env, d *tlsDocument) (err error) {
	rounds, seconds := 6, 1.0
	if c.Quick {
		rounds, seconds = 2, 0.3
	}
	s := handshake.Setup{
		Binaries: c.Binary, Sink: [2]string{bench.PartSink, strconv.Itoa(runtime.NumCPU())}, Threads: runtime.NumCPU(),
		Trial: time.Duration(given(c.Seconds, seconds) * float64(time.Second)), Workers: c.Clients,
	}
	if s.Program, err = c.program(); err != nil {
		return err
	}
	if s.Dir, err = os.MkdirTemp("", "penstock-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.Dir)
	s.Setup = inRounds(e, d.group(), given(c.Rounds, rounds))
	defer s.Group.Close()
	announce(e, "Proxies, a server and a client, each a process of its own")
	d.Report, err = handshake.Measure(ctx, s)
	return err
}

func (d *tlsDocument) print(e *cli.Env) {
	p := newDocumentPage(e)
	p.heading("A listener that terminates TLS")
	f := d.benchHead.facts(d.network())
	f.add("method", "%s, trials of %s, %d clients; the contestants take turns in alternating order", roundsText(d.Rounds), report.Seconds(float64(d.Trial)), d.Workers)
	for _, r := range d.Rows {
		f.add(r.Contestant, "%s; %s", r.About, r.Agreed+r.Failed)
	}
	p.header(&d.benchHead, f)
	p.line("")
	p.table(d.handshakes())
	p.line("")
	p.table(d.messages())
	p.line("")
	p.table(d.many())
	p.heading("How to read it")
	p.prose(`hs/s: connections with a handshake, 64 bytes there and back, and an end. CPU: the proxy's for each. resumed: those whose handshake the server
		resumed, of all that had a ticket. plain: the same without TLS. A message is 64 bytes there and back on one connection, its median; added: how much
		longer that takes than through the same proxy without TLS, the client's own part in it. The last table is messages on 64 connections at once, their
		handshakes before left out. A ratio is Penstock's figure divided by this one's, the median of the rounds'.`)
}

// handshakes has a row for each contestant.
func (d *tlsDocument) handshakes() *report.Table {
	t := new(report.Table)
	t.Row("", "new hs/s", "ratio", "CPU", "ratio", "resumed hs/s", "ratio", "CPU", "ratio", "resumed", "plain/s", "CPU")
	for i, r := range d.Rows {
		m := r.Median
		if m == nil {
			continue
		}
		ratio := func(figure string) string { return ratioOf(r.Ratios.Of(figure), i == 0) }
		t.Row(r.Contestant, report.Count(float64(m.New)), ratio("new_handshakes_per_second"), told(m.NewCPU), ratio("new_cpu_seconds"),
			report.Count(float64(m.Resumed)), ratio("resumed_handshakes_per_second"), told(m.ResumedCPU), ratio("resumed_cpu_seconds"),
			fmt.Sprintf("%.0f %%", 100*float64(m.Share)), report.Count(float64(m.Plain)), told(m.PlainCPU))
	}
	return t
}

// messages has a row for each contestant.
func (d *tlsDocument) messages() *report.Table {
	t := new(report.Table)
	t.Row("", "message", "p99", "plain", "added", "ratio", "CPU", "plain CPU")
	for i, r := range d.Rows {
		if m := r.Median; m != nil {
			t.Row(r.Contestant, told(m.Message), told(m.MessageP99), told(m.Unsealed), told(m.Added), ratioOf(r.Ratios.Of("added_seconds"), i == 0), told(m.MessagesCPU), told(m.UnsealedCPU))
		}
	}
	return t
}

// many has a row for each contestant.
func (d *tlsDocument) many() *report.Table {
	t := new(report.Table)
	t.Row("64 connections", "messages/s", "ratio", "CPU", "ratio", "p99", "ratio", "plain/s", "CPU")
	for i, r := range d.Rows {
		m := r.Median
		if m == nil {
			continue
		}
		ratio := func(figure string) string { return ratioOf(r.Ratios.Of(figure), i == 0) }
		t.Row(r.Contestant, report.Count(float64(m.Many)), ratio("many_messages_per_second"), told(m.ManyCPU), ratio("many_message_cpu_seconds"),
			told(m.ManyP99), ratio("many_message_p99_seconds"), report.Count(float64(m.ManyOpen)), told(m.ManyOpenCPU))
	}
	return t
}
