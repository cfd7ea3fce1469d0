package main

import (
	"context"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/network"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// laneCmd measures sessions that have left user space beside other proxies.
type laneCmd struct {
	programFlag

	Quick     bool              `help:"bulk-8, echo-64-64 and connections; 4 rounds of 0.4 s."`
	Scenarios names             `placeholder:"NAME,..." help:"Of bulk-1, bulk-8, bulk-64, echo-64-1, echo-64-64, echo-4096-64, connections, or the beginning of a name for all that share it (default: all)."`
	Network   network.Kind      `default:"loopback" enum:"loopback,veth,loss" placeholder:"loopback|veth|loss" help:"Of the load, the contestants and the sink: one host, three network namespaces joined by veth, or those with a link to the client that loses 1 % (default: ${default})."`
	Peers     names             `placeholder:"NAME,..." help:"Contestants beside penstock-run-lane, as in penstock-bench run (default: direct, penstock-run, io.Copy, and those that are installed of haproxy-1, haproxy-2, haproxy-splice-1, haproxy-splice-2, nginx and envoy)."`
	Rounds    *int              `placeholder:"N" help:"Rounds; an even number lets each go first as often (default: 6)."`
	Seconds   *float64          `placeholder:"S" help:"Seconds of each trial that count (default: 1)."`
	Warmup    *float64          `placeholder:"S" help:"Seconds before those, in which sessions leave user space; trials of streams have three times as much, connections none (default: 1)."`
	Binary    map[string]string `placeholder:"NAME=PATH" mapsep:"none" help:"An executable to use: haproxy=PATH, nginx=PATH, envoy=PATH; repeats."`

	PrintConfigs bool   `help:"Print the configurations that the contestants would get, and end."`
	JSON         string `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
	SVG          string `name:"svg" placeholder:"FILE" help:"Draw the ratios."`
	Format       string `default:"text" enum:"text,markdown" placeholder:"text|markdown" help:"Of the report (default: ${default})."`
}

// Help is kong's text below the summary.
func (*laneCmd) Help() string {
	return `penstock run with lane: auto is measured right beside each other contestant, in pairs. It
takes root. A process that has no lane is refused, with the reason. It is started anew for
each trial, since its programs see the packets of the others, too; and so are those.

Trials of messages and streams have a warmup in which sessions leave user space. The process's
own account is read at its end and at the end of the trial: where sessions that have left
carried less than 90 % of the bytes in between the figures are void, and the exit code is 1.
The share is in the report, and in the JSON by trial (lane_share).

Connections are too short to leave: there it shows what it costs that they could have.

CPU of the process counts as none up to 100 ns per request.

With --network veth and loss there are no bounds, and without a proxy the proxy's host
forwards packets.`
}

// The defaults of the flags.
var (
	lanePeers = names{"direct", contestant.RunName, "io.Copy", "haproxy-1", "haproxy-2", "haproxy-splice-1", "haproxy-splice-2", "nginx", "envoy"}
	laneQuick = names{"bulk-8", "echo-64-64", "connections"}
)

// Run measures, reports and judges.
func (c *laneCmd) Run(e *cli.Env) error {
	ctx, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)
	go interruptOn(ctx, e.Stops, interrupt)
	bare := c.bare()
	run, doc, err := c.plan(ctx, bare)
	if err != nil {
		return err
	}
	return bare.carryOut(ctx, e, "lane", run, doc, func(error) {
		if c.Network == network.Loopback { // the bounds are of it
			doc.JudgeBy(report.LaneGoals())
		}
	})
}

// bare is penstock-bench run with the same flags, but without scenarios.
func (c *laneCmd) bare() *benchRunCmd {
	rounds, seconds := 6, 1.0
	if c.Quick {
		rounds, seconds = 4, 0.4
	}
	rounds, seconds = given(c.Rounds, rounds), given(c.Seconds, seconds)
	return &benchRunCmd{
		programFlag: c.programFlag, Peers: c.Peers, Baseline: contestant.LaneName, Rounds: &rounds, Seconds: &seconds,
		Binary: c.Binary, JSON: c.JSON, SVG: c.SVG, Format: c.Format, PrintConfigs: c.PrintConfigs,
	}
}

// plan is the run of the flags. Peers that are not named may be missing.
func (c *laneCmd) plan(ctx context.Context, bare *benchRunCmd) (*bench.Run, *report.Document, error) {
	chosen := c.Scenarios
	if c.Quick && len(chosen) == 0 {
		chosen = laneQuick
	}
	warmup := given(c.Warmup, bench.LaneWarmup.Seconds())
	if !(warmup >= 0.01) || warmup > 3600 {
		return nil, nil, cli.Usagef("--warmup %v: write 0.01 or more, and at most 3600", warmup)
	}
	scenarios := bench.LaneScenarios(time.Duration(warmup * float64(time.Second)))
	if len(chosen) > 0 {
		var err error
		if scenarios, err = bench.ChooseAmong(scenarios, chosen); err != nil {
			return nil, nil, cli.Usagef("--scenarios: %w", err)
		}
	}
	run, doc, err := bare.planned(ctx, *bare.Rounds, *bare.Seconds, nil, lanePeers)
	if err == nil {
		run.Scenarios, run.Network = scenarios, c.Network
	}
	return run, doc, err
}
