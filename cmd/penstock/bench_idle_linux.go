package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/million"
	"github.com/penstock/penstock/bench/observed"
)

const (
	// idleMessage is how long a message is, in bytes.
	idleMessage = 1 << 10
	// idleShare is one in how many sessions talks.
	idleShare = 100
)

// Run measures and reports.
func (c *idleCmd) Run(e *env) error {
	ctx, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)
	go interruptOn(ctx, e.stops, interrupt)
	if err := c.run(ctx, e); err != nil {
		return fmt.Errorf("bench idle: %w", err)
	}
	return nil
}

// run measures, prints the report and writes the figures, also of what was
// measured until a signal.
func (c *idleCmd) run(ctx context.Context, e *env) error {
	o := new(outputs)
	var err error // a wrong name should not cost a measurement
	if o.json, err = o.file(e, c.JSON); err != nil {
		return err
	}
	d, err := c.measure(ctx, e)
	if err != nil && (d == nil || !d.measured()) {
		return errors.Join(err, o.close())
	}
	d.Interrupted = errors.Is(err, errInterrupted)
	to := *e
	if c.JSON == "-" {
		to.stdout = e.stderr
	}
	newIdlePage(&to, d).print()
	if o.json != nil {
		text, failed := json.MarshalIndent(d, "", "  ")
		if failed == nil {
			_, failed = o.json.Write(append(text, '\n'))
		}
		err = cmp.Or(err, failed)
	}
	return cmp.Or(err, o.close())
}

// measure compares the proxies.
func (c *idleCmd) measure(ctx context.Context, e *env) (*idleDocument, error) {
	program, err := thisProgram()
	if err != nil {
		return nil, err
	}
	d := &idleDocument{
		Format: idleFormat, Penstock: version(), Command: commandLine(e.args), Began: time.Now(), Machine: bench.Machine(),
	}
	most := c.Sessions + idleShare                          // never met: what is measured is no pause of accepting
	gc := fmt.Sprintf("GOGC=%d", gcPercent(defaultLoops())) // as penstock proxy does
	goroutinesGC := fmt.Sprintf("GOGC=%d", gcPercent(-1))
	s := &bench.Sessions{
		Program: program, Sessions: c.Sessions, Rounds: c.Rounds, Quiet: fromSeconds(c.Rest),
		Talk: load.Talk{Connections: given(c.Talking, max(c.Sessions/idleShare, 1)), Size: idleMessage, Duration: fromSeconds(c.Seconds)},
		Contestants: []*contestant.Kind{
			contestant.Observed(observed.Goroutines, "two goroutines for a session, each with a buffer of 32 KiB", most),
			contestant.Observed(observed.PenstockGoroutines, "Penstock without loops: two goroutines for a session, and a buffer for as long as bytes are in flight", most, goroutinesGC),
			contestant.Observed(observed.Penstock, "Penstock with its default settings", most, gc),
		},
		Watch: func(s bench.SessionsStep) { printSessions(e, &s) },
	}
	fmt.Fprintln(e.stderr, "Clients, servers and a proxy, each a process of its own. Ctrl-C ends it and reports what was measured until then.")
	err = s.Do(ctx, &d.SessionsReport)
	if err == nil && c.Simulated > 0 {
		d.Simulated = new(million.Report)
		err = simulate(ctx, e, &program, c.Simulated, gc, d.Simulated)
	}
	d.ElapsedSeconds = secondsSince(d.Began)
	return d, err
}

// fromSeconds is at least a millisecond.
func fromSeconds(s float64) time.Duration {
	return max(time.Duration(s*float64(time.Second)), time.Millisecond)
}
