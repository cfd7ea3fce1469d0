package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/display"
)

type planCmd struct {
	configFlag
	accessFlags
}

// Run prints the changes that a configuration would make in the running process, and the
// connections affected. It changes nothing.
func (c *planCmd) Run(e *cli.Env) error {
	next, err := c.load(e, "plan")
	if err == nil {
		err = printProblems(e, next.Warnings)
	}
	if err != nil {
		return err
	}
	if c.address(e) == "" && next.Admin == nil {
		if err := elsewhere(e.Environment(), c.path, errAdminOff); !errors.Is(err, errAdminOff) {
			return err
		}
		return c.unasked(e, next, `its admin is off, so no process was asked`)
	}
	path, err := filepath.Abs(c.path)
	if err != nil {
		return err
	}
	var p admin.Plan
	whom := adminFlags{Config: &c.path, accessFlags: c.accessFlags}
	err = whom.ask(e, "plan", func(ctx context.Context, client *admin.Client) (err error) {
		p, err = client.Plan(ctx, path)
		return err
	})
	switch {
	case errors.Is(err, admin.ErrNotRunning):
		return c.unasked(e, next, strings.TrimPrefix(err.Error(), display.Text(c.path)+": "))
	case err != nil:
		return err
	}
	return c.write(e, p, path, next)
}

// writeCopied writes which directions are not zero-copy with a configuration.
func writeCopied(w io.Writer, next *config.Config) {
	for _, line := range config.Copied(next) {
		fmt.Fprintf(w, "  %s\n", display.Text(line))
	}
}

// unasked prints the initial configuration where no process runs, and why there is no more.
func (c *planCmd) unasked(e *cli.Env, next *config.Config, why string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s; penstock run would begin with:\n", c.path, why)
	for _, line := range lines(config.Initial(next)) {
		fmt.Fprintf(&text, "  %s\n", display.Text(line))
	}
	writeCopied(&text, next)
	_, err := fmt.Fprint(e.Stdout, text.String())
	return err
}

// write writes a plan.
func (c *planCmd) write(e *cli.Env, p admin.Plan, path string, next *config.Config) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s to generation %d, which has %s\n", c.path,
		count(len(p.Changes), "change"), p.Generation, count(int(p.Connections), "connection"))
	for _, change := range p.Changes {
		fmt.Fprintf(&text, "  %s\n", display.Text(change.What))
		writeDispositions(&text, &change)
	}
	writeCopied(&text, next)
	writeLive(&text, p.Live)
	if p.Path != path {
		fmt.Fprintf(&text, "a reload reads %s: put the file there first\n", display.Text(p.Path))
	}
	_, err := fmt.Fprint(e.Stdout, text.String())
	return err
}

// writeDispositions writes the disposition of the connections that a change affects, by
// address where some stay.
func writeDispositions(w io.Writer, p *admin.PlannedChange) {
	switch {
	case len(p.Leaves) > 1 || len(p.Leaves) == 1 && p.Kept > 0:
		for _, b := range p.Leaves {
			if b.Active == 0 {
				continue
			}
			fmt.Fprintf(w, "    at %s: %s\n", display.Text(b.Bind), dispositionWords(b.Active, p.Disposition, p.ResetAfterUs))
		}
	case p.Connections > 0:
		fmt.Fprintf(w, "    %s\n", dispositionWords(p.Connections, p.Disposition, p.ResetAfterUs))
	}
	if p.LaneReturned > 0 {
		fmt.Fprintf(w, "    in the lane: %s back to user space\n", plural(p.LaneReturned, "connection comes", "connections come"))
	}
	if p.Draining > 0 {
		fmt.Fprintf(w, "    %s reset within %s\n", plural(p.Draining, "connection drains already, and is", "connections drain already, and are"), sinceText(p.DrainingUs))
	}
	if p.Kept > 0 {
		fmt.Fprintf(w, "    %s\n", dispositionWords(p.Kept, admin.Keep, 0))
	}
}

// dispositionWords describes the disposition of n connections. Those that drain are reset
// after a time, in microseconds.
func dispositionWords(n int64, fate admin.Disposition, resetAfter int64) string {
	one := n == 1
	switch {
	case fate == admin.Keep && one:
		return "1 connection stays as it is"
	case fate == admin.Keep:
		return fmt.Sprintf("%d connections stay as they are", n)
	case fate == admin.Reset && one:
		return "1 connection is reset at once"
	case fate == admin.Reset:
		return fmt.Sprintf("%d connections are reset at once", n)
	}
	after := config.ShowDuration(time.Duration(resetAfter) * time.Microsecond)
	if one {
		return "1 connection drains, and is reset after " + after
	}
	return fmt.Sprintf("%d connections drain, and are reset after %s", n, after)
}
