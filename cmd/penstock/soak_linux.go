package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/soak"
)

// soakFormat is the number of the document's form. A field may be added to a
// form; a change of what a field means, or its loss, is a new number.
const soakFormat = 1

// soakProgress is how often a line of progress is written.
const soakProgress = 5 * time.Second

// soakDocument is what --json writes.
type soakDocument struct {
	Format      int            `json:"format"`
	Penstock    string         `json:"penstock"` // the version of the program
	Command     string         `json:"command"`
	Began       time.Time      `json:"began"`
	Interrupted bool           `json:"interrupted"`
	Machine     report.Machine `json:"machine"`
	*soak.Report
}

// Run soaks and reports.
func (c *soakCmd) Run(e *env) error {
	ctx, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)
	go interruptOn(ctx, e.stops, interrupt)
	if err := c.run(ctx, e); err != nil {
		return fmt.Errorf("bench soak: %w", err)
	}
	return nil
}

// run soaks, prints the report and writes the figures, also of what was done until
// a signal.
func (c *soakCmd) run(ctx context.Context, e *env) error {
	o := new(outputs)
	var err error
	if o.json, err = o.file(e, c.JSON); err != nil {
		return err
	}
	d := &soakDocument{
		Format: soakFormat, Penstock: version(), Command: commandLine(e.args), Began: time.Now(), Machine: bench.Machine(),
	}
	d.Report, err = c.soak(ctx, e)
	if d.Report == nil {
		return errors.Join(err, o.close())
	}
	d.Interrupted = errors.Is(err, errInterrupted)
	to := *e
	if c.JSON == "-" {
		to.stdout = e.stderr
	}
	printSoak(&to, d)
	if o.json != nil {
		text, failed := json.MarshalIndent(d, "", "  ")
		if failed == nil {
			_, failed = o.json.Write(append(text, '\n'))
		}
		err = cmp.Or(err, failed)
	}
	if n := len(d.Violations); n > 0 {
		err = cmp.Or(err, fmt.Errorf("seed %d: %s", d.Seed, d.Violations[0]))
	}
	return cmp.Or(err, o.close())
}

// soak does it.
func (c *soakCmd) soak(ctx context.Context, e *env) (*soak.Report, error) {
	program, err := thisProgram()
	if err != nil {
		return nil, err
	}
	cfg := &soak.Config{
		Program: program, Flags: []string{"--engine", c.Engine},
		Duration: c.Duration.duration(), Connections: c.Connections, Seed: given(c.Seed, uint64(rand.Uint32())),
	}
	if c.Loops != nil {
		cfg.Flags = append(cfg.Flags, "--loops", strconv.Itoa(*c.Loops))
	}
	next := soakProgress
	cfg.Watch = func(p soak.Progress) {
		if p.Elapsed >= next {
			next = p.Elapsed + soakProgress
			tellSoak(e, p)
		}
	}
	fmt.Fprintf(e.stderr, "seed %d: %d connections at once for %v, and a proxy that is a process of its own. Ctrl-C ends it.\n",
		cfg.Seed, cfg.Connections, cfg.Duration)
	return soak.Run(ctx, cfg)
}

// tellSoak writes a line of progress.
func tellSoak(e *env, p soak.Progress) {
	fmt.Fprintf(e.stderr, "%6s  round %d  %s connections opened, %d active, RssAnon %s\n",
		p.Elapsed.Round(time.Second), p.Round, report.Exact(p.Opened), p.Active, report.Bytes(float64(p.RssAnon)))
}
