package main

import (
	"context"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// The defaults of the flags.
var (
	balancerPeers     = names{contestant.RunName, contestant.RealisticName}
	balancerScenarios = names{"bulk", "echo", "connections", "idle", "correctness"}
	balancerQuick     = names{"bulk-8", "echo-64-64", "connections"}
)

// balancerServer is the name by which the realistic file routes.
const balancerServer = "bench.example"

// Run measures, reports, and judges if it is asked to.
func (c *balancerCmd) Run(e *cli.Env) error {
	ctx, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)
	go interruptOn(ctx, e.Stops, interrupt)
	bare := c.bare()
	run, doc, err := bare.plan(ctx)
	if err != nil {
		return err
	}
	if !c.Plain {
		run.ServerName, run.Preamble = balancerServer, bench.ClientHello(balancerServer)
	}
	return bare.carryOut(ctx, e, "balancer", run, doc, func(error) { c.judge(doc) })
}

// bare is penstock-bench run with the same flags.
func (c *balancerCmd) bare() *benchRunCmd {
	rounds, seconds, scenarios := 8, 0.5, balancerScenarios
	if c.Quick {
		rounds, seconds, scenarios = 4, 0.4, balancerQuick
	}
	if len(c.Scenarios) > 0 {
		scenarios = c.Scenarios
	}
	rounds, seconds = given(c.Rounds, rounds), given(c.Seconds, seconds)
	return &benchRunCmd{
		programFlag: c.programFlag,
		Scenarios:   scenarios, Peers: balancerPeers, Baseline: "penstock", Rounds: &rounds, Seconds: &seconds,
		Syscalls: c.Syscalls, JSON: c.JSON, Format: c.Format, PrintConfigs: c.PrintConfigs,
	}
}

// judge compares. There is no other peer that Penstock could be beside.
func (c *balancerCmd) judge(doc *report.Document) {
	doc.Standings = nil
	doc.Compare()
	if c.Strict {
		doc.Failures = append(doc.Failures, doc.Differences()...)
	}
}
