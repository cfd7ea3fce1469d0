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
)

type sessionsEndCmd struct {
	adminFlags
	sessionFlags
	All       bool        `help:"All sessions."`
	Now       bool        `help:"At once, in the middle of whatever they do."`
	Over      cli.Timeout `placeholder:"TIME" help:"Spread over a time, at random, so that their clients do not all come back together."`
	Grace     cli.Timeout `placeholder:"TIME" help:"How long each may take to become quiet; then it goes on. (default: 30s)"`
	Quiet     cli.Timeout `placeholder:"TIME" help:"A session counts as quiet if no byte has moved for this time, and the last one came from the endpoint. Whether an answer was whole is not known: write a time that is longer than the pauses of the endpoints' answers. 1s will do where each question has one answer, in one piece, and TLS, HTTP/2 and pipelining are not spoken. (default: 10s)"`
	ThenReset bool        `help:"End those as well that are not quiet after --grace."`
	DryRun    bool        `help:"Only say how many there are."`
	Yes       bool        `help:"Do not ask on a terminal."`
	Stop      bool        `help:"Call off the ends that are under way: the rest of their sessions goes on."`
	JSON      bool        `name:"json" help:"In JSON."`
}

// Run ends sessions of a running process.
func (c *sessionsEndCmd) Run(e *cli.Env) error {
	if c.Stop {
		if *c != (sessionsEndCmd{adminFlags: c.adminFlags, Stop: true, JSON: c.JSON}) {
			return cli.Usagef("sessions end: write --stop alone")
		}
		return c.ask(e, "sessions end", func(ctx context.Context, client *admin.Client) error { return c.stop(ctx, e, client) })
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
		return admin.EndQuery{}, cli.Usagef("sessions end: --all is without the other ways to select: leave it out, or them")
	case !selected.Selects() && !c.All:
		return admin.EndQuery{}, cli.Usagef("sessions end: write which: --endpoint, --upstream, --listener, --source, --older, --idle, --bytes, --state, --verdict, --id, or --all (see: penstock sessions end --help)")
	case slices.Contains(admin.StatesWithoutEndpoint, c.State):
		return admin.EndQuery{}, cli.Usagef("sessions end: --state %s: these clients have no endpoint yet, and no session that could end: penstock deny add SOURCE --for TIME refuses those that wait, too", c.State)
	case c.Now && (c.Grace != 0 || c.Quiet != 0 || c.ThenReset):
		return admin.EndQuery{}, cli.Usagef("sessions end: --grace, --quiet and --then-reset are for sessions that end gently: leave them out, or --now")
	}
	return admin.EndQuery{SessionQuery: selected, All: c.All, Now: c.Now, Over: c.Over.Duration(), Grace: c.Grace.Duration(), Quiet: c.Quiet.Duration(), ThenReset: c.ThenReset}, nil
}

// end ends sessions. It says how many there are, and when each will end; on a terminal it asks.
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
		return interrupted(e, "sessions end: interrupted, and what has begun goes on: penstock sessions end --stop calls it off")
	case err != nil:
		return err
	case c.JSON:
		return writeJSON(e.Stdout, ended)
	}
	fmt.Fprint(e.Stdout, plural(ended.Touched, "session", "sessions"), ": ") // maybe others than were counted before
	if err := writeEnded(e.Stdout, &ended); err != nil {
		return err
	}
	if ended.Kept == 0 {
		ended.Unanswering = 0
	}
	ended.WithoutEndpoint = 0 // the count has said that
	return writeAside(e.Stdout, &ended)
}

// count says how many sessions there are, and when they will end.
func (c *sessionsEndCmd) count(ctx context.Context, e *cli.Env, client *admin.Client, q admin.EndQuery) (admin.Ended, error) {
	q.DryRun = true
	found, err := client.EndSessions(ctx, q)
	switch {
	case err != nil:
		return found, err
	case c.JSON:
		return found, writeJSON(e.Stdout, found)
	}
	fmt.Fprint(e.Stdout, plural(found.Touched, "session", "sessions"), " selected", whenEnded(&q, found.Touched), "\n")
	return found, writeAside(e.Stdout, &found)
}

// whenEnded says when n sessions end that a query selects.
func whenEnded(q *admin.EndQuery, n int64) string {
	turn, since := "", ""
	if q.Over > 0 {
		turn, since = fmt.Sprintf(" its moment comes, at random within %v, and", q.Over), " of it"
	}
	switch {
	case n == 0:
		return ""
	case q.Now && q.Over > 0:
		return fmt.Sprintf(": each ends at a random moment within %v, in the middle of whatever it does", q.Over)
	case q.Now:
		return ": all end at once, in the middle of whatever they do"
	}
	quiet, grace := cmp.Or(q.Quiet, admin.DefaultQuiet), cmp.Or(q.Grace, admin.DefaultGrace)
	late := "goes on"
	if q.ThenReset {
		late = "ends all the same"
	}
	return fmt.Sprintf(": none at once; each ends as soon as%s it has moved no byte for %v, the last from its endpoint; one that has not been quiet within %v%s %s", turn, quiet, grace, since, late)
}

// writeAside warns of clients that are not sessions, and of sessions that cannot be quiet.
func writeAside(w io.Writer, e *admin.Ended) error {
	if e.WithoutEndpoint > 0 {
		fmt.Fprintln(w, plural(e.WithoutEndpoint, "client has", "clients have"), "no endpoint yet, and no session that could end: left alone")
	}
	if e.Unanswering == 0 || e.QuietUs == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "%d of an endpoint that is down, ejected or silent: it may stand still in the middle of an answer, so they are not quiet; --then-reset ends them after --grace, --now at once\n", e.Unanswering)
	return err
}

// confirm asks on a terminal, and returns the error with which the command ends unless the answer is yes. Without a terminal it does not ask.
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

// agrees asks. The error is that of ctx: the answer is not waited for any more, and in is read on.
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
		fmt.Fprintln(e.Stdout) // the question's line has no end
		return false, ctx.Err()
	}
}

// exitInterrupted is the exit code of a command that was interrupted, as shells have it of SIGINT.
const exitInterrupted = 128 + int(syscall.SIGINT)

// interrupted reports what an interrupt has left.
func interrupted(e *cli.Env, text string) error {
	e.PrintError(errors.New(text))
	return cli.ExitCode(exitInterrupted)
}

// writeEnded writes what has become of the sessions.
func writeEnded(w io.Writer, e *admin.Ended) error {
	fmt.Fprintf(w, "%d ended", e.Ended)
	for _, of := range []struct {
		n    int64
		text string
	}{{e.Other, "had been ended by another request"}, {e.Left, "had ended by themselves"}, {e.Kept, "go on: they were not quiet in time"}, {e.Stopped, "go on: the request was called off"}, {e.Waiting, "wait for their turn, or until they are quiet"}} {
		if of.n > 0 {
			fmt.Fprintf(w, ", %d %s", of.n, of.text)
		}
	}
	if !e.Done {
		fmt.Fprintf(w, "; the last ends by %s, and the log has the numbers then", e.Until.Local().Format(time.TimeOnly))
	}
	if e.Ended > 0 && e.QuietUs > 0 {
		fmt.Fprintf(w, "\nquiet: no byte for %v, the last from the endpoint; whether its answer was whole is not known", time.Duration(e.QuietUs)*time.Microsecond)
	}
	_, err := fmt.Fprintln(w)
	return err
}

// stop calls off the ends that are under way.
func (c *sessionsEndCmd) stop(ctx context.Context, e *cli.Env, client *admin.Client) error {
	s, err := client.StopEnding(ctx)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return writeJSON(e.Stdout, s)
	}
	_, err = fmt.Fprintf(e.Stdout, "%s stopped, %s on\n", plural(int64(s.Requests), "request", "requests"), plural(s.Kept, "session goes", "sessions go"))
	return err
}

// plural writes a number of things.
func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}
