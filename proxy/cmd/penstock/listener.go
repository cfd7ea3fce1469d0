package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

type listenerCmd struct {
	List  listenerListCmd  `cmd:"" default:"withargs" help:"List the listeners."`
	Drain listenerDrainCmd `cmd:"" help:"Close a listener: it accepts no more clients until penstock listener ready or a reload that changes its bind. Its sessions continue for the drain_timeout of their upstreams. Then the remaining sessions are reset."`
	Ready listenerReadyCmd `cmd:"" help:"Open a drained listener again."`
}

type listenerListCmd struct {
	adminFlags
	JSON bool   `name:"json" help:"Print JSON."`
	Name string `arg:"" optional:"" help:"The listener to list. (default: all)"`
}

// Run prints the listeners of a running process.
func (c *listenerListCmd) Run(e *cli.Env) error {
	return show(e, c, "listener", c.JSON, listenersOf(c.Name), func(w io.Writer, list *[]admin.Listener) error {
		t := &statusText{now: time.Now()}
		for i := range *list {
			t.listener(&(*list)[i])
		}
		return t.write(w, nil, "")
	})
}

// listenersOf asks for the listener with a name, or for all.
func listenersOf(name string) func(ctx context.Context, client *admin.Client) ([]admin.Listener, error) {
	return func(ctx context.Context, client *admin.Client) ([]admin.Listener, error) {
		s, err := client.Status(ctx)
		if err != nil || name == "" {
			return s.Listeners, err
		}
		return only(s.Listeners, "listener", name, func(l admin.Listener) string { return l.Name })
	}
}

type listenerDrainCmd struct {
	adminFlags
	Name string `arg:"" help:"The listener."`
}

// Run drains a listener.
func (c *listenerDrainCmd) Run(e *cli.Env) error {
	return show(e, c, "listener drain", false, func(ctx context.Context, client *admin.Client) (admin.ListenerDrained, error) {
		return client.DrainListener(ctx, c.Name)
	}, func(w io.Writer, done *admin.ListenerDrained) error {
		before := when(!done.Changed, ", as before")
		sessions := plural(done.Sessions, "session is", "sessions are")
		switch {
		case done.Sessions == 0:
			sessions = "it has no sessions"
		case done.Until.IsZero():
			sessions += " being reset, because drain_timeout is 0"
		default:
			sessions += fmt.Sprintf(" left: the rest is reset at %s", done.Until.Local().Format(time.DateTime))
		}
		return say(w, "listener %s is closed%s: %s\n", display.Text(c.Name), before, sessions)
	})
}

type listenerReadyCmd struct {
	adminFlags
	Name string `arg:"" help:"The listener."`
}

// Run opens a drained listener.
func (c *listenerReadyCmd) Run(e *cli.Env) error {
	return change(e, c, "listener ready", "listener "+c.Name+" is open", "", func(ctx context.Context, client *admin.Client) (admin.Changed, error) {
		return client.ReadyListener(ctx, c.Name)
	})
}

type splitCmd struct {
	List splitListCmd `cmd:"" default:"withargs" help:"List the splits, and their percentages."`
	Set  splitSetCmd  `cmd:"" help:"Set the percentages of a split."`
}

type splitListCmd struct {
	adminFlags
	Listener string `placeholder:"NAME" help:"List only the splits of this listener."`
}

// Run prints the splits of a running process.
func (c *splitListCmd) Run(e *cli.Env) error {
	return show(e, c, "split", false, listenersOf(c.Listener), func(w io.Writer, list *[]admin.Listener) error {
		t := &statusText{now: time.Now()}
		none := true
		for _, l := range *list {
			for i, r := range l.Routes {
				if len(r.To) > 1 {
					none = false
					t.row("split", l.Name, fmt.Sprintf("--route %d%s", i, matched(r.Match)), shares(r.To))
				}
			}
		}
		if none {
			return say(w, "no route has a split\n")
		}
		return t.write(w, nil, "")
	})
}

type splitSetCmd struct {
	adminFlags
	Route    int      `placeholder:"N" default:"0" help:"The number of the route that has the split. The listener's first route is 0. (default: ${default})"`
	Listener string   `arg:"" help:"The listener."`
	Percent  []string `arg:"" placeholder:"UPSTREAM:PERCENT" names:"split" help:"The upstreams of the split with their new percentages, such as shop:95 shop-next:5. Two decimals are allowed: shop:99.75 shop-next:0.25."`
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
	return change(e, c, "split set", fmt.Sprintf("listener %s, route %d: %s", c.Listener, c.Route, shares(percent)), "", func(ctx context.Context, client *admin.Client) (admin.Changed, error) {
		return client.SetSplit(ctx, c.Listener, c.Route, percent)
	})
}
