package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/flamegraph"
)

type profileCmd struct {
	adminFlags
	For    cli.Timeout `default:"10s" placeholder:"TIME" help:"How long, in whole seconds from 1s to 1m. (default: ${default})"`
	Format string      `enum:"svg,folded,pprof" default:"svg" help:"A flame graph (svg), lines of stacks (folded), or the profile for go tool pprof (pprof). (default: ${default})"`
	Output string      `short:"o" placeholder:"FILE" help:"Where to write it. (default: standard output)"`
}

// Run writes the CPU profile of the running process.
func (c *profileCmd) Run(e *cli.Env) error {
	d := c.For.Duration()
	if d%time.Second != 0 || d < time.Second || d > admin.MaxProfile*time.Second {
		return cli.Usagef("profile: --for: write whole seconds from 1s to %ds", admin.MaxProfile)
	}
	return c.ask(e, "profile", func(ctx context.Context, client *admin.Client) error {
		profile, err := client.Profile(ctx, int(d/time.Second))
		if err != nil {
			return err
		}
		out, err := c.convert(profile)
		if err != nil {
			return err
		}
		fmt.Fprintln(e.Stderr, "penstock: the profile has no frames of the kernel: the Go runtime samples user stacks, to which a system call is one frame")
		if c.Output == "" {
			_, err = e.Stdout.Write(out)
			return err
		}
		if err := os.WriteFile(filepath.Clean(c.Output), out, 0o644); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		fmt.Fprintf(e.Stderr, "penstock: written to %s\n", display.Text(c.Output))
		return nil
	})
}

// convert returns a profile in the format that is asked for.
func (c *profileCmd) convert(profile []byte) ([]byte, error) {
	if c.Format == "pprof" {
		return profile, nil
	}
	stacks, err := flamegraph.Parse(profile)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if c.Format == "folded" {
		err = stacks.WriteFolded(&out)
	} else {
		err = stacks.WriteSVG(&out, fmt.Sprintf("CPU time of penstock in %v, without the kernel's frames", c.For.Duration()), func(ns int64) string { return time.Duration(ns).String() })
	}
	return out.Bytes(), err
}
