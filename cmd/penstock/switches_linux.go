package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/switches"
	"github.com/penstock/penstock/bench/syscalls"
)

// Run measures and reports.
func (c *switchesCmd) Run(e *env) error {
	ctx, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)
	go interruptOn(ctx, e.stops, interrupt)
	if err := c.run(ctx, e); err != nil {
		return fmt.Errorf("bench switches: %w", err)
	}
	return nil
}

// run measures, prints the report and writes the figures, also of what was
// measured until a signal.
func (c *switchesCmd) run(ctx context.Context, e *env) error {
	o := &outputs{report: e.stdout}
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
	newSwitchesReport(&to, d).print()
	if o.json != nil {
		text, failed := json.MarshalIndent(d, "", "  ")
		if failed == nil {
			_, failed = o.json.Write(append(text, '\n'))
		}
		err = cmp.Or(err, failed)
	}
	return cmp.Or(err, o.close())
}

// measure compares the servers, in a network namespace of their own if that may
// be.
func (c *switchesCmd) measure(ctx context.Context, e *env) (*switchesDocument, error) {
	program, err := thisProgram()
	if err != nil {
		return nil, err
	}
	d := &switchesDocument{
		Format: switchesFormat, Penstock: version(), Command: strings.Join(append([]string{"penstock"}, e.args...), " "),
		Began: time.Now(), Machine: bench.Machine(), NetworkNamespace: true,
	}
	group, err := process.NewIsolatedGroup()
	if err != nil {
		d.NetworkNamespace, d.NamespaceMissing = false, err.Error()
		group = process.NewGroup()
	}
	defer group.Close()
	setup := switches.Setup{
		Group:       group,
		Load:        program.Spec("the load", program.Part, bench.PartLoad),
		Server:      func(part string) process.Spec { return program.Spec(part, program.Part, part) },
		Isolated:    d.NetworkNamespace,
		Connections: c.Connections,
		Rounds:      c.Rounds,
		Window:      max(time.Duration(c.Seconds*float64(time.Second)), time.Millisecond),
		Watch:       func(p switches.Progress) { printTrial(e, &p) },
	}
	if counter, err := syscalls.Find(); err == nil {
		setup.Counter = counter
	} else {
		d.CounterMissing = err.Error()
	}
	fmt.Fprintln(e.stderr, "Servers and a load, each a process of its own. Ctrl-C ends it and reports what was measured until then.")
	d.Report, err = switches.Measure(ctx, setup)
	d.ElapsedSeconds = report.Number(time.Since(d.Began).Seconds())
	return d, err
}
