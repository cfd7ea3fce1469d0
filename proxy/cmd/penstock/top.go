package main

import (
	"context"
	"os"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/internal/top"
)

type topCmd struct {
	processFlags
	Interval cli.Timeout `default:"1s" placeholder:"TIME" help:"Time between two looks, 200ms to 1m; longer if the process takes long to answer. (default: ${default})"`
	Once     bool        `help:"Print once and exit (the default without a terminal)."`
}

// The bounds of --interval.
const (
	minInterval = 200 * time.Millisecond
	maxInterval = time.Minute
)

// Run shows a running process until its user ends it.
func (c *topCmd) Run(e *cli.Env) error {
	interval := c.Interval.Duration()
	if interval < minInterval || interval > maxInterval {
		return cli.Usagef("top: --interval %v: write %v to %v", interval, minInterval, maxInterval)
	}
	return c.ask(e, "top", func(ctx context.Context, client *admin.Client) error {
		cfg := top.Config{Source: client, Interval: interval, Title: "penstock top", Input: os.Stdin, Output: e.Stdout, Getenv: e.Getenv}
		if c.Once || !onTerminal(e) {
			return top.Once(ctx, cfg)
		}
		if _, err := client.Status(ctx); err != nil {
			return err // and not a view of nothing
		}
		return top.New(ctx, cfg).Run()
	})
}

// onTerminal reports whether the program is used from a terminal that can show a view.
func onTerminal(e *cli.Env) bool {
	_, in := cli.TerminalWidth(os.Stdin, e.Getenv)
	_, out := cli.TerminalWidth(e.Stdout, e.Getenv)
	return in && out
}
