package main

import (
	"context"
	"os"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/iperf3"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// iperf3Peers are the proxies that a flow goes through; the others are divided by the first.
var iperf3Peers = []string{"penstock", "haproxy-splice-1", "io.Copy", "direct"}

// Run measures and reports.
func (c *iperf3Cmd) Run(e *cli.Env) error {
	d := &iperf3Document{benchHead: newBenchHead(e, iperf3Format)}
	return measureDocument(e, "iperf3", c.JSON, d, func(ctx context.Context) error { return c.measure(ctx, e, d) })
}

// measure compares the proxies.
func (c *iperf3Cmd) measure(ctx context.Context, e *cli.Env, d *iperf3Document) error {
	path, err := iperf3.Find()
	if err != nil {
		return err
	}
	program, err := c.program()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	group := d.group()
	defer group.Close()
	setup := iperf3.Setup{
		Setup: inRounds(e, group, c.Rounds), Program: program, Dir: dir, Path: path,
		Flow: time.Duration(c.Seconds) * time.Second,
	}
	if setup.Kinds, err = d.peers(ctx); err != nil {
		return err
	}
	if counter, found := d.counter(c.Syscalls); found {
		setup.Counter = counter
	}
	announce(e, "iperf3 and a proxy, each a process of its own")
	d.Report, err = iperf3.Measure(ctx, setup)
	return err
}

// peers are those that are here.
func (d *iperf3Document) peers(ctx context.Context) (kinds []*contestant.Kind, err error) {
	for _, name := range iperf3Peers {
		k, err := contestant.Named(name)
		if err != nil {
			return nil, err
		}
		s := new(contestant.Setting)
		if err := k.Available(ctx, s); err != nil {
			d.LeftOut = append(d.LeftOut, report.LeftOut{Name: name, Reason: err.Error()})
			continue
		}
		kinds = append(kinds, k)
	}
	return kinds, context.Cause(ctx)
}
