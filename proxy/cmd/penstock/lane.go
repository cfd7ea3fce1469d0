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

type laneCmd struct {
	List  laneListCmd  `cmd:"" default:"withargs" help:"List the sessions that have left user space, and say why others stay (the default)."`
	Off   laneOffCmd   `cmd:"" help:"Keep all sessions in user space until penstock lane on or a restart, and bring back the sessions that have left. With --keep these sessions stay where they are."`
	On    laneOnCmd    `cmd:"" help:"Let sessions leave user space again."`
	Flush laneFlushCmd `cmd:"" help:"Reset the sessions that have left user space, on both sides. On a terminal the command asks first."`
}

type laneListCmd struct {
	adminFlags
	JSON bool `name:"json" help:"Print JSON."`
}

// A laneList is the lane of a process with its sessions.
type laneList struct {
	Lane     *admin.Lane     `json:"lane"`
	Sessions []admin.Session `json:"sessions"`
}

func (c *laneListCmd) Run(e *cli.Env) error {
	return show(e, c, "lane", c.JSON, func(ctx context.Context, client *admin.Client) (l laneList, err error) {
		st, err := client.Status(ctx)
		if err != nil {
			return l, err
		}
		list, err := client.Sessions(ctx, admin.SessionQuery{Engine: admin.EngineLane}, admin.SessionOrder{})
		return laneList{st.Lane, list.Sessions}, err
	}, func(w io.Writer, l *laneList) error {
		if err := writeLane(w, l.Lane); err != nil || len(l.Sessions) == 0 {
			return err
		}
		return writeSessions(w, &admin.Sessions{Sessions: l.Sessions})
	})
}

func writeLane(w io.Writer, l *admin.Lane) error {
	if l == nil {
		return say(w, "sessions stay in user space: no listener has lane: auto or require\n")
	}
	_, err := fmt.Fprintln(w, laneLine(l))
	for _, text := range []string{l.Trouble(), l.PinsTrouble()} {
		if err == nil && text != "" {
			_, err = fmt.Fprintln(w, display.Text(text))
		}
	}
	if err == nil && len(l.Stays) > 0 {
		_, err = fmt.Fprintln(w, "attempts that stayed in user space: "+listed(l.Stays))
	}
	if err == nil && len(l.Unrestored) > 0 {
		_, err = fmt.Fprintln(w, "reset because they could not come back: "+listed(l.Unrestored))
	}
	return err
}

func laneLine(l *admin.Lane) string {
	line := l.State
	line += when(l.Why != "", ": "+display.Text(l.Why))
	line += fmt.Sprintf("; %d of %d sessions in the lane now, %s left user space, %s reset", l.Active, l.Most, plural(l.Left, "has", "have"), plural(l.Reset, "was", "were"))
	line += when(l.Returned > 0, fmt.Sprintf("; %s come back", plural(l.Returned, "has", "have")))
	line += when(l.Adopted > 0, fmt.Sprintf("; %d adopted", l.Adopted))
	line += when(l.GoOn > 0, fmt.Sprintf("; the process drains, and %s on after its end", plural(l.GoOn, "session goes", "sessions go")))
	return line
}

type laneOffCmd struct {
	adminFlags
	Keep bool `help:"Leave the sessions that have left user space where they are."`
}

func (c *laneOffCmd) Run(e *cli.Env) error {
	return c.ask(e, "lane off", func(ctx context.Context, client *admin.Client) error {
		off, err := client.SwitchLane(ctx, false)
		if err != nil || c.Keep {
			return writeLaneState(e.Stdout, &off, asBefore(&off)+": sessions that have left user space stay there", err)
		}
		back, err := client.ReturnLane(ctx)
		return writeLaneState(e.Stdout, &back, asBefore(&off)+returnedOf(&back), err)
	})
}

type laneOnCmd struct{ adminFlags }

func (c *laneOnCmd) Run(e *cli.Env) error {
	return c.ask(e, "lane on", func(ctx context.Context, client *admin.Client) error {
		changed, err := client.SwitchLane(ctx, true)
		return writeLaneState(e.Stdout, &changed, asBefore(&changed), err)
	})
}

type laneFlushCmd struct {
	adminFlags
	DryRun bool `help:"Say how many sessions there are, and reset none."`
	Yes    bool `help:"Do not ask on a terminal."`
}

// Run resets the sessions that have left user space. On a terminal it asks first.
func (c *laneFlushCmd) Run(e *cli.Env) error {
	return c.ask(e, "lane flush", func(ctx context.Context, client *admin.Client) error {
		if goOn, err := c.confirmed(ctx, e, client); !goOn {
			return err
		}
		changed, err := client.FlushLane(ctx)
		return writeLaneState(e.Stdout, &changed, flushedOf(&changed), err)
	})
}

// confirmed says how many sessions will be reset, and on a terminal asks. It reports whether to go on. If there is no
// lane, or its sessions outlive the process, the process refuses the change.
func (c *laneFlushCmd) confirmed(ctx context.Context, e *cli.Env, client *admin.Client) (bool, error) {
	st, err := client.Status(ctx)
	if err != nil {
		return false, err
	}
	l := st.Lane
	none := l == nil || l.GoOn > 0
	switch {
	case none && c.DryRun:
		return false, writeLane(e.Stdout, l)
	case none, c.Yes && !c.DryRun:
		return true, nil
	}
	result := when(l.Active > 0, ": all are reset on both sides")
	if _, err := fmt.Fprint(e.Stdout, plural(l.Active, "session", "sessions"), " selected", result, "\n"); err != nil || c.DryRun {
		return false, err
	}
	if l.Active == 0 {
		return true, nil
	}
	err = confirm(ctx, e, "lane flush", "reset them?")
	return err == nil, err
}

// writeLaneState writes the state of the lane after a change, and the result of the change.
func writeLaneState(w io.Writer, l *admin.LaneChanged, result string, err error) error {
	if err == nil {
		_, err = fmt.Fprintf(w, "the lane is %s%s\n", l.State, result)
	}
	return err
}

// asBefore returns the result of a switch that changed nothing.
func asBefore(l *admin.LaneChanged) string {
	return when(!l.Changed, ", as before")
}

// noneHadLeft is the result if the lane had no sessions.
const noneHadLeft = ": no session had left user space"

// returnedOf describes how the sessions came back.
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

// flushedOf says how many sessions were reset. None of them comes back.
func flushedOf(l *admin.LaneChanged) string {
	if l.Reset == 0 {
		return noneHadLeft
	}
	return fmt.Sprintf(": %s reset on both sides", plural(int64(l.Reset), "session is", "sessions are"))
}

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

func (c *listenerDrainCmd) Run(e *cli.Env) error {
	return show(e, c, "listener drain", false, func(ctx context.Context, client *admin.Client) (admin.ListenerDrained, error) {
		return client.DrainListener(ctx, c.Name)
	}, func(w io.Writer, done *admin.ListenerDrained) error {
		before := when(!done.Changed, ", as before")
		sessions := plural(done.Sessions, "session", "sessions")
		switch {
		case done.Sessions == 0:
			sessions = "it has no sessions"
		case done.Until.IsZero():
			sessions += " reset now, because drain_timeout is 0"
		default:
			sessions += fmt.Sprintf(" may last until %s", done.Until.Local().Format(time.DateTime))
		}
		return say(w, "listener %s is closed%s: %s\n%s", display.Text(c.Name), before, sessions, unkept(done.Unkept))
	})
}

type listenerReadyCmd struct {
	adminFlags
	Name string `arg:"" help:"The listener."`
}

func (c *listenerReadyCmd) Run(e *cli.Env) error {
	return change(e, c, "listener ready", "listener "+c.Name+" is open", func(ctx context.Context, client *admin.Client) (admin.Changed, error) {
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
	return change(e, c, "split set", fmt.Sprintf("listener %s, route %d: %s", c.Listener, c.Route, shares(percent)), func(ctx context.Context, client *admin.Client) (admin.Changed, error) {
		return client.SetSplit(ctx, c.Listener, c.Route, percent)
	})
}
