package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

type sourcesCmd struct {
	processFlags
	By      string `placeholder:"ORDER" enum:"connections,rate,refusals,bytes" default:"connections" help:"Sort by this column, from large to small: connections, rate, refusals or bytes. (default: ${default})"`
	Top     int    `placeholder:"N" default:"20" help:"List at most this many sources. (default: ${default})"`
	Prefix  int    `placeholder:"BITS" default:"32" help:"Count IPv4 addresses that share this many leading bits as one source. (default: ${default})"`
	Prefix6 int    `name:"prefix6" placeholder:"BITS" default:"64" help:"Count IPv6 addresses that share this many leading bits as one source. (default: ${default})"`
	JSON    bool   `name:"json" help:"Print JSON."`
}

// Run lists sources of clients of a running process.
func (c *sourcesCmd) Run(e *cli.Env) error {
	switch {
	case c.Top < 1 || c.Top > admin.MaxTop:
		return cli.Usagef("sources: --top %d: write 1 to %d", c.Top, admin.MaxTop)
	case c.Prefix < 1 || c.Prefix > 32 || c.Prefix6 < 1 || c.Prefix6 > 128:
		return cli.Usagef("sources: write 1 to 32 for --prefix, and 1 to 128 for --prefix6")
	}
	return show(e, c, "sources", c.JSON, func(ctx context.Context, client *admin.Client) (admin.Sources, error) {
		return client.Sources(ctx, admin.SourceQuery{By: c.By, Top: c.Top, Prefix4: c.Prefix, Prefix6: c.Prefix6})
	}, writeSources)
}

// writeSources writes a table with a row for each source.
func writeSources(w io.Writer, s *admin.Sources) error {
	rows := [][]string{{"source", "connections", "new/s", "refused", "bytes"}}
	for i := range s.Sources {
		one := &s.Sources[i]
		rows = append(rows, []string{one.Source, fmt.Sprint(one.Connections), fmt.Sprintf("%.1f", one.PerSecond), fmt.Sprint(one.Refused), display.Bytes(one.Bytes)})
	}
	return writeTable(w, rows, andMore(s.Known-len(s.Sources)))
}

type denyCmd struct {
	List   denyListCmd   `cmd:"" default:"withargs" help:"List the denied sources (the default)."`
	Add    denyAddCmd    `cmd:"" help:"Deny a source for a time, in addition to the rules of the configuration. Reloads keep the denial."`
	Remove denyRemoveCmd `cmd:"" help:"Remove a denial."`
}

type denyAddCmd struct {
	adminFlags
	Source   string   `arg:"" help:"An address, a prefix, unix, unix:uid=1000, unix:gid=1000 or all."`
	For      cli.Span `required:"" placeholder:"TIME" help:"Deny the source for this long, such as 1h or 7d."`
	Listener string   `placeholder:"NAME" help:"Deny the source only at this listener."`
	End      bool     `help:"Also end the source's sessions at once."`
	JSON     bool     `name:"json" help:"Print JSON."`
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
			return fmt.Errorf("the source is denied, but its sessions continue, and could not be counted: %w", err)
		}
		return writeGoingOn(e.Stdout, left.Touched, &q)
	})
}

// writeDenial writes what a denial has done.
func writeDenial(w io.Writer, d *admin.NewDenial) error {
	at := when(d.Listener != "", " at listener "+d.Listener)
	_, err := fmt.Fprintf(w, "%s is denied%s until %s\n", display.Text(d.Source), display.Text(at), d.Until.Local().Format(time.DateTime))
	if d.Ended != nil {
		err = writeEnded(w, d.Ended)
	}
	if d.Unkept != "" {
		_, err = fmt.Fprintf(w, "This change is lost at a restart: %s\n", display.Text(d.Unkept))
	}
	return err
}

// writeGoingOn writes how many sessions of a denied source go on.
func writeGoingOn(w io.Writer, n int64, q *admin.SessionQuery) error {
	if n == 0 {
		return nil
	}
	return say(w, "%s on: penstock sessions end %s --now ends them, as --end does\n", plural(n, "session of it goes", "sessions of it go"), display.Text(q.String()))
}

type denyRemoveCmd struct {
	adminFlags
	Source   string `arg:"" names:"denial" help:"The source, as penstock deny list prints it."`
	Listener string `placeholder:"NAME" help:"The listener of the denial, if it is for one listener."`
}

// Run ends a denial.
func (c *denyRemoveCmd) Run(e *cli.Env) error {
	return c.ask(e, "deny remove", func(ctx context.Context, client *admin.Client) error {
		err := client.Undeny(ctx, c.Source, c.Listener)
		if err == nil {
			at := when(c.Listener != "", " at listener "+c.Listener)
			_, err = fmt.Fprintf(e.Stdout, "%s is no longer denied%s\n", display.Text(c.Source), display.Text(at))
		}
		return err
	})
}

type denyListCmd struct {
	adminFlags
	JSON bool `name:"json" help:"Print JSON."`
}

// Run lists the denials.
func (c *denyListCmd) Run(e *cli.Env) error {
	return show(e, c, "deny list", c.JSON, func(ctx context.Context, client *admin.Client) (admin.Denied, error) {
		return client.Denied(ctx)
	}, func(w io.Writer, d *admin.Denied) error { return writeDenied(w, d, time.Now()) })
}

// writeDenied writes a table with a row for each denial.
func writeDenied(w io.Writer, d *admin.Denied, now time.Time) error {
	if len(d.Denied) == 0 {
		return say(w, "no source is denied\n")
	}
	rows := [][]string{{"source", "listener", "until", "left", "by"}}
	for _, one := range d.Denied {
		rows = append(rows, []string{one.Source, cmp.Or(one.Listener, "all"), one.Until.Local().Format(time.DateTime), one.Until.Sub(now).Round(time.Second).String(), cmp.Or(one.By, "-")})
	}
	return writeTable(w, rows, "")
}
