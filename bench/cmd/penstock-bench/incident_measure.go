package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/incident"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/proxy/cli"
)

// Run measures, reports, and judges if it is asked to.
func (c *incidentCmd) Run(e *cli.Env) error {
	failures, modes, err := c.chosen()
	if err != nil {
		return err
	}
	d := &incidentDocument{benchHead: newBenchHead(e, incidentFormat)}
	if c.PrintConfigs {
		return c.printConfigs(e, modes)
	}
	o := new(outputs)
	if o.svg, err = o.file(e, c.SVG); err != nil {
		return fmt.Errorf("incident: %w", err)
	}
	to := *e
	if c.SVG == "-" {
		to.Stdout = e.Stderr
	}
	err = measureDocument(&to, "incident", c.JSON, d, func(ctx context.Context) error { return c.measure(ctx, e, d, failures, modes) })
	if o.svg != nil && d.measured() {
		err = errors.Join(err, d.draw(o.svg))
	}
	if err := errors.Join(err, o.close()); err != nil {
		return err
	}
	return c.judge(d)
}

// draw draws the results.
func (d *incidentDocument) draw(w io.Writer) error {
	return d.Picture(d.about()...).WriteSVG(w)
}

// chosen are the failures and the configurations that the flags name.
func (c *incidentCmd) chosen() (failures []endpoint.Failure, modes []incident.Mode, err error) {
	wanted, files := c.Failures, c.Modes
	switch {
	case len(wanted) > 0:
	case c.Quick:
		wanted = names{string(endpoint.Silent)}
	default:
		for _, f := range incident.Failures {
			wanted = append(wanted, string(f))
		}
	}
	switch {
	case len(files) > 0:
	case c.Quick:
		files = names{incident.Off, incident.On}
	default:
		files = names{incident.Off, incident.Defaults, incident.On}
	}
	for _, name := range wanted {
		f, err := incident.ParseFailure(name)
		if err != nil {
			return nil, nil, cli.Usagef("--failures: %w", err)
		}
		if !slices.Contains(failures, f) {
			failures = append(failures, f)
		}
	}
	for _, name := range files {
		if _, err := incident.ModeNamed(name); err != nil {
			return nil, nil, cli.Usagef("--modes: %w", err)
		}
	}
	for _, m := range incident.Modes() {
		if slices.Contains(files, m.Name) {
			modes = append(modes, m)
		}
	}
	return failures, modes, nil
}

// measure has it all happen.
func (c *incidentCmd) measure(ctx context.Context, e *cli.Env, d *incidentDocument, failures []endpoint.Failure, modes []incident.Mode) error {
	program, err := c.program()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "penstock-incident-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	group := d.group()
	defer group.Close()
	before, during, after, patience := 5*time.Second, 40*time.Second, 10*time.Second, 7*time.Second
	if c.Quick {
		before, during, after, patience = 2*time.Second, 6*time.Second, 3*time.Second, 2*time.Second
	}
	setup := incident.Setup{
		Setup: inRounds(e, group, 1), Dir: dir,
		Part:     func(part string) process.Spec { return program.Spec(part, program.Part, part) },
		Run:      func(args ...string) process.Spec { return program.Penstock("penstock run", program.Run, args...) },
		Failures: failures, Modes: modes,
		Endpoints: c.Endpoints, Failing: c.failing(), Rate: c.Rate, Service: c.Service.Duration(), Delay: c.Delay.Duration(),
		Timeout: given(c.Timeout, cli.Timeout(patience)).Duration(), FirstByte: c.FirstByte.Duration(), Within: c.Within.Duration(), Bytes: incidentAnswer,
		Before: given(c.Before, cli.Timeout(before)).Duration(), During: given(c.During, cli.Timeout(during)).Duration(), After: given(c.After, cli.Timeout(after)).Duration(),
	}
	announce(e, "Endpoints, penstock run and a load, each a process of its own")
	d.Report, err = incident.Measure(ctx, setup)
	return err
}

// incidentAnswer is how many bytes an answer's body has.
const incidentAnswer = 1 << 10

// printConfigs prints the files, with endpoints that do not exist.
func (c *incidentCmd) printConfigs(e *cli.Env, modes []incident.Mode) error {
	at := make([]string, c.Endpoints)
	for i := range at {
		at[i] = fmt.Sprintf("127.0.0.1:%d", 8001+i)
	}
	for i := range modes {
		m := &modes[i]
		if _, err := fmt.Fprintf(e.Stdout, "# %s: %s\n%s\n\n", m.Name, m.About, strings.TrimSpace(m.File("127.0.0.1:8000", at, c.FirstByte.Duration(), c.Within.Duration()))); err != nil {
			return err
		}
	}
	return nil
}

// judge fails where a bound is missed, if it is asked to.
func (c *incidentCmd) judge(d *incidentDocument) error {
	if !c.Strict {
		return nil
	}
	if missed := d.missed(); len(missed) > 0 {
		return fmt.Errorf("incident: missed: %s", strings.Join(missed, "; "))
	}
	return nil
}
