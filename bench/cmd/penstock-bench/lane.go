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

	Quick     bool         `help:"Measure bulk-8, echo-64-64 and connections alone, in 4 rounds of 0.4 s."`
	Scenarios names        `placeholder:"NAME,..." help:"Measure these scenarios: bulk-1, bulk-8, bulk-64, echo-64-1, echo-64-64, echo-4096-64, connections, or the beginning of a name for all that share it (default: all)."`
	Network   network.Kind `default:"loopback" enum:"loopback,veth,loss" placeholder:"loopback|veth|loss" help:"Put the load, the contestants and the sink on one host, in three network namespaces joined by veth, or in those with a link to the client that loses 1 % (default: ${default})."`
	Peers     names        `placeholder:"NAME,..." help:"Measure these contestants beside penstock-run-lane, as in penstock-bench run (default: direct, penstock-run, io.Copy, and those that are installed of haproxy-1, haproxy-2, haproxy-splice-1, haproxy-splice-2, nginx and envoy)."`
	Warmup    *float64     `placeholder:"S" help:"Let sessions leave user space for this many seconds before those that count; trials of streams have three times as much, connections none (default: 1)."`
}

// Help returns the text that kong prints below the summary.
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
	if !(warmup >= 0.01) || warmup > 3600 {
		return cli.Usagef("--warmup %v: write 0.01 or more, and at most 3600", warmup)
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
			doc.JudgeBy(report.LaneGoals())
		}
	})
}
