package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/verdict"
	"github.com/penstock/penstock/proxy/cli"
)

// verdictCmd makes causes of slow sessions, and compares the verdicts on them.
type verdictCmd struct {
	programFlag

	Faults int         `default:"135" placeholder:"N" help:"Faults to draw, of each cause in turn (default: ${default})."`
	Seed   uint64      `default:"1" placeholder:"N" help:"Of the draw (default: ${default})."`
	Causes names       `placeholder:"NAME,..." help:"Causes: slow reader, slow sender, slow answer, tiny window, loss, thin link, starved proxy, bandwidth limit, idle, long way, loss on a long way, window on a long way, slow reader on a long way, slow sender on a long way, slow answer on a long way (default: all)."`
	Time   cli.Timeout `default:"4s" placeholder:"TIME" help:"How long a session lives with its fault (default: ${default})."`
	Detect int         `default:"3" placeholder:"N" help:"Of every so many faults of a cause one is made in a running session, too, and the time to the verdict measured; 0: none (default: ${default})."`

	Lane int `default:"3" placeholder:"N" help:"Of every so many faults of a cause one is in a session that has left user space, where that can be; 0: none (default: ${default})."`

	JSON   string `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
	Format string `default:"text" enum:"text,markdown" placeholder:"text|markdown" help:"Of the report (default: ${default})."`
	Strict bool   `help:"Exit code 1 where less than 92 % of the verdicts are right, or less than 80 % of any one."`
}

// Help is kong's text below the summary.
func (*verdictCmd) Help() string {
	return `A client, penstock run and an endpoint, each in a network namespace of its own with a
router between them, have one session at a time, with a fault of random strength: a
side that reads, sends or answers slowly or has a tiny window, losses or a thin link
with a queue on the way to either, no CPU for the proxy, a limit of bandwidth, or
nothing to do. Long ways have a round trip of 20 to 200 ms, by a TUN device. Reported are the verdicts at the session's end and on its last second
beside the right ones, and the seconds from a fault in a running session to the right
live verdict. A third of the faults that can be there are in sessions that have left
user space (see docs/lane.md), with matrices of their own. It takes root, ip, tc and nft, and /dev/net/tun for long ways.`
}

// Validate is called by kong once the flags are read.
func (c *verdictCmd) Validate() error {
	switch {
	case c.Faults < 1 || c.Faults > 10_000:
		return cli.Usagef("--faults %d: write 1 or more, and at most 10000", c.Faults)
	case c.Time.Duration() < 2*time.Second || c.Time.Duration() > time.Minute:
		return cli.Usagef("--time %v: write 2s or more, and at most 1m", c.Time.Duration())
	case c.Detect < 0:
		return cli.Usagef("--detect %d: write 0 or more", c.Detect)
	case c.Lane < 0:
		return cli.Usagef("--lane %d: write 0 or more", c.Lane)
	}
	_, err := c.causes()
	return err
}

func (c *verdictCmd) causes() (list []verdict.Cause, err error) {
	for _, name := range c.Causes {
		if !slices.Contains(verdict.Causes, verdict.Cause(name)) {
			return nil, cli.Usagef("--causes: no cause %q (see: penstock-bench verdict --help)", name)
		}
		list = append(list, verdict.Cause(name))
	}
	if list == nil {
		list = verdict.Causes
	}
	return list, nil
}

// Run measures, reports, and judges if it is asked to.
func (c *verdictCmd) Run(e *cli.Env) error {
	d := &verdictDocument{benchHead: newBenchHead(e, 1), markdown: c.Format == "markdown"}
	if err := measureDocument(e, "verdict", c.JSON, d, func(ctx context.Context) error { return c.measure(ctx, e, d) }); err != nil {
		return err
	}
	if missed := d.missed(); c.Strict && len(missed) > 0 {
		return fmt.Errorf("verdict: missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

func (c *verdictCmd) measure(ctx context.Context, e *cli.Env, d *verdictDocument) error {
	program, err := c.program()
	if err != nil {
		return err
	}
	causes, err := c.causes()
	if err != nil {
		return err
	}
	d.Report = &verdict.Report{Seed: c.Seed, SessionS: c.Time.Duration().Seconds(), WindowS: 1, CongestionOwn: congestionControl()}
	x := verdict.Experiment{
		Setup: verdict.Setup{
			Run:  func(args ...string) process.Spec { return program.Penstock("penstock run", program.Run, args...) },
			Time: c.Time.Duration(), Window: time.Second,
		},
		Seed: c.Seed, Faults: c.Faults, DetectEvery: c.Detect, LaneEvery: c.Lane, Causes: causes,
		Watch: func(done int, t *verdict.Trial) {
			d.Trials = append(d.Trials, *t)
			fmt.Fprintf(e.Stderr, "%d of %d: %v: %s, live %s\n", done, c.Faults, &t.Fault, t.End, t.Live)
		},
	}
	_, err = x.Measure(ctx)
	return err
}

// congestionControl is that of this machine's sockets.
func congestionControl() string {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

// verdictDocument is the document of --json.
type verdictDocument struct {
	benchHead
	hostInfo
	*verdict.Report
	markdown bool
}

func (d *verdictDocument) measured() bool { return d.Report != nil && len(d.Trials) > 0 }

// A verdictMatrix is that of the verdicts at one time on the faults in one place.
type verdictMatrix struct {
	name string
	verdict.Matrix
}

// matrices are those that there are.
func (d *verdictDocument) matrices() (list []verdictMatrix) {
	for _, lane := range []bool{false, true} {
		part, where := d.Part(lane), ""
		if len(part.Trials) == 0 {
			continue
		}
		if lane {
			where = ", in the lane"
		}
		list = append(list,
			verdictMatrix{"at the session's end" + where, part.Matrix(func(t *verdict.Trial) string { return t.End })},
			verdictMatrix{"live, over the session's last second" + where, part.Matrix(func(t *verdict.Trial) string { return t.Live })})
	}
	return list
}

// missed returns the bounds that are missed: those in the lane have the same.
func (d *verdictDocument) missed() (list []string) {
	for _, one := range d.matrices() {
		m, name := one.Matrix, one.name
		if right, all := m.Right(""); float64(right) < 0.92*float64(all) {
			list = append(list, fmt.Sprintf("%d of %d %s", right, all, name))
		}
		for want := range m {
			if right, all := m.Right(want); float64(right) < 0.8*float64(all) {
				list = append(list, fmt.Sprintf("%s: %d of %d %s", want, right, all, name))
			}
		}
	}
	slices.Sort(list)
	return list
}

// verdictPage writes the document for people.
type verdictPage struct {
	*page
	*verdictDocument
}

func (d *verdictDocument) print(e *cli.Env) {
	p := &verdictPage{newDocumentPage(e), d}
	p.page.markdown = d.markdown
	p.heading("Verdicts on sessions with a fault")
	f := d.benchHead.facts(d.network())
	f.add("method", "%d faults, drawn with seed %d; sessions of %v s; live verdicts on %v s; Reno for half of them, %s for the others",
		len(d.Trials), d.Seed, d.SessionS, d.WindowS, d.CongestionOwn)
	p.header(&d.benchHead, f)
	for _, m := range d.matrices() {
		p.matrix("Verdicts "+m.name+" (rows: the right one)", m.Matrix)
	}
	p.delays()
	p.wrong()
}

func (p *verdictPage) matrix(title string, m verdict.Matrix) {
	right, all := m.Right("")
	p.heading(fmt.Sprintf("%s: %d of %d right, %.1f %%", title, right, all, 100*float64(right)/float64(all)))
	names := m.Names()
	var t report.Table
	t.Row(append(append([]string{""}, names...), "right")...)
	for _, want := range names {
		right, all := m.Right(want)
		if all == 0 {
			continue
		}
		cells := []string{want}
		for _, given := range names {
			cells = append(cells, fmt.Sprint(m[want][given]))
		}
		t.Row(append(cells, fmt.Sprintf("%.0f %%", 100*float64(right)/float64(all)))...)
	}
	p.table(&t)
}

func (p *verdictPage) delays() {
	list := p.Delays()
	if len(list) == 0 {
		return
	}
	p.heading("Seconds from a fault in a running session to the right live verdict")
	var t report.Table
	t.Row("", "faults", "found", "median", "longest", "health check", "error rate")
	for _, d := range list {
		t.Row(string(d.Cause), fmt.Sprint(d.Faults), fmt.Sprint(d.Found), fmt.Sprintf("%.1f", d.Median), fmt.Sprintf("%.1f", d.Longest), fmt.Sprint(d.HealthCheck), fmt.Sprint(d.ErrorRate))
	}
	p.table(&t)
	p.prose("The last two columns are how many of the faults a health check of the endpoint every second, or the rate of failed connections, would have noticed in %v s.", 2*p.SessionS)
}

func (p *verdictPage) wrong() {
	for i := range p.Trials {
		if t := &p.Trials[i]; t.End != t.Want || t.Live != t.Want {
			p.prose("%v: at the end %s (%s); live %s (%s).", &t.Fault, t.End, t.EndWhy, t.Live, t.LiveWhy)
		}
	}
}
