package main

import (
	"context"
	"fmt"
	"io"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

type laneCmd struct {
	List  laneListCmd  `cmd:"" default:"withargs" help:"List the sessions that have left user space, and why others stay (the default)."`
	Off   laneOffCmd   `cmd:"" help:"Have no further session leave user space, until on or a restart, and have those that have left come back. Adopted ones, of a process before this one, cannot: they are reset on both sides, and counted; on a terminal it asks before. With --keep, sessions that have left user space stay there."`
	On    laneOnCmd    `cmd:"" help:"Have sessions leave user space again."`
	Flush laneFlushCmd `cmd:"" help:"Reset the sessions that have left user space, on both sides in sequence. On a terminal it asks before."`
}

type laneListCmd struct {
	adminFlags
	JSON bool `name:"json" help:"In JSON."`
}

// A laneList is the lane of a process, and the sessions in it.
type laneList struct {
	Lane     *admin.Lane     `json:"lane"`
	Sessions []admin.Session `json:"sessions"`
}

// Run lists the sessions that have left user space.
func (c *laneListCmd) Run(e *cli.Env) error {
	return c.ask(e, "lane", func(ctx context.Context, client *admin.Client) error {
		st, err := client.Status(ctx)
		if err != nil {
			return err
		}
		list, err := client.Sessions(ctx, admin.SessionQuery{Engine: admin.EngineLane}, admin.SessionOrder{})
		switch {
		case err != nil:
			return err
		case c.JSON:
			return writeJSON(e.Stdout, laneList{st.Lane, list.Sessions})
		}
		if err := writeLane(e.Stdout, st.Lane); err != nil || len(list.Sessions) == 0 {
			return err
		}
		return writeSessions(e.Stdout, &list)
	})
}

// writeLane writes the state of the lane.
func writeLane(w io.Writer, l *admin.Lane) error {
	if l == nil {
		_, err := fmt.Fprintln(w, "sessions stay in user space: no listener has lane: auto or require")
		return err
	}
	_, err := fmt.Fprintln(w, laneLine(l))
	for _, text := range []string{l.Trouble(), l.PinsTrouble()} {
		if err == nil && text != "" {
			_, err = fmt.Fprintln(w, display.Text(text))
		}
	}
	if err == nil && len(l.Stays) > 0 {
		_, err = fmt.Fprintln(w, "attempts that stayed in user space: "+counts(l.Stays))
	}
	if err == nil && len(l.Unrestored) > 0 {
		_, err = fmt.Fprintln(w, "reset, for they could not come back: "+counts(l.Unrestored))
	}
	return err
}

// laneLine is the state of the lane in one line.
func laneLine(l *admin.Lane) string {
	line := l.State
	if l.Why != "" {
		line += ": " + display.Text(l.Why)
	}
	return line + fmt.Sprintf("; %d of %d sessions in the lane now, left %d times, %d of the ended sessions were reset", l.Active, l.Most, l.Left, l.Reset) + returnedText(l) + adoptedText(l) + goOnText(l)
}

// returnedText has the sessions that have come back.
func returnedText(l *admin.Lane) string {
	if l.Returned == 0 {
		return ""
	}
	return fmt.Sprintf("; %d have come back", l.Returned)
}

// adoptedText has the sessions of a process before.
func adoptedText(l *admin.Lane) string {
	if l.Adopted == 0 {
		return ""
	}
	return fmt.Sprintf("; %d adopted, %d of them now", l.Adopted, l.AdoptedActive)
}

// goOnText has the sessions that go on without the process.
func goOnText(l *admin.Lane) string {
	if l.GoOn == 0 {
		return ""
	}
	return fmt.Sprintf("; the process drains: %s on without it", plural(l.GoOn, "session goes", "sessions go"))
}

// laneResetFlags are those of the commands that reset sessions.
type laneResetFlags struct {
	DryRun bool `help:"Only say how many sessions there are."`
	Yes    bool `help:"Do not ask on a terminal."`
}

// count says how many sessions a command selects, and what becomes of them, as text does; on a terminal it asks if some are reset. It reports
// whether the command is to go on. Where there is no lane, or its sessions go on without the process, the process refuses the change.
func (f *laneResetFlags) count(ctx context.Context, e *cli.Env, client *admin.Client, command string, text func(own, adopted int64) (said string, resets bool)) (bool, error) {
	st, err := client.Status(ctx)
	switch l := st.Lane; {
	case err != nil:
		return false, err
	case l == nil || l.GoOn > 0:
		if !f.DryRun {
			return true, nil
		}
		return false, writeLane(e.Stdout, l)
	}
	own, adopted := max(st.Lane.Active-st.Lane.AdoptedActive, 0), st.Lane.AdoptedActive
	said, resets := text(own, adopted)
	if f.DryRun || resets && !f.Yes {
		if _, err := fmt.Fprint(e.Stdout, plural(own+adopted, "session", "sessions"), " selected", said, "\n"); err != nil || f.DryRun {
			return false, err
		}
	}
	if !resets || f.Yes {
		return true, nil
	}
	err = confirm(ctx, e, command, "reset them?")
	return err == nil, err
}

type laneOffCmd struct {
	adminFlags
	laneResetFlags
	Keep bool `help:"Sessions that have left user space stay there."`
}

// Run switches the lane off. On a terminal it asks if that resets adopted sessions.
func (c *laneOffCmd) Run(e *cli.Env) error {
	if c.Keep && c.DryRun {
		return cli.Usagef("lane off: --keep has all sessions go on where they are: leave it out, or --dry-run")
	}
	return c.ask(e, "lane off", func(ctx context.Context, client *admin.Client) error {
		if !c.Keep {
			if goOn, err := c.count(ctx, e, client, "lane off", offText); !goOn {
				return err
			}
		}
		changed, err := client.SwitchLane(ctx, false)
		if err != nil || c.Keep {
			return writeLaneState(e.Stdout, &changed, ": sessions that have left user space stay there", err)
		}
		changed, err = client.ReturnLane(ctx)
		return writeLaneState(e.Stdout, &changed, returnedOf(&changed), err)
	})
}

// offText is what becomes of sessions when the lane is switched off, and whether some of them are reset in any case.
func offText(own, adopted int64) (said string, resets bool) {
	switch {
	case adopted == 0 && own == 0:
		return "", false
	case adopted == 0:
		return fmt.Sprintf(": %s back to user space", plural(own, "comes", "come")), false
	}
	reset := plural(adopted, "is adopted, and is", "are adopted, and are") + " reset on both sides"
	if own == 0 {
		return ": " + reset, true
	}
	return fmt.Sprintf(": %s back to user space, %s", plural(own, "comes", "come"), reset), true
}

type laneOnCmd struct{ adminFlags }

// Run switches the lane on.
func (c *laneOnCmd) Run(e *cli.Env) error {
	return c.ask(e, "lane on", func(ctx context.Context, client *admin.Client) error {
		changed, err := client.SwitchLane(ctx, true)
		return writeLaneState(e.Stdout, &changed, "", err)
	})
}

type laneFlushCmd struct {
	adminFlags
	laneResetFlags
}

// Run resets the sessions that have left user space. On a terminal it asks.
func (c *laneFlushCmd) Run(e *cli.Env) error {
	return c.ask(e, "lane flush", func(ctx context.Context, client *admin.Client) error {
		if goOn, err := c.count(ctx, e, client, "lane flush", flushText); !goOn {
			return err
		}
		changed, err := client.FlushLane(ctx)
		return writeLaneState(e.Stdout, &changed, flushedOf(&changed), err)
	})
}

// flushText is what becomes of sessions that are flushed, and whether there are any.
func flushText(own, adopted int64) (said string, resets bool) {
	switch {
	case own+adopted == 0:
		return "", false
	case adopted == 0:
		return ": all are reset on both sides", true
	}
	return fmt.Sprintf(": all are reset on both sides, %d of them adopted", adopted), true
}

// writeLaneState writes the state of the lane after a change, and the result of that.
func writeLaneState(w io.Writer, l *admin.LaneChanged, result string, err error) error {
	if err == nil {
		_, err = fmt.Fprintf(w, "the lane is %s%s\n", l.State, result)
	}
	return err
}

// noneHadLeft is the result of a change that has found no session in the lane.
const noneHadLeft = ": no session had left user space"

// returnedOf is what has become of the sessions that were to come back.
func returnedOf(l *admin.LaneChanged) string {
	switch {
	case l.Returned == 0 && l.Reset == 0:
		return noneHadLeft
	case l.Reset == 0:
		return fmt.Sprintf(": %s come back to user space", plural(int64(l.Returned), "session has", "sessions have"))
	case l.Returned == 0:
		return fmt.Sprintf(": no session has come back to user space, and %s reset", plural(int64(l.Reset), "is", "are"))
	}
	return fmt.Sprintf(": %s come back to user space, and %s reset", plural(int64(l.Returned), "session has", "sessions have"), plural(int64(l.Reset), "is", "are"))
}

// flushedOf is how many sessions are reset, of which none comes back.
func flushedOf(l *admin.LaneChanged) string {
	if l.Reset == 0 {
		return noneHadLeft
	}
	return fmt.Sprintf(": %s reset on both sides", plural(int64(l.Reset), "session is", "sessions are"))
}
