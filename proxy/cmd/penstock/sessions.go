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

type sessionsCmd struct {
	adminFlags
	JSON bool `name:"json" help:"In JSON, with the bytes by engine."`
}

// Run lists the sessions of a running process.
func (c *sessionsCmd) Run(e *cli.Env) error {
	return c.ask(e, "sessions", func(ctx context.Context, client *admin.Client) error {
		s, err := client.Sessions(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return writeJSON(e.Stdout, s)
		}
		return writeSessions(e.Stdout, &s)
	})
}

// writeSessions writes a table with a row for each session.
func writeSessions(w io.Writer, s *admin.Sessions) error {
	form := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(form, "client\tlistener\tupstream\tendpoint\tstate\tage\tidle\tin\tout")
	for i := range s.Sessions {
		one := &s.Sessions[i]
		idle := "-"
		if one.IdleUs != nil {
			idle = sinceText(*one.IdleUs)
		}
		cells := []string{
			one.Client, one.Listener, cmp.Or(one.Upstream, "-"), cmp.Or(one.Endpoint, "-"), one.State, sinceText(one.AgeUs), idle,
			display.Bytes(one.Bytes.ClientToEndpoint.All()), display.Bytes(one.Bytes.EndpointToClient.All()),
		}
		for i, cell := range cells {
			cells[i] = display.Text(cell)
		}
		fmt.Fprintln(form, strings.Join(cells, "\t"))
	}
	if s.More {
		fmt.Fprintln(form, "... and more")
	}
	return form.Flush()
}

// sinceText formats microseconds: to the millisecond below a minute, and to the second from then on.
func sinceText(us int64) string {
	d := time.Duration(us) * time.Microsecond
	if d < time.Minute {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
