package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/soak"
	"github.com/penstock/penstock/proxy/cli"
)

// soakFormat is the number of the document's form.
const soakFormat = 1

// soakProgress is how often a line of progress is written.
const soakProgress = 5 * time.Second

// soakDocument is the document of --json.
type soakDocument struct {
	benchHead
	*soak.Report
}

// measured reports whether there is anything.
func (d *soakDocument) measured() bool { return d.Report != nil }

// Run soaks and reports.
func (c *soakCmd) Run(e *cli.Env) error {
	d := &soakDocument{benchHead: newBenchHead(e, soakFormat)}
	return measureDocument(e, "soak", c.JSON, d, func(ctx context.Context) error {
		var err error
		d.Report, err = c.soak(ctx, e)
		if err == nil && len(d.Violations) > 0 {
			err = fmt.Errorf("seed %d: %s", d.Seed, d.Violations[0])
		}
		return err
	})
}

// soak does it.
func (c *soakCmd) soak(ctx context.Context, e *cli.Env) (*soak.Report, error) {
	program, err := c.program()
	if err != nil {
		return nil, err
	}
	cfg := &soak.Config{
		Program: program, Flags: []string{"--engine", c.Engine}, Lane: c.Lane, Messages: c.Messages,
		Duration: c.Duration.Duration(), Connections: c.Connections, Seed: given(c.Seed, uint64(rand.Uint32())),
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
	until := fmt.Sprintf("for %v", cfg.Duration)
	if c.Messages > 0 {
		until = fmt.Sprintf("until %s messages have come", report.Exact(c.Messages))
	}
	fmt.Fprintf(e.Stderr, "seed %d: %d connections at once %s, and a proxy that is a process of its own. Ctrl-C ends it.\n",
		cfg.Seed, cfg.Connections, until)
	if c.Lane {
		cfg.Flags = nil
		return soak.RunAlone(ctx, cfg)
	}
	return soak.Run(ctx, cfg)
}

// tellSoak writes a line of progress.
func tellSoak(e *cli.Env, p soak.Progress) {
	fmt.Fprintf(e.Stderr, "%6s  round %d  %s connections opened, %d active, %s sends have come, RssAnon %s\n",
		p.Elapsed.Round(time.Second), p.Round, report.Exact(p.Opened), p.Active, report.Exact(p.Arrived), report.Bytes(float64(p.RssAnon)))
}
