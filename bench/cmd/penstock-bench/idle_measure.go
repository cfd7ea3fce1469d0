package main

import (
	"context"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/million"
	"github.com/penstock/penstock/bench/observed"
	"github.com/penstock/penstock/proxy/cli"
)

const (
	// idleMessage is how long a message is, in bytes.
	idleMessage = 1 << 10
	// idleShare is one in how many sessions talks.
	idleShare = 100
)

// Run measures and reports.
func (c *idleCmd) Run(e *cli.Env) error {
	d := &idleDocument{benchHead: newBenchHead(e, idleFormat)}
	return measureDocument(e, "idle", c.JSON, d, func(ctx context.Context) error { return c.measure(ctx, e, d) })
}

// measure compares the proxies.
func (c *idleCmd) measure(ctx context.Context, e *cli.Env, d *idleDocument) error {
	program, err := thisProgram()
	if err != nil {
		return err
	}
	most := c.Sessions + idleShare                 // never met: no pause of accepting is measured
	const gc, goroutinesGC = "GOGC=200", "GOGC=50" // as penstock does; goroutines leave more garbage
	s := &bench.Sessions{
		Program: program, Sessions: c.Sessions, Rounds: c.Rounds, Quiet: fromSeconds(c.Rest),
		Talk: load.Talk{Connections: given(c.Talking, max(c.Sessions/idleShare, 1)), Size: idleMessage, Duration: fromSeconds(c.Seconds)},
		Contestants: []*contestant.Kind{
			contestant.Observed(observed.Goroutines, "two goroutines for a session, each with a buffer of 32 KiB", most),
			contestant.Observed(observed.Relay, "package relay: two goroutines for a session, and a buffer for as long as bytes are in flight", most, goroutinesGC),
			contestant.Observed(observed.Penstock, "Penstock with its default settings", most, gc),
		},
		Watch: func(s bench.SessionsStep) { printSessions(e, &s) },
	}
	announce(e, "Clients, servers and a proxy, each a process of its own")
	err = s.Do(ctx, &d.SessionsReport)
	if err == nil && c.Simulated > 0 {
		d.Simulated = new(million.Report)
		err = simulate(ctx, e, &program, c.Simulated, gc, d.Simulated)
	}
	return err
}

// fromSeconds is at least a millisecond.
func fromSeconds(s float64) time.Duration {
	return max(time.Duration(s*float64(time.Second)), time.Millisecond)
}
