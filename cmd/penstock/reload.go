package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/generation"
)

type reloadCmd struct {
	adminFlags
	Confirm    *timeout `placeholder:"TIME" help:"Return to the configuration before unless penstock confirm comes within this time, such as 2m."`
	RollbackIf *string  `placeholder:"COUNTER>N" help:"Return to it at once if this counter rises by more than N within that time, such as 'failures>50'."`
}

// Run has a running process read its configuration again.
func (c *reloadCmd) Run(e *env) error {
	var o generation.Options
	if c.Confirm != nil { // a confirm of no time must not make a reload that stays
		o.Confirm = c.Confirm.duration()
	}
	if c.Confirm != nil && generation.CheckConfirm(o.Confirm) != nil {
		return usagef("reload: --confirm: write a time from 1s to 24h, such as 2m (see: penstock reload --help)")
	}
	if c.RollbackIf != nil { // nor an empty bound one without
		o.RollbackIf = *c.RollbackIf
		if o.Confirm == 0 {
			return usagef("reload: --rollback-if needs --confirm, for how long the counter is watched: write for example --confirm 2m (see: penstock reload --help)")
		}
		if _, err := generation.ParseBound(o.RollbackIf); err != nil {
			return usagef("reload: %w (see: penstock reload --help)", err)
		}
	}
	return c.ask(e, "reload", func(ctx context.Context, client *admin.Client) error {
		done, err := client.Reload(ctx, o)
		if err != nil {
			return err
		}
		return writeReloaded(e.stdout, done)
	})
}

// writeReloaded writes what a reload has changed.
func writeReloaded(w io.Writer, done admin.Reloaded) error {
	for _, line := range done.Changes {
		fmt.Fprintf(w, "  %s\n", display.Text(line))
	}
	_, err := fmt.Fprintf(w, "generation %d is in force: %s\n", done.Generation, count(len(done.Changes), "change"))
	if p := done.Pending; p != nil && err == nil {
		_, err = fmt.Fprintf(w, "it is rolled back at %s unless penstock confirm --generation %d comes first%s\n", p.Until.Local().Format(time.TimeOnly), p.Generation, display.Text(boundWords(p.RollbackIf)))
	}
	return err
}

func boundWords(bound string) string {
	if bound == "" {
		return ""
	}
	return ", and at once if " + bound
}

type confirmCmd struct {
	adminFlags
	Generation *int `placeholder:"N" help:"The generation that penstock reload has told: no other is confirmed. (default: whichever waits)"`
}

// Run has the reload that waits to be confirmed stay.
func (c *confirmCmd) Run(e *env) error {
	number := 0
	if c.Generation != nil {
		if number = *c.Generation; number < 1 {
			return usagef("confirm: --generation %d: write 1 or more (see: penstock confirm --help)", number)
		}
	}
	return c.settle(e, "confirm", "generation %d stays\n", func(client *admin.Client, ctx context.Context) (admin.Settled, error) {
		return client.Confirm(ctx, number)
	})
}

type rollbackCmd struct{ adminFlags }

// Run has a running process return to the configuration before.
func (c *rollbackCmd) Run(e *env) error {
	return c.settle(e, "rollback", "generation %d is in force again\n", (*admin.Client).Rollback)
}

// settle asks for something, and says which generation is in force then.
func (f *adminFlags) settle(e *env, command, said string, ask func(*admin.Client, context.Context) (admin.Settled, error)) error {
	return f.ask(e, command, func(ctx context.Context, client *admin.Client) error {
		now, err := ask(client, ctx)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(e.stdout, said, now.Generation)
		return err
	})
}
