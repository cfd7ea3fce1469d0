package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/rollback"
)

type reloadCmd struct {
	processFlags
	Confirm    *cli.Timeout `placeholder:"TIME" help:"Return to the configuration before unless penstock confirm comes within this time, such as 2m."`
	RollbackIf *string      `placeholder:"COUNTER>N" help:"Return to it at once if this counter rises by more than N within that time, such as 'failures>50'."`
}

// Run reloads the configuration of a running process.
func (c *reloadCmd) Run(e *cli.Env) error {
	var o rollback.Options
	if c.Confirm != nil { // --confirm 0 must not make a permanent reload
		o.Confirm = c.Confirm.Duration()
	}
	if c.Confirm != nil && rollback.CheckConfirm(o.Confirm) != nil {
		return cli.Usagef("reload: --confirm: write a time from 1s to 24h, such as 2m (see: penstock reload --help)")
	}
	if c.RollbackIf != nil { // nor may an empty bound make one without a bound
		o.RollbackIf = *c.RollbackIf
		if o.Confirm == 0 {
			return cli.Usagef("reload: --rollback-if needs --confirm, for how long the counter is watched: write for example --confirm 2m (see: penstock reload --help)")
		}
		if _, err := rollback.ParseBound(o.RollbackIf); err != nil {
			return cli.Usagef("reload: %w (see: penstock reload --help)", err)
		}
	}
	return c.ask(e, "reload", func(ctx context.Context, client *admin.Client) error {
		done, err := client.Reload(ctx, o)
		if err != nil {
			return err
		}
		return writeReloaded(e.Stdout, done, o.Confirm != 0)
	})
}

// writeReloaded prints the changes of a reload. confirm says that it was to be confirmed.
func writeReloaded(w io.Writer, done admin.Reloaded, confirm bool) error {
	var err error
	switch {
	case len(done.Changes) > 0:
		err = writeInForce(w, done.Generation, "is in force", done.Changes)
	case confirm:
		_, err = fmt.Fprintf(w, "the configuration is unchanged: generation %d stays in force, and nothing waits to be confirmed\n", done.Generation)
	default:
		_, err = fmt.Fprintf(w, "the configuration is unchanged: generation %d stays in force\n", done.Generation)
	}
	writeHandChanges(w, "ended", done.Ended)
	if p := done.Pending; p != nil && err == nil {
		_, err = fmt.Fprintf(w, "it will be rolled back at %s unless penstock confirm --generation %d comes first%s\n", p.Until.Local().Format(time.TimeOnly), p.Generation, display.Text(boundWords(p.RollbackIf)))
	}
	return err
}

// writeInForce prints the changes to a generation.
func writeInForce(w io.Writer, generation int, is string, changes []string) error {
	for _, line := range changes {
		fmt.Fprintf(w, "  %s\n", display.Text(line))
	}
	_, err := fmt.Fprintf(w, "generation %d %s: %s\n", generation, is, count(len(changes), "change"))
	return err
}

func boundWords(bound string) string {
	if bound == "" {
		return ""
	}
	return ", and at once if " + bound
}

type confirmCmd struct {
	processFlags
	Generation *int `placeholder:"N" help:"Confirm this generation, as penstock reload has printed it, and no other. (default: the one that waits)"`
}

// Run confirms the pending reload.
func (c *confirmCmd) Run(e *cli.Env) error {
	number := 0
	if c.Generation != nil {
		if number = *c.Generation; number < 1 {
			return cli.Usagef("confirm: --generation %d: write 1 or more (see: penstock confirm --help)", number)
		}
	}
	return c.ask(e, "confirm", func(ctx context.Context, client *admin.Client) error {
		now, err := client.Confirm(ctx, number)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(e.Stdout, "generation %d is confirmed\n", now.Generation)
		return err
	})
}

type rollbackCmd struct {
	processFlags
	To   *int `placeholder:"N" help:"Return to this generation. (default: the one before)"`
	List bool `help:"List the generations that a rollback can return to, with their changes, and change nothing."`
}

// Run rolls a running process back to an earlier configuration.
func (c *rollbackCmd) Run(e *cli.Env) error {
	to := 0
	switch {
	case c.List && c.To != nil:
		return cli.Usagef("rollback: --list changes nothing: leave --to out (see: penstock rollback --help)")
	case c.To != nil && *c.To < 1:
		return cli.Usagef("rollback: --to %d: write 1 or more (see: penstock rollback --help)", *c.To)
	case c.To != nil:
		to = *c.To
	}
	return c.ask(e, "rollback", func(ctx context.Context, client *admin.Client) error {
		if c.List {
			s, err := client.Generations(ctx)
			if err != nil {
				return err
			}
			return writeGenerations(e.Stdout, &s)
		}
		done, err := client.Rollback(ctx, to)
		if err != nil {
			return err
		}
		return writeRolledBack(e.Stdout, &done)
	})
}

// writeRolledBack prints the result of a rollback.
func writeRolledBack(w io.Writer, done *admin.RolledBack) error {
	err := writeInForce(w, done.Generation, "is in force again", done.Changes)
	writeHandChanges(w, "ended", done.Ended)
	writeHandChanges(w, "are in force again", done.Restored)
	if r := done.Refused; r != nil && err == nil {
		_, err = fmt.Fprintf(w, "%s still has generation %d: the next reload or start brings it back; penstock plan shows the difference\n", display.Text(r.Path), r.Generation)
	}
	return err
}

// writeGenerations prints the generations that are kept, with their changes.
func writeGenerations(w io.Writer, s *rollback.Status) error {
	t := new(statusText)
	for i := range s.History {
		r := &s.History[i]
		t.row("generation", strconv.Itoa(r.Generation), string(r.State), fmt.Sprintf("%s, by %s", r.At.Local().Format(time.DateTime), r.By))
		if r.Why != "" {
			t.note("%s: %s", r.State, r.Why)
		}
		for _, line := range r.Changes {
			t.note("%s", line)
		}
	}
	return t.write(w, nil)
}

// writeHandChanges prints changes by hand, and what has become of them.
func writeHandChanges(w io.Writer, verb string, list []admin.LiveChange) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "changes by hand that %s:\n", verb)
	for i := range list {
		c := &list[i]
		fmt.Fprintf(w, "  %s\n", display.Text(c.What))
		why := ""
		if c.Ends != "" {
			why = ": " + c.Ends
		}
		fmt.Fprintf(w, "    %s\n", display.Text(fmt.Sprintf("by %s at %s%s", c.By, c.Since.Local().Format(time.DateTime), why)))
	}
}
