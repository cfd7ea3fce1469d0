package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

type denyCmd struct {
	List   denyListCmd   `cmd:"" default:"withargs" help:"List the denied sources (the default)."`
	Add    denyAddCmd    `cmd:"" help:"Deny a source for a time, beside the rules of the configuration. It survives reloads."`
	Remove denyRemoveCmd `cmd:"" help:"Take a denial back."`
}

type denyAddCmd struct {
	adminFlags
	Source   string   `arg:"" help:"An address, a prefix, unix, unix:uid=1000, unix:gid=1000 or all."`
	For      cli.Span `required:"" placeholder:"TIME" help:"For how long, such as 1h or 7d."`
	Listener string   `placeholder:"NAME" help:"At that listener alone."`
	End      bool     `help:"End the source's sessions, too, at once."`
	JSON     bool     `name:"json" help:"In JSON."`
}

// Run denies a source.
func (c *denyAddCmd) Run(e *cli.Env) error {
	return c.ask(e, "deny add", func(ctx context.Context, client *admin.Client) error {
		d, err := client.Deny(ctx, c.Source, c.Listener, c.For.Duration(), c.End)
		switch {
		case err != nil:
			return err
		case c.JSON:
			return writeJSON(e.Stdout, d)
		}
		if err := writeDenial(e.Stdout, &d); err != nil || d.Ended != nil {
			return err
		}
		q := admin.SessionQuery{Source: d.Source, Listener: d.Listener}
		left, err := client.EndSessions(ctx, admin.EndQuery{SessionQuery: q, DryRun: true})
		if err != nil {
			return fmt.Errorf("it is denied; its sessions go on, and could not be counted: %w", err)
		}
		return writeGoingOn(e.Stdout, left.Touched, &q)
	})
}

// writeDenial writes what a denial has done.
func writeDenial(w io.Writer, d *admin.NewDenial) error {
	at := ""
	if d.Listener != "" {
		at = " at listener " + d.Listener
	}
	_, err := fmt.Fprintf(w, "%s is denied%s until %s\n", display.Text(d.Source), display.Text(at), d.Until.Local().Format(time.DateTime))
	if d.Ended != nil {
		err = writeEnded(w, d.Ended)
	}
	if d.Unkept != "" {
		_, err = fmt.Fprintf(w, "This change is lost at a restart: %s\n", display.Text(d.Unkept))
	}
	return err
}

// writeGoingOn writes how many sessions of a denied source there still are.
func writeGoingOn(w io.Writer, n int64, q *admin.SessionQuery) error {
	if n == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "%s on: penstock sessions end %s --now ends them, as --end does\n", plural(n, "session of it goes", "sessions of it go"), display.Text(q.String()))
	return err
}

type denyRemoveCmd struct {
	adminFlags
	Source   string `arg:"" names:"denial" help:"As penstock deny list has it."`
	Listener string `placeholder:"NAME" help:"The listener of the denial, if it is of one."`
}

// Run takes a denial back.
func (c *denyRemoveCmd) Run(e *cli.Env) error {
	return c.ask(e, "deny remove", func(ctx context.Context, client *admin.Client) error {
		err := client.Undeny(ctx, c.Source, c.Listener)
		if err == nil {
			at := ""
			if c.Listener != "" {
				at = " at listener " + c.Listener
			}
			_, err = fmt.Fprintf(e.Stdout, "%s is not denied any more%s\n", display.Text(c.Source), display.Text(at))
		}
		return err
	})
}

type denyListCmd struct {
	adminFlags
	JSON bool `name:"json" help:"In JSON."`

	// Those of deny add, for a hint.
	Source   []string `arg:"" optional:"" hidden:""`
	For      string   `hidden:""`
	Listener string   `hidden:""`
	End      bool     `hidden:""`
}

// Run lists the denials.
func (c *denyListCmd) Run(e *cli.Env) error {
	if c.Source != nil || c.For != "" || c.Listener != "" || c.End {
		return cli.Usagef("deny: nothing was denied: write %s", c.asAdd())
	}
	return c.ask(e, "deny list", func(ctx context.Context, client *admin.Client) error {
		d, err := client.Denied(ctx)
		switch {
		case err != nil:
			return err
		case c.JSON:
			return writeJSON(e.Stdout, d)
		}
		return writeDenied(e.Stdout, &d, time.Now())
	})
}

// asAdd returns the command that denies.
func (c *denyListCmd) asAdd() string {
	words := []string{"penstock deny add", cmp.Or(strings.Join(c.Source, " "), "SOURCE"), "--for", cmp.Or(c.For, "1h")}
	if c.Listener != "" {
		words = append(words, "--listener", c.Listener)
	}
	if c.End {
		words = append(words, "--end")
	}
	return strings.Join(words, " ")
}

// writeDenied writes a table with a row for each denial.
func writeDenied(w io.Writer, d *admin.Denied, now time.Time) error {
	if len(d.Denied) == 0 {
		_, err := fmt.Fprintln(w, "no source is denied by hand")
		return err
	}
	form := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(form, "source\tlistener\tuntil\tleft\tby")
	for _, one := range d.Denied {
		fmt.Fprintf(form, "%s\t%s\t%s\t%v\t%s\n", display.Text(one.Source), display.Text(cmp.Or(one.Listener, "all")),
			one.Until.Local().Format(time.DateTime), one.Until.Sub(now).Round(time.Second), display.Text(cmp.Or(one.By, "-")))
	}
	return form.Flush()
}
