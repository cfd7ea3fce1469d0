package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

type sessionsCmd struct {
	List sessionsListCmd `cmd:"" default:"withargs" help:"List the connected clients (the default)."`
	End  sessionsEndCmd  `cmd:"" help:"End sessions when they are quiet, spread over a time, or immediately."`
}

// sessionFlags select sessions.
type sessionFlags struct {
	ID       string      `placeholder:"ID" help:"Select only this session, by the id in this list or in the session log."`
	Listener string      `placeholder:"NAME" help:"Select the sessions of this listener. @unknown means sessions taken over from a dead process: their listener is not in the file."`
	Upstream string      `placeholder:"NAME" help:"Select the sessions to this upstream. @unknown means sessions taken over from a dead process: their upstream is not in the file."`
	Endpoint string      `placeholder:"NAME" help:"Select the sessions to the endpoint with this name or address."`
	Source   string      `placeholder:"SOURCE" help:"Select the sessions of clients from an address or a prefix. For clients of a unix socket write unix or unix:uid=1000."`
	Older    cli.Timeout `placeholder:"TIME" help:"Select the sessions that are older than this."`
	Idle     cli.Timeout `placeholder:"TIME" help:"Select the sessions that have moved no byte for this long."`
	Bytes    string      `placeholder:"SIZE" help:"Select the sessions that have moved at least this many bytes, such as 1MiB."`
	State    string      `placeholder:"STATE" values:"preread,dialing,waiting,responding,joined,client-ended,endpoint-ended,ending" help:"Select the sessions in this state: preread, dialing, waiting, responding, joined, client-ended, endpoint-ended, ending."`
	Engine   string      `placeholder:"ENGINE" enum:",lane" default:"" help:"Select the sessions that have left user space: lane."`
	Verdict  string      `placeholder:"VERDICT" values:"client,client_network,endpoint,endpoint_network,proxy,limit,idle,unknown,any" help:"Select the sessions with this main cause, see penstock why: client, client_network, endpoint, endpoint_network, proxy, limit, idle, unknown. With any, all sessions are selected, with their verdicts."`
}

func (f *sessionFlags) query(command string) (admin.SessionQuery, error) {
	q := admin.SessionQuery{
		ID: f.ID, Listener: f.Listener, Upstream: f.Upstream, Endpoint: absoluteSocket(f.Endpoint), Source: f.Source,
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
	Sort  string `placeholder:"ORDER" enum:",age,idle,bytes,in,out,client,listener,upstream,endpoint,state,verdict" default:"" help:"Sort by this column: age, idle, bytes, in, out, client, listener, upstream, endpoint, state, verdict. Numbers are sorted from large to small, names by the alphabet. At most 10,000 sessions are then listed."`
	Top   int    `placeholder:"N" help:"Show at most this many sessions."`
	Watch bool   `help:"List the sessions again every two seconds, until interrupted."`
	JSON  bool   `name:"json" help:"Print JSON, with the bytes by engine."`
}

// watchEvery is how often --watch lists the sessions.
const watchEvery = 2 * time.Second

func (c *sessionsListCmd) Run(e *cli.Env) error {
	q, err := c.query("sessions")
	switch {
	case err != nil:
		return err
	case c.Top < 0 || c.Top > admin.MaxTop:
		return cli.Usagef("sessions: --top %d: write 1 to %d", c.Top, admin.MaxTop)
	case c.Watch && c.JSON:
		return cli.Usagef("sessions: --watch prints for a terminal: leave out --watch or --json")
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

// ifWatched returns the error, or nil if the error only means that --watch was interrupted.
func ifWatched(watch bool, err error, ctx context.Context) error {
	if watch && ctx.Err() != nil {
		return nil
	}
	return err
}

// clearScreen moves the cursor to the first cell, and erases the screen (ECMA-48, CUP and ED).
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

func writeSessions(w io.Writer, s *admin.Sessions) error {
	judged := len(s.Sessions) > 0 && s.Sessions[0].Verdict != ""
	left := slices.ContainsFunc(s.Sessions, func(one admin.Session) bool { return one.Engine == admin.EngineLane })
	heading := []string{"client", "listener", "upstream", "endpoint", "state", "age", "idle", "in", "out", "id"}
	if judged {
		heading = append(heading, "verdict")
	}
	if left {
		heading = append(heading, "engine")
	}
	rows := [][]string{heading}
	for i := range s.Sessions {
		one := &s.Sessions[i]
		idle := "-"
		if one.IdleUs != nil {
			idle = sinceText(*one.IdleUs)
		}
		cells := []string{
			one.Client, cmp.Or(one.Listener, "-"), cmp.Or(one.Upstream, "-"), cmp.Or(admin.Label(one.Name, one.Endpoint), "-"), one.State, sinceText(one.AgeUs), idle,
			display.Bytes(one.Bytes.ClientToEndpoint.All()), display.Bytes(one.Bytes.EndpointToClient.All()), one.ID,
		}
		if judged {
			cells = append(cells, cmp.Or(one.Verdict, "-"))
		}
		if left {
			cells = append(cells, cmp.Or(one.Engine, "-"))
		}
		rows = append(rows, cells)
	}
	if s.More {
		return writeTable(w, rows, "... and more\n")
	}
	return writeTable(w, rows, "")
}

// sinceText formats microseconds: to the millisecond below a minute, to the second above.
func sinceText(us int64) string {
	d := time.Duration(us) * time.Microsecond
	if d < time.Minute {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

type sessionsEndCmd struct {
	adminFlags
	sessionFlags
	All       bool        `help:"End all sessions."`
	Now       bool        `help:"End the sessions immediately, even in the middle of a transfer."`
	Over      cli.Timeout `placeholder:"TIME" help:"End the sessions at random moments within this time, so that their clients do not all come back together."`
	Grace     cli.Timeout `placeholder:"TIME" help:"Wait this long for each session to become quiet. If it does not, it continues, and the exit code is 3. (default: 30s)"`
	Quiet     cli.Timeout `placeholder:"TIME" help:"Call a session quiet if no byte has moved for this time, and the last byte came from the endpoint. Penstock does not know whether an answer was complete: write a time longer than the pauses within an endpoint's answer. 1s is enough if each request has one answer, sent in one piece, without TLS, HTTP/2 or pipelining. (minimum: 1s; default: 10s)"`
	ThenReset bool        `help:"After --grace, also end the sessions that are not quiet."`
	DryRun    bool        `help:"Only say how many sessions would be ended."`
	Yes       bool        `help:"Do not ask on a terminal."`
	Stop      bool        `help:"Stop the sessions end commands in progress. Sessions that have not ended continue."`
	JSON      bool        `name:"json" help:"Print JSON."`
}

func (c *sessionsEndCmd) Run(e *cli.Env) error {
	if c.Stop {
		if *c != (sessionsEndCmd{adminFlags: c.adminFlags, Stop: true, JSON: c.JSON}) {
			return cli.Usagef("sessions end: write --stop without other flags")
		}
		return show(e, c, "sessions end", c.JSON, func(ctx context.Context, client *admin.Client) (admin.Stopped, error) {
			return client.StopEnding(ctx)
		}, func(w io.Writer, s *admin.Stopped) error {
			return say(w, "%s stopped, %s on\n", plural(int64(s.Requests), "request", "requests"), plural(s.Kept, "session goes", "sessions go"))
		})
	}
	q, err := c.endQuery()
	if err != nil {
		return err
	}
	return c.ask(e, "sessions end", func(ctx context.Context, client *admin.Client) error { return c.end(ctx, e, client, q) })
}

func (c *sessionsEndCmd) endQuery() (admin.EndQuery, error) {
	selected, err := c.query("sessions end")
	if err != nil {
		return admin.EndQuery{}, err
	}
	switch {
	case selected.Selects() && c.All:
		return admin.EndQuery{}, cli.Usagef("sessions end: --all selects every session: leave out --all, or the other flags")
	case !selected.Selects() && !c.All:
		return admin.EndQuery{}, cli.Usagef("sessions end: say which sessions: --endpoint, --upstream, --listener, --source, --older, --idle, --bytes, --state, --verdict, --id, or --all (see: penstock sessions end --help)")
	case slices.Contains(admin.StatesWithoutEndpoint, c.State):
		return admin.EndQuery{}, cli.Usagef("sessions end: --state %s: clients in this state have no session yet: penstock deny add SOURCE --for TIME refuses them", c.State)
	case c.Quiet != 0 && c.Quiet.Duration() < admin.LeastQuiet:
		return admin.EndQuery{}, cli.Usagef("sessions end: --quiet %v is too short: write %v or more", c.Quiet.Duration(), admin.LeastQuiet)
	case c.Now && (c.Grace != 0 || c.Quiet != 0 || c.ThenReset):
		return admin.EndQuery{}, cli.Usagef("sessions end: --grace, --quiet and --then-reset do not go with --now: leave out these flags, or --now")
	}
	return admin.EndQuery{SessionQuery: selected, All: c.All, Now: c.Now, Over: c.Over.Duration(), Grace: c.Grace.Duration(), Quiet: c.Quiet.Duration(), ThenReset: c.ThenReset}, nil
}

// end ends sessions. It says how many there are, and when they will end, and on a terminal asks first.
func (c *sessionsEndCmd) end(ctx context.Context, e *cli.Env, client *admin.Client, q admin.EndQuery) error {
	if !c.JSON || c.DryRun {
		found, err := c.count(ctx, e, client, q)
		if err != nil || c.DryRun || found.Touched == 0 {
			return err
		}
		if !c.Yes && !c.JSON {
			if err := confirm(ctx, e, "sessions end", "end them?"); err != nil {
				return err
			}
		}
	}
	ended, err := client.EndSessions(ctx, q)
	switch {
	case errors.Is(err, context.Canceled):
		return interrupted(e, "sessions end: interrupted, but the process continues to end sessions: penstock sessions end --stop stops it")
	case err != nil:
		return err
	case c.JSON:
		return cmp.Or(writeJSON(e.Stdout, ended), c.nobody(&ended), goOn(&ended))
	}
	fmt.Fprint(e.Stdout, plural(ended.Touched, "session", "sessions"), ": ") // the number may differ from the earlier count
	if err := writeEnded(e.Stdout, &ended); err != nil {
		return err
	}
	if ended.Kept == 0 {
		ended.Unanswering = 0
	}
	ended.WithoutEndpoint = 0 // the earlier count has said that
	return cmp.Or(writeAside(e.Stdout, &ended), goOn(&ended))
}

// nobody returns an error if no session has the selected id.
func (c *sessionsEndCmd) nobody(found *admin.Ended) error {
	if c.ID == "" || found.Touched+found.WithoutEndpoint > 0 {
		return nil
	}
	return fmt.Errorf("sessions end: no session has the id %s: penstock sessions shows the ids", c.ID)
}

// goOn returns the exit code if some of the sessions go on, or nil.
func goOn(e *admin.Ended) error {
	if e.Kept+e.Stopped+e.Waiting == 0 {
		return nil
	}
	return cli.ExitCode(cli.ExitGoOn)
}

// count says how many sessions there are, and when they will end.
func (c *sessionsEndCmd) count(ctx context.Context, e *cli.Env, client *admin.Client, q admin.EndQuery) (admin.Ended, error) {
	q.DryRun = true
	found, err := client.EndSessions(ctx, q)
	switch {
	case err != nil:
		return found, err
	case c.JSON:
		return found, cmp.Or(writeJSON(e.Stdout, found), c.nobody(&found))
	}
	if err := c.nobody(&found); err != nil {
		return found, err
	}
	fmt.Fprint(e.Stdout, plural(found.Touched, "session", "sessions"), " selected", whenEnded(&q, found.Touched), "\n")
	return found, writeAside(e.Stdout, &found)
}

// whenEnded says when the n sessions that a query selects will end.
func whenEnded(q *admin.EndQuery, n int64) string {
	switch {
	case n == 0:
		return ""
	case q.Now && q.Over > 0:
		return fmt.Sprintf(". Each ends at a random moment within %v, even in the middle of a transfer.", q.Over)
	case q.Now:
		return ". All end immediately, even in the middle of a transfer."
	}
	quiet, grace := cmp.Or(q.Quiet, admin.DefaultQuiet), cmp.Or(q.Grace, admin.DefaultGrace)
	turn, late := "Each", "go on; --now ends them too"
	if q.Over > 0 {
		turn = fmt.Sprintf("Each gets its turn at a random moment within %v, and then", q.Over)
	}
	if q.ThenReset {
		late = "are reset"
	}
	return fmt.Sprintf(". %s ends after %v of quiet, if its endpoint sent last. After %v the others %s.", turn, quiet, grace, late)
}

// writeAside warns of clients that are not sessions, and of sessions that cannot be quiet.
func writeAside(w io.Writer, e *admin.Ended) error {
	if e.WithoutEndpoint > 0 {
		fmt.Fprintln(w, plural(e.WithoutEndpoint, "client has", "clients have"), "no session yet, and stay connected")
	}
	if e.Unanswering == 0 || e.QuietUs == 0 {
		return nil
	}
	return say(w, "%s an endpoint that is down, ejected or silent: an answer may have stopped in the middle, so these sessions do not count as quiet; --then-reset ends them after --grace, --now at once\n", plural(e.Unanswering, "session has", "sessions have"))
}

// confirm asks on a terminal, and returns an error unless the answer is yes. Without a terminal it does not ask.
func confirm(ctx context.Context, e *cli.Env, command, question string) error {
	if _, terminal := cli.TerminalWidth(e.Stdout, e.Getenv); !terminal {
		return nil
	}
	agreed, err := agrees(ctx, e, os.Stdin, question)
	switch {
	case err != nil:
		return interrupted(e, command+": interrupted: nothing was ended")
	case !agreed:
		return fmt.Errorf("%s: not confirmed: nothing was changed", command)
	}
	return nil
}

// agrees asks a question. If ctx ends first it returns ctx's error; then a goroutine still reads from in.
func agrees(ctx context.Context, e *cli.Env, in io.Reader, question string) (bool, error) {
	fmt.Fprint(e.Stdout, question, " [y/N] ")
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(in).ReadString('\n')
		line <- text
	}()
	select {
	case text := <-line:
		text = strings.TrimSpace(text)
		return strings.EqualFold(text, "y") || strings.EqualFold(text, "yes"), nil
	case <-ctx.Done():
		fmt.Fprintln(e.Stdout) // ends the line of the question
		return false, ctx.Err()
	}
}

// exitInterrupted is the exit code of an interrupted command, the same as in shells for SIGINT.
const exitInterrupted = 128 + int(syscall.SIGINT)

// interrupted reports what an interrupt has left undone.
func interrupted(e *cli.Env, text string) error {
	e.PrintError(errors.New(text))
	return cli.ExitCode(exitInterrupted)
}

func writeEnded(w io.Writer, e *admin.Ended) error {
	fmt.Fprintf(w, "%d ended", e.Ended)
	for _, of := range []struct {
		n         int64
		one, many string
	}{
		{e.Cut, "was reset: it was not quiet in time", "were reset: they were not quiet in time"},
		{e.Other, "ended by another request", "ended by another request"},
		{e.Left, "ended by itself", "ended by themselves"},
		{e.Kept, "stays: it was not quiet in time (--now ends it)", "stay: they were not quiet in time (--now ends them)"},
		{e.Stopped, "goes on: the request was stopped", "go on: the request was stopped"},
		{e.Waiting, "waits until it is its turn and it is quiet", "wait until it is their turn and they are quiet"},
	} {
		if of.n > 0 {
			fmt.Fprintf(w, ", %s", plural(of.n, of.one, of.many))
		}
	}
	if !e.Done {
		fmt.Fprintf(w, "; the last ends before %s, and then the log has the numbers", e.Until.Local().Format(time.TimeOnly))
	}
	_, err := fmt.Fprintln(w)
	return err
}

var plural = display.Plural

type sourcesCmd struct {
	processFlags
	By      string `placeholder:"ORDER" enum:"connections,rate,refusals,bytes" default:"connections" help:"Sort by this column, from large to small: connections, rate, refusals or bytes. (default: ${default})"`
	Top     int    `placeholder:"N" default:"20" help:"List at most this many sources. (default: ${default})"`
	Prefix  int    `placeholder:"BITS" default:"32" help:"Count IPv4 addresses that share this many leading bits as one source. (default: ${default})"`
	Prefix6 int    `name:"prefix6" placeholder:"BITS" default:"64" help:"Count IPv6 addresses that share this many leading bits as one source. (default: ${default})"`
	JSON    bool   `name:"json" help:"Print JSON."`
}

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

func writeSources(w io.Writer, s *admin.Sources) error {
	rows := [][]string{{"source", "connections", "new/s", "refused", "bytes of present connections"}}
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
	End      bool     `help:"Also end the source's sessions immediately."`
	JSON     bool     `name:"json" help:"Print JSON."`
}

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

func writeDenial(w io.Writer, d *admin.NewDenial) error {
	at := when(d.Listener != "", " at listener "+d.Listener)
	_, err := fmt.Fprintf(w, "%s is denied%s until %s\n", display.Text(d.Source), display.Text(at), d.Until.Local().Format(time.DateTime))
	if d.Ended != nil {
		err = writeEnded(w, d.Ended)
	}
	return errors.Join(err, say(w, "%s", unkept(d.Unkept)))
}

func writeGoingOn(w io.Writer, n int64, q *admin.SessionQuery) error {
	if n == 0 {
		return nil
	}
	return say(w, "%s: penstock sessions end %s --now ends them, as --end does\n", plural(n, "session of this source continues", "sessions of this source continue"), display.Text(q.String()))
}

type denyRemoveCmd struct {
	adminFlags
	Source   string `arg:"" names:"denial" help:"The source, as penstock deny list prints it."`
	Listener string `placeholder:"NAME" help:"The listener of the denial, if it is for one listener."`
}

func (c *denyRemoveCmd) Run(e *cli.Env) error {
	return c.ask(e, "deny remove", func(ctx context.Context, client *admin.Client) error {
		done, err := client.Undeny(ctx, c.Source, c.Listener)
		if err == nil {
			at := when(c.Listener != "", " at listener "+c.Listener)
			err = say(e.Stdout, "%s is no longer denied%s\n%s", display.Text(c.Source), display.Text(at), unkept(done.Unkept))
		}
		return err
	})
}

type denyListCmd struct {
	adminFlags
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *denyListCmd) Run(e *cli.Env) error {
	return show(e, c, "deny list", c.JSON, func(ctx context.Context, client *admin.Client) (admin.Denied, error) {
		return client.Denied(ctx)
	}, func(w io.Writer, d *admin.Denied) error { return writeDenied(w, d, time.Now()) })
}

func writeDenied(w io.Writer, d *admin.Denied, now time.Time) error {
	if len(d.Denied) == 0 {
		return say(w, "no source is denied\n")
	}
	rows := [][]string{{"source", "listener", "until", "left", "by"}}
	for _, one := range d.Denied {
		rows = append(rows, []string{one.Source, cmp.Or(one.Listener, "all") + when(one.Waits != "", " ("+one.Waits+")"), one.Until.Local().Format(time.DateTime), one.Until.Sub(now).Round(time.Second).String(), cmp.Or(one.By, "-")})
	}
	return writeTable(w, rows, "")
}
