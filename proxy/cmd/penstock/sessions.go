package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

type sessionsCmd struct {
	List sessionsListCmd `cmd:"" default:"withargs" help:"List the clients that are served (the default)."`
	End  sessionsEndCmd  `cmd:"" help:"End sessions: when they are quiet, spread over a time, or at once."`
}

// sessionFlags select sessions.
type sessionFlags struct {
	ID       string      `placeholder:"ID" help:"Only this session."`
	Listener string      `placeholder:"NAME" help:"Only sessions of this listener; @unknown: adopted sessions whose listener is not in the file."`
	Upstream string      `placeholder:"NAME" help:"Only sessions to this upstream; @unknown as for a listener."`
	Endpoint string      `placeholder:"NAME" help:"Only sessions to this endpoint, by its name or its address."`
	Source   string      `placeholder:"SOURCE" help:"Only sessions of clients from an address or a prefix; unix or unix:uid=1000 on a unix socket."`
	Older    cli.Timeout `placeholder:"TIME" help:"Only sessions older than this."`
	Idle     cli.Timeout `placeholder:"TIME" help:"Only sessions that have moved no byte for this long."`
	Bytes    string      `placeholder:"SIZE" help:"Only sessions that have moved at least this many bytes, such as 1MiB."`
	State    string      `placeholder:"STATE" values:"preread,dialing,waiting,responding,joined,client-ended,endpoint-ended,ending" help:"Only sessions in this state: preread, dialing, waiting, responding, joined, client-ended, endpoint-ended, ending."`
	Engine   string      `placeholder:"ENGINE" enum:",lane" default:"" help:"lane: only sessions that have left user space."`
	Verdict  string      `placeholder:"VERDICT" values:"client,client_network,endpoint,endpoint_network,proxy,limit,idle,unknown,any" help:"Only sessions by what has limited them since they began, see penstock why: client, client_network, endpoint, endpoint_network, proxy, limit, idle, unknown. any: all, with their verdicts."`
}

// query returns the query of the flags.
func (f *sessionFlags) query(command string) (admin.SessionQuery, error) {
	q := admin.SessionQuery{
		ID: f.ID, Listener: f.Listener, Upstream: f.Upstream, Endpoint: f.Endpoint, Source: f.Source,
		Older: f.Older.Duration(), Idle: f.Idle.Duration(), State: f.State, Verdict: f.Verdict, Engine: f.Engine,
	}
	if f.Bytes == "" {
		return q, nil
	}
	var err error
	if q.Bytes, err = admin.ParseSize(f.Bytes); err != nil {
		return q, cli.Usagef("%s: --bytes: %w", command, err)
	}
	return q, nil
}

type sessionsListCmd struct {
	adminFlags
	sessionFlags
	Sort  string `placeholder:"ORDER" enum:",age,idle,bytes,in,out,client,listener,upstream,endpoint,state,verdict" default:"" help:"Sort by this, numbers from the largest on, names from the first on: age, idle, bytes, in, out, client, listener, upstream, endpoint, state, verdict. At most 10,000 are listed then."`
	Top   int    `placeholder:"N" help:"Show at most this many."`
	Watch bool   `help:"List them again every two seconds, until interrupted."`
	JSON  bool   `name:"json" help:"In JSON, with the bytes by engine."`
}

// watchEvery is how often --watch lists.
const watchEvery = 2 * time.Second

// Run lists the sessions of a running process.
func (c *sessionsListCmd) Run(e *cli.Env) error {
	q, err := c.query("sessions")
	switch {
	case err != nil:
		return err
	case c.Top < 0 || c.Top > admin.MaxTop:
		return cli.Usagef("sessions: --top %d: write 1 to %d", c.Top, admin.MaxTop)
	case c.Watch && c.JSON:
		return cli.Usagef("sessions: --watch is for a terminal: leave out --json, or call it again")
	}
	if c.Sort == "verdict" && q.Verdict == "" {
		q.Verdict = admin.AnyVerdict
	}
	return c.ask(e, "sessions", func(ctx context.Context, client *admin.Client) error {
		for {
			s, err := client.Sessions(ctx, q, admin.SessionOrder{By: c.Sort, Top: c.Top})
			if err != nil {
				return ifWatched(c.Watch, err, ctx)
			}
			if err := c.write(e, &s); err != nil || !c.Watch {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(watchEvery):
			}
		}
	})
}

// ifWatched returns an error, unless it is that --watch was interrupted.
func ifWatched(watch bool, err error, ctx context.Context) error {
	if watch && ctx.Err() != nil {
		return nil
	}
	return err
}

// clearScreen moves the cursor to the first cell, and erases all (ECMA-48, CUP and ED).
const clearScreen = "\x1b[H\x1b[2J"

func (c *sessionsListCmd) write(e *cli.Env, s *admin.Sessions) error {
	if c.JSON {
		return writeJSON(e.Stdout, s)
	}
	if _, terminal := cli.TerminalWidth(e.Stdout, e.Getenv); terminal && c.Watch {
		fmt.Fprint(e.Stdout, clearScreen)
	}
	return writeSessions(e.Stdout, s)
}

// writeSessions writes a table with a row for each session.
func writeSessions(w io.Writer, s *admin.Sessions) error {
	form := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	judged := len(s.Sessions) > 0 && s.Sessions[0].Verdict != ""
	heading := "client\tlistener\tupstream\tendpoint\tstate\tage\tidle\tin\tout\tid"
	if judged {
		heading += "\tverdict"
	}
	left := slices.ContainsFunc(s.Sessions, func(one admin.Session) bool { return one.Engine == admin.EngineLane })
	if left {
		heading += "\tengine"
	}
	fmt.Fprintln(form, heading)
	for i := range s.Sessions {
		one := &s.Sessions[i]
		idle := "-"
		if one.IdleUs != nil {
			idle = sinceText(*one.IdleUs)
		}
		cells := []string{
			one.Client, cmp.Or(one.Listener, "-"), cmp.Or(one.Upstream, "-"), cmp.Or(one.Endpoint, "-"), one.State, sinceText(one.AgeUs), idle,
			display.Bytes(one.Bytes.ClientToEndpoint.All()), display.Bytes(one.Bytes.EndpointToClient.All()), one.ID,
		}
		if judged {
			cells = append(cells, cmp.Or(one.Verdict, "-"))
		}
		if left {
			cells = append(cells, cmp.Or(one.Engine, "-"))
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
