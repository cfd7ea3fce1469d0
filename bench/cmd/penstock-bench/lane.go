package main

import (
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/network"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// laneCmd measures sessions that have left user space beside other proxies.
type laneCmd struct {
	runFlags

	Quick     bool         `help:"Measure only bulk-8, echo-64-64 and connections, in 4 rounds of 0.4 s."`
	Scenarios names        `placeholder:"NAME,..." help:"Measure these scenarios: bulk-1, bulk-8, bulk-64, echo-64-1, echo-64-64, echo-4096-64, connections, or the beginning of names, for all scenarios that begin so (default: all)."`
	Network   network.Kind `default:"loopback" enum:"loopback,veth,loss" placeholder:"loopback|veth|loss" help:"Put the load, the contestants and the sink on one host (loopback), in three network namespaces joined by veth (veth), or in such namespaces with a link to the client that loses 1 % (loss) (default: ${default})."`
	Peers     names        `placeholder:"NAME,..." help:"Measure these contestants beside penstock-run-lane, as in penstock-bench run (default: direct, penstock-run, io.Copy, and, if installed, haproxy-1, haproxy-2, haproxy-splice-1, haproxy-splice-2, nginx and envoy)."`
	Warmup    *float64     `placeholder:"S" help:"Warm up for this many seconds, in which sessions leave user space. Trials of streams warm up three times as long, and trials of connections do not warm up (default: 1)."`
}

// Help returns the text that kong prints below the summary.
func (*laneCmd) Help() string {
	return `penstock run with lane: auto is measured in pairs with each other contestant. The command
needs root. If the process cannot have a lane, the command says why and ends. All contestants
are started again for each trial, because the programs of the lane see the packets of the
others too.

Trials of messages and streams begin with a warmup, in which sessions leave user space. The
command reads the counters of the process at the end of the warmup and of the trial. If the
lane carried less than 90 % of the bytes between them, the figures are void, and the exit
code is 1. The share is in the report, and for each trial in the JSON (lane_share).

The sessions of the scenario connections are too short to leave user space: it shows what
the lane costs sessions that do not use it.

Up to 100 ns of CPU per request count as no CPU.

With --network veth and loss there are no bounds. The contestant direct, without a proxy,
forwards packets on the host of the proxy.`
}

// The defaults of the flags.
var (
	lanePeers = []string{"direct", contestant.RunName, "io.Copy", "haproxy-1", "haproxy-2", "haproxy-splice-1", "haproxy-splice-2", "nginx", "envoy"}
	laneQuick = names{"bulk-8", "echo-64-64", "connections"}
)

// Run measures, reports and judges.
func (c *laneCmd) Run(e *cli.Env) error {
	choice := choice{rounds: 6, seconds: 1, idle: 1, peers: lanePeers, named: c.Peers, baseline: contestant.LaneName, network: c.Network}
	names := c.Scenarios
	if c.Quick {
		choice.rounds, choice.seconds = 4, 0.4
		if len(names) == 0 {
			names = laneQuick
		}
	}
	warmup := given(c.Warmup, bench.LaneWarmup.Seconds())
	if err := bounded("warmup", warmup, 0.01, 3600); err != nil {
		return err
	}
	choice.scenarios = bench.LaneScenarios(time.Duration(warmup * float64(time.Second)))
	if len(names) > 0 {
		var err error
		if choice.scenarios, err = bench.ChooseAmong(choice.scenarios, names); err != nil {
			return cli.Usagef("--scenarios: %w", err)
		}
	}
	return c.carryOut(e, "lane", choice, func(doc *report.Document) {
		if c.Network == network.Loopback { // the goals are for loopback
			doc.Judge(report.LaneGoals())
		}
	})
}
