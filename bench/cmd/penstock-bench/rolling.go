package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rolling"
	"github.com/penstock/penstock/proxy/cli"
)

// rollingCmd makes endpoints behind Penstock and other proxies restart, die and fall silent.
type rollingCmd struct {
	programFlag
	outFlag

	Quick        bool              `help:"Measure one round, with endpoints that are away for 1 s and 50 clients each second, which give up after 3 s. This takes about a minute."`
	Scenarios    names             `name:"scenario" placeholder:"NAME,..." help:"Measure these scenarios: rolling, pair, brief, single, refusing, resetting, mute, frozen (default: all)."`
	Peers        names             `placeholder:"NAME,..." help:"Measure these contestants: penstock, haproxy, haproxy-observe, nginx, nginx-tuned, penstock-checks, haproxy-checks (default: all that are installed). If a named contestant is not installed, the exit code is 1."`
	Rounds       *int              `placeholder:"N" help:"Measure every scenario this many times (default: 2)."`
	Seconds      *float64          `placeholder:"S" help:"Let an endpoint be away for this long. All other times change in proportion (default: 4)."`
	Binary       map[string]string `placeholder:"NAME=PATH" mapsep:"none" help:"Use this executable: haproxy=PATH, nginx=PATH. The flag may be repeated."`
	PrintConfigs bool              `help:"Print the configurations that the contestants would get, and exit."`
}

func (*rollingCmd) Help() string {
	return `Clients come at a steady rate, each with one request on its own connection. Meanwhile the
endpoints behind penstock run, HAProxy and nginx fail, for all of them at the same time:

    rolling    each of three endpoints in turn is away for 4 s, and back for 6 s
    pair       one of two endpoints is away for 4 s, back for 6 s, and then the other dies
    brief      as pair, but the first endpoint is away for 1 s
    single     the only endpoint is away for 1 s, and later for 1.9 s
    refusing   one of three endpoints refuses connections
    resetting  one of three endpoints accepts connections, and resets each at once
    mute       one of three endpoints accepts connections, and sends nothing
    frozen     one of three endpoints is stopped (SIGSTOP), and continues 20 s later

The report says how many clients got no answer, and how long the others waited. Contestants
with a name that ends in -checks send an HTTP check to their endpoints every second. They are
compared only with each other. A round takes three minutes.`
}

// Validate is called by kong once the flags are read.
func (c *rollingCmd) Validate() error {
	return cmp.Or(bounded("rounds", given(c.Rounds, 2), 1, 100), bounded("seconds", given(c.Seconds, 4), 0.05, 60), binaries(c.Binary, "haproxy", "nginx"))
}

func (c *rollingCmd) Run(e *cli.Env) error {
	count, away, rate, patience := 2, 4.0, 100.0, 10*time.Second
	if c.Quick {
		count, away, rate, patience = 1, 1, 50, 3*time.Second
	}
	s := rolling.Setup{
		Setting: contestant.Setting{Binaries: c.Binary}, Named: len(c.Peers) > 0,
		Away: time.Duration(given(c.Seconds, away) * float64(time.Second)), Rate: rate, Timeout: patience, Bytes: 1 << 10,
	}
	s.Scenarios = rolling.Scenarios(s.Away)
	var err error
	if len(c.Scenarios) > 0 {
		if s.Scenarios, err = choose("scenario", s.Scenarios, c.Scenarios, func(s rolling.Scenario) string { return s.Name }); err != nil {
			return cli.Usagef("--scenario: %w", err)
		}
	}
	s.Kinds = contestant.Balancing(runtime.NumCPU())
	if len(c.Peers) > 0 {
		if s.Kinds, err = choose("contestant", s.Kinds, c.Peers, func(k *contestant.Kind) string { return k.Name }); err != nil {
			return cli.Usagef("--peers: %w", err)
		}
	}
	if c.PrintConfigs {
		return printConfigs(context.Background(), e, s.Kinds, &contestant.Setting{Listen: "127.0.0.1:8000", Endpoints: []string{"127.0.0.1:8001", "127.0.0.1:8002"}})
	}
	if s.Setting.Program, err = c.program(); err != nil {
		return err
	}
	d := &rollingDocument{head: newHead(e, 2)}
	return c.measure(e, "rolling", d, func(ctx context.Context, dir string) (err error) {
		s.Setting.Dir, s.Setup = dir, d.rounds(e, given(c.Rounds, count))
		defer s.Group.Close()
		d.Report, err = rolling.Measure(ctx, s)
		return err
	})
}

// rollingDocument is the document of --json.
type rollingDocument struct {
	head
	*rolling.Report
}

func (d *rollingDocument) measured() bool {
	return d.Report != nil && len(d.Scenarios) > 0 && len(d.Scenarios[0].Cells) > 0 && d.Scenarios[0].Cells[0].Total != nil
}

func (d *rollingDocument) write(p *report.Page) {
	p.Heading("Endpoints that restart, die and fall silent")
	more := [][2]string{{"method", fmt.Sprintf("%s clients in a second for each contestant, all contestants at the same time; a client gives up after %s; %s",
		report.Count(d.ClientsPerS), seconds(d.TimeoutSeconds), report.Rounds(d.Rounds))}}
	for i := range d.Scenarios {
		more = append(more, [2]string{d.Scenarios[i].Scenario, d.Scenarios[i].About + "; " + seconds(d.Scenarios[i].Seconds)})
	}
	for _, c := range d.Contestants {
		more = append(more, [2]string{c.Name, strings.TrimSuffix(c.About+" ("+c.Version+")", " ()")})
	}
	for _, m := range d.Missing {
		more = append(more, [2]string{"not here", m})
	}
	p.Facts(&d.Head, d.Network(), more...)
	d.summary(p, "Clients lost", func(f *rolling.Figures) string { return report.Exact(f.Lost) })
	d.summary(p, "The longest wait of a client that was served", func(f *rolling.Figures) string { return seconds(f.Longest) })
	p.Heading("Beside the peer that lost fewest")
	var t report.Table
	t.Row("", "", "lost", "peer", "lost", "verdict")
	for _, s := range d.Standings {
		peer, lost := report.Unknown, report.Unknown
		if s.Peer != "" {
			peer, lost = s.Peer, report.Exact(s.PeerLost)
		}
		t.Row(s.Scenario, s.Contestant, report.Exact(s.Lost), peer, lost, string(s.Verdict))
	}
	p.Table(&t)
	for i := range d.Scenarios {
		if r := &d.Scenarios[i]; r.Cells[0].Total != nil {
			d.scenario(p, r)
		}
	}
	p.Heading("How to read it")
	p.Prose(`A client is lost if it does not get its whole answer: it is refused, reset, gets no answer, or gives up. Times are of the clients that were served,
		from the scheduled beginning of the client to the first byte of its answer: p50 and p99 are medians of the rounds, longest is the longest of all rounds. under way: clients that were
		connected when an endpoint failed, perhaps to this endpoint. They are not counted as lost. The endpoints of all
		contestants fail at the same moment. Contestants with a name that ends in -checks check their endpoints by HTTP, and are compared only with each other. If both contestants
		lost clients, a difference of less than the square root of the sum is chance.`)
}

// summary writes a table of one figure. It has a row for each contestant, and a column for each scenario.
func (d *rollingDocument) summary(p *report.Page, title string, figure func(*rolling.Figures) string) {
	p.Heading("%s", title)
	var t report.Table
	row := []string{""}
	for i := range d.Scenarios {
		row = append(row, d.Scenarios[i].Scenario)
	}
	t.Row(row...)
	for j, c := range d.Contestants {
		row := []string{c.Name}
		for i := range d.Scenarios {
			text := report.Unknown
			if total := d.Scenarios[i].Cells[j].Total; total != nil {
				text = figure(total)
			}
			row = append(row, text)
		}
		t.Row(row...)
	}
	p.Table(&t)
}

func (d *rollingDocument) scenario(p *report.Page, r *rolling.Result) {
	p.Heading("%s: %s", r.Scenario, r.About)
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
	p.Table(&t)
}
