package main

import (
	"context"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/switches"
	"github.com/penstock/penstock/proxy/cli"
)

// Run measures and reports.
func (c *switchesCmd) Run(e *cli.Env) error {
	d := &switchesDocument{benchHead: newBenchHead(e, switchesFormat)}
	return measureDocument(e, "switches", c.JSON, d, func(ctx context.Context) error { return c.measure(ctx, e, d) })
}

// measure compares the servers, in a network namespace of their own if that may
// be.
func (c *switchesCmd) measure(ctx context.Context, e *cli.Env, d *switchesDocument) error {
	program, err := thisProgram()
	if err != nil {
		return err
	}
	group := d.group()
	defer group.Close()
	setup := switches.Setup{
		Setup:       inRounds(e, group, c.Rounds),
		Load:        program.Spec("the load", program.Part, bench.PartLoad),
		Server:      func(part string) process.Spec { return program.Spec(part, program.Part, part) },
		Isolated:    d.NetworkNamespace,
		Connections: c.Connections,
		Window:      max(time.Duration(c.Seconds*float64(time.Second)), time.Millisecond),
	}
	if counter, found := d.counter(true); found {
		setup.Counter = counter
	}
	announce(e, "Servers and a load, each a process of its own")
	d.Report, err = switches.Measure(ctx, setup)
	return err
}
