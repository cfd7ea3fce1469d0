package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/syscalls"
	"github.com/penstock/penstock/bench/write"
	"github.com/penstock/penstock/proxy/cli"
)

// Run measures and reports.
func (c *writeCmd) Run(e *cli.Env) error {
	d := &writeDocument{benchHead: newBenchHead(e, writeFormat), Profiles: c.Profile}
	return measureDocument(e, "write", c.JSON, d, func(ctx context.Context) error { return c.measure(ctx, e, d) })
}

// writeSizes are the lengths of pieces unless the flags say otherwise.
var writeSizes = []cli.Size{64, 256, 1300, 4 << 10, 16 << 10, 64 << 10}

// shapes returns the shapes of the flags.
func (c *writeCmd) shapes() (all []write.Shape) {
	sizes := c.Sizes
	if len(sizes) == 0 {
		sizes = writeSizes
	}
	for _, n := range sizes {
		all = append(all, write.Equal(int(n)))
	}
	if c.Message {
		all = append(all, write.Message())
	}
	return all
}

// setup returns the setup of the flags, in a group.
func (c *writeCmd) setup(e *cli.Env, group *process.Group) (write.Setup, error) {
	program, err := thisProgram()
	if err != nil {
		return write.Setup{}, err
	}
	rounds, total, exchanges := 4, cli.Size(256<<20), 100
	if c.Quick {
		rounds, total, exchanges = 2, 16<<20, 20
	}
	s := write.Setup{
		Setup:  inRounds(e, group, given(c.Rounds, rounds)),
		Part:   func(part string) process.Spec { return program.Spec(part, program.Part, part) },
		Shapes: c.shapes(), Total: int64(given(c.Total, total)),
	}
	if c.Nagle {
		s.Exchanges = exchanges
	}
	if c.Profile == "" {
		return s, nil
	}
	dir, err := filepath.Abs(c.Profile)
	s.Profile = func(way string, shape *write.Shape) string { return write.ProfileName(dir, way, shape) }
	return s, cmp.Or(err, os.MkdirAll(dir, 0o777))
}

// measure compares the ways.
func (c *writeCmd) measure(ctx context.Context, e *cli.Env, d *writeDocument) error {
	group := d.group()
	defer group.Close()
	setup, err := c.setup(e, group)
	if err != nil {
		return err
	}
	if counter, found := d.counter(c.Syscalls); found {
		setup.Calls = counter
	}
	if !c.Syscalls {
		d.MissesMissing = "not asked for"
	} else if counter, err := syscalls.FindMisses(); err == nil {
		setup.Misses = counter
	} else {
		d.MissesMissing = err.Error()
	}
	announce(e, "Processes that write by turns, and one that receives")
	d.Report, err = write.Measure(ctx, setup)
	return err
}
