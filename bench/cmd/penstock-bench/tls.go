package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/handshake"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// tlsCmd measures the termination of TLS.
type tlsCmd struct {
	programFlag
	outFlag

	Quick   bool              `help:"Measure 2 rounds of trials of 0.3 s."`
	Rounds  *int              `placeholder:"N" help:"Measure this many rounds, in which the contestants take turns (default: 6)."`
	Seconds *float64          `placeholder:"S" help:"Measure for this many seconds in each of the seven trials of a contestant in a round (default: 1)."`
	Binary  map[string]string `placeholder:"NAME=PATH" mapsep:"none" help:"Use this executable: haproxy=PATH."`
}

func (*tlsCmd) Help() string {
	return `A listener of penstock run that terminates TLS is compared with a listener of HAProxy (bind
ssl crt, mode tcp, a thread for each processor), and both are measured without TLS too. 16
clients connect, shake hands, send 64 bytes, get them back, close, and begin again: without
a ticket, and with the last ticket. Then messages are echoed one after the other, on one
connection and on 64 at once. All use the same certificate (ECDSA, P-256) and X25519 for
the key exchange. The clients run on the same processors, so look first at the proxy's CPU
for each handshake.`
}

// Validate is called by kong once the flags are read.
func (c *tlsCmd) Validate() error {
	if c.Rounds != nil && *c.Rounds < 1 {
		return cli.Usagef("--rounds %d: write 1 or more", *c.Rounds)
	}
	return cmp.Or(bounded("seconds", given(c.Seconds, 1), 0.05, 3600), binaries(c.Binary, "haproxy"))
}

func (c *tlsCmd) Run(e *cli.Env) error {
	rounds, trial := 6, 1.0
	if c.Quick {
		rounds, trial = 2, 0.3
	}
	program, err := c.program()
	if err != nil {
		return err
	}
	d := &tlsDocument{head: newHead(e, 2)}
	return c.measure(e, "tls", d, func(ctx context.Context, dir string) (err error) {
		s := handshake.Setup{
			Setup: d.rounds(e, given(c.Rounds, rounds)), Program: program, Dir: dir,
			Binaries: c.Binary, Sink: [2]string{bench.PartSink, strconv.Itoa(runtime.NumCPU())}, Threads: runtime.NumCPU(),
			Trial: time.Duration(given(c.Seconds, trial) * float64(time.Second)), Workers: 16,
		}
		defer s.Group.Close()
		d.Report, err = handshake.Measure(ctx, s)
		return err
	})
}

// tlsDocument is the document of --json.
type tlsDocument struct {
	head
	*handshake.Report
}

func (d *tlsDocument) measured() bool {
	return d.Report != nil && len(d.Rows) > 0 && d.Rows[0].Median != nil
}

func (d *tlsDocument) write(p *report.Page) {
	p.Heading("A listener that terminates TLS")
	more := [][2]string{{"method", fmt.Sprintf("%s, trials of %s, %d clients; the contestants take turns in alternating order", report.Rounds(d.Rounds), seconds(d.Trial), d.Workers)}}
	for _, r := range d.Rows {
		more = append(more, [2]string{r.Contestant, r.About + "; " + r.Agreed + r.Failed})
	}
	p.Facts(&d.Head, d.Network(), more...)
	var shakes, one, many report.Table
	shakes.Row("", "new hs/s", "ratio", "CPU", "ratio", "resumed hs/s", "ratio", "CPU", "ratio", "resumed", "plain/s", "CPU")
	one.Row("", "message", "p99", "plain", "added", "ratio", "CPU", "plain CPU")
	many.Row("64 connections", "messages/s", "ratio", "CPU", "ratio", "p99", "ratio", "plain/s", "CPU")
	for i, r := range d.Rows {
		m := r.Median
		if m == nil {
			continue
		}
		ratio := func(figure string) string { return ratioOf(r.Ratios.Of(figure), i == 0) }
		rate := func(n report.Number) string { return report.Count(float64(n)) }
		shakes.Row(r.Contestant, rate(m.New), ratio("new_handshakes_per_second"), seconds(m.NewCPU), ratio("new_cpu_seconds"),
			rate(m.Resumed), ratio("resumed_handshakes_per_second"), seconds(m.ResumedCPU), ratio("resumed_cpu_seconds"),
			fmt.Sprintf("%.0f %%", 100*float64(m.Share)), rate(m.Plain), seconds(m.PlainCPU))
		one.Row(r.Contestant, seconds(m.Message), seconds(m.MessageP99), seconds(m.Unsealed), seconds(m.Added), ratio("added_seconds"), seconds(m.MessagesCPU), seconds(m.UnsealedCPU))
		many.Row(r.Contestant, rate(m.Many), ratio("many_messages_per_second"), seconds(m.ManyCPU), ratio("many_message_cpu_seconds"),
			seconds(m.ManyP99), ratio("many_message_p99_seconds"), rate(m.ManyOpen), seconds(m.ManyOpenCPU))
	}
	for _, t := range []*report.Table{&shakes, &one, &many} {
		p.Table(t)
	}
	p.Heading("How to read it")
	p.Prose(`hs/s: connections each second, each with a handshake, 64 bytes there and back, and a close. CPU: the proxy's CPU time for each connection. resumed: the share of handshakes that the server
		resumed, among all with a ticket. plain: the same without TLS. message: the median time for 64 bytes there and back on one connection. added: how much
		longer a message takes than through the same proxy without TLS; this includes the client's part. The last table has messages on 64 connections at once,
		without their handshakes. ratio: Penstock's figure divided by the figure of this row, the median of the rounds.`)
}
