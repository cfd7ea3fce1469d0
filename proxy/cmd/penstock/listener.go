package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

type listenerCmd struct {
	List  listenerListCmd  `cmd:"" default:"withargs" help:"List the listeners."`
	Drain listenerDrainCmd `cmd:"" help:"Close a listener: it accepts no more clients, until it is ready again or a reload changes its bind. Its sessions go on."`
	Ready listenerReadyCmd `cmd:"" help:"Open a drained listener again."`
}

type listenerListCmd struct {
	adminFlags
	JSON bool   `name:"json" help:"In JSON."`
	Name string `arg:"" optional:"" help:"Only this one."`
}

// Run prints the listeners of a running process.
func (c *listenerListCmd) Run(e *cli.Env) error {
	return c.ask(e, "listener", func(ctx context.Context, client *admin.Client) error {
		s, err := client.Status(ctx)
		if err == nil && c.Name != "" {
			s.Listeners, err = only(s.Listeners, "listener", c.Name, func(l admin.Listener) string { return l.Name })
		}
		switch {
		case err != nil:
			return err
		case c.JSON:
			return writeJSON(e.Stdout, s.Listeners)
		}
		t := &statusText{now: time.Now()}
		for i := range s.Listeners {
			t.listener(&s.Listeners[i])
		}
		return t.write(e.Stdout, nil)
	})
}

type listenerDrainCmd struct {
	adminFlags
	Name string `arg:"" help:"The listener."`
}

// Run drains a listener.
func (c *listenerDrainCmd) Run(e *cli.Env) error {
	return c.ask(e, "listener drain", func(ctx context.Context, client *admin.Client) error {
		err := client.DrainListener(ctx, c.Name)
		if err == nil {
			_, err = fmt.Fprintf(e.Stdout, "listener %s is closed, and its sessions go on\n", display.Text(c.Name))
		}
		return err
	})
}

type listenerReadyCmd struct {
	adminFlags
	Name string `arg:"" help:"The listener."`
}

// Run opens a drained listener.
func (c *listenerReadyCmd) Run(e *cli.Env) error {
	return c.ask(e, "listener ready", func(ctx context.Context, client *admin.Client) error {
		err := client.ReadyListener(ctx, c.Name)
		if err == nil {
			_, err = fmt.Fprintf(e.Stdout, "listener %s is open\n", display.Text(c.Name))
		}
		return err
	})
}

type splitCmd struct {
	List splitListCmd `cmd:"" default:"withargs" help:"List the splits, and their percentages."`
	Set  splitSetCmd  `cmd:"" help:"Set the percentages of a split."`
}

type splitListCmd struct {
	adminFlags
	Listener string   `placeholder:"NAME" help:"Only those of this listener."`
	Route    *int     `hidden:""`                    // of the form that is gone
	Percent  []string `arg:"" optional:"" hidden:""` // the same
}

// Run prints the splits of a running process.
func (c *splitListCmd) Run(e *cli.Env) error {
	if len(c.Percent) > 0 || c.Route != nil {
		return cli.Usagef("split: percentages are set by: penstock split set %s%s %s", cmp.Or(c.Listener, "LISTENER"), routeFlag(c.Route), cmp.Or(strings.Join(c.Percent, " "), "UPSTREAM:PERCENT ..."))
	}
	return c.ask(e, "split", func(ctx context.Context, client *admin.Client) error {
		s, err := client.Status(ctx)
		if err == nil && c.Listener != "" {
			s.Listeners, err = only(s.Listeners, "listener", c.Listener, func(l admin.Listener) string { return l.Name })
		}
		if err != nil {
			return err
		}
		t := &statusText{now: time.Now()}
		for _, l := range s.Listeners {
			for i, r := range l.Routes {
				if len(r.To) > 1 {
					t.row("split", l.Name, fmt.Sprintf("--route %d%s", i, matched(r.Match)), shares(r.To))
				}
			}
		}
		return t.write(e.Stdout, nil)
	})
}

type splitSetCmd struct {
	adminFlags
	Route    int      `placeholder:"N" default:"0" help:"Which of the listener's routes has the split, 0 for the first. (default: ${default})"`
	Listener string   `arg:"" help:"The listener."`
	Percent  []string `arg:"" placeholder:"UPSTREAM:PERCENT" names:"split" help:"The upstreams of the split, and their percentages from now on, such as shop:95 shop-next:5, or to a hundredth: shop:99.75 shop-next:0.25."`
}

// Run changes the percentages of a split, until a reload changes them in the file.
func (c *splitSetCmd) Run(e *cli.Env) error {
	percent, err := admin.ParsePercent(c.Percent)
	if err != nil || c.Route < 0 {
		if err == nil {
			err = fmt.Errorf("--route %d: write 0 or more", c.Route)
		}
		return cli.Usagef("split set: %w (see: penstock split set --help)", err)
	}
	return c.ask(e, "split set", func(ctx context.Context, client *admin.Client) error {
		err := client.SetSplit(ctx, c.Listener, c.Route, percent)
		if err == nil {
			_, err = fmt.Fprintf(e.Stdout, "listener %s, route %d: %s\n", display.Text(c.Listener), c.Route, display.Text(shares(percent)))
		}
		return err
	})
}
