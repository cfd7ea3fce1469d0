package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/rollback"
)

type reloadCmd struct {
	adminFlags
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
		return writeReloaded(e.Stdout, done)
	})
}

// writeReloaded prints the changes of a reload.
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
	Generation *int `placeholder:"N" help:"The generation that penstock reload has printed: no other is confirmed. (default: the one that waits)"`
}

// Run confirms the pending reload.
func (c *confirmCmd) Run(e *cli.Env) error {
	number := 0
	if c.Generation != nil {
		if number = *c.Generation; number < 1 {
			return cli.Usagef("confirm: --generation %d: write 1 or more (see: penstock confirm --help)", number)
		}
	}
	return c.settle(e, "confirm", "generation %d stays\n", func(client *admin.Client, ctx context.Context) (admin.Outcome, error) {
		return client.Confirm(ctx, number)
	})
}

type rollbackCmd struct{ adminFlags }

// Run rolls a running process back to the previous configuration.
func (c *rollbackCmd) Run(e *cli.Env) error {
	return c.settle(e, "rollback", "generation %d is in force again\n", (*admin.Client).Rollback)
}

// settle makes a request, and prints the generation that is in force afterwards.
func (f *adminFlags) settle(e *cli.Env, command, done string, ask func(*admin.Client, context.Context) (admin.Outcome, error)) error {
	return f.ask(e, command, func(ctx context.Context, client *admin.Client) error {
		now, err := ask(client, ctx)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(e.Stdout, done, now.Generation)
		return err
	})
}
