package main

import (
	"context"
	"fmt"
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
