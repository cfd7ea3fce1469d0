package main

import (
	"context"
	"fmt"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
)

// The changes by these commands stay until a reload changes the same thing in the file. A
// drained listener comes back by any reload.

type drainCmd struct {
	adminFlags
	Listener string `placeholder:"NAME" help:"A listener: it accepts no more clients."`
	Upstream string `placeholder:"NAME" help:"The upstream of an endpoint."`
	Endpoint string `placeholder:"NAME" help:"An endpoint, by its name or its address: it gets no more clients, and those that it has may stay for the upstream's drain_timeout."`
	Process  bool   `help:"All of it, as by SIGTERM."`
	Undo     bool   `help:"The endpoint gets clients again."`
}

// Run drains a listener, an endpoint or the process.
func (c *drainCmd) Run(e *cli.Env) error {
	drain := c.chosen()
	if drain == nil {
		return cli.Usagef("drain: write --listener NAME, or --upstream NAME --endpoint NAME [--undo], or --process (see: penstock drain --help)")
	}
	return c.ask(e, "drain", drain)
}

// chosen returns the request that the flags select; nil if they are ambiguous.
func (c *drainCmd) chosen() func(context.Context, *admin.Client) error {
	switch *c {
	case drainCmd{adminFlags: c.adminFlags, Process: true}:
		return func(ctx context.Context, client *admin.Client) error { return client.Drain(ctx) }
	case drainCmd{adminFlags: c.adminFlags, Listener: c.Listener}:
		if c.Listener != "" {
			return func(ctx context.Context, client *admin.Client) error { return client.DrainListener(ctx, c.Listener) }
		}
	case drainCmd{adminFlags: c.adminFlags, Upstream: c.Upstream, Endpoint: c.Endpoint, Undo: c.Undo}:
		if c.Upstream != "" && c.Endpoint != "" {
			return func(ctx context.Context, client *admin.Client) error {
				return client.DrainEndpoint(ctx, c.Upstream, c.Endpoint, !c.Undo)
			}
		}
	}
	return nil
}

type weightCmd struct {
	adminFlags
	Upstream string `placeholder:"NAME" required:"" help:"The upstream of the endpoint."`
	Endpoint string `placeholder:"NAME" required:"" help:"The endpoint, by its name or its address."`
	Weight   int    `arg:"" help:"Its weight from now on; 0: no more clients."`
}

// Run changes the weight of an endpoint.
func (c *weightCmd) Run(e *cli.Env) error {
	if c.Weight < 0 {
		return cli.Usagef("weight: %d is not a weight: write 0 or more (see: penstock weight --help)", c.Weight)
	}
	return c.ask(e, "weight", func(ctx context.Context, client *admin.Client) error {
		return client.SetWeight(ctx, c.Upstream, c.Endpoint, c.Weight)
	})
}

type splitCmd struct {
	adminFlags
	Listener string   `placeholder:"NAME" required:"" help:"The listener."`
	Route    int      `placeholder:"N" default:"0" help:"Which of its routes has the split, 0 for the first. (default: ${default})"`
	Percent  []string `arg:"" placeholder:"UPSTREAM:PERCENT" help:"The upstreams of the split, and their percentages from now on, such as shop:95 shop-next:5, or to a hundredth: shop:99.75 shop-next:0.25."`
}

// Run changes the percentages of a split.
func (c *splitCmd) Run(e *cli.Env) error {
	percent, err := admin.ParsePercent(c.Percent)
	if err != nil || c.Route < 0 {
		if err == nil {
			err = fmt.Errorf("--route %d: write 0 or more", c.Route)
		}
		return cli.Usagef("split: %w (see: penstock split --help)", err)
	}
	return c.ask(e, "split", func(ctx context.Context, client *admin.Client) error {
		return client.SetSplit(ctx, c.Listener, c.Route, percent)
	})
}
