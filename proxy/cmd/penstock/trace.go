package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/internal/evidence"
)

type traceCmd struct {
	processFlags
	PID    int         `name:"pid" placeholder:"N" help:"Another process, with its children, instead of the one that is asked for its status."`
	Cgroup string      `placeholder:"DIR" help:"The processes of a cgroup instead, by its directory."`
	For    cli.Timeout `default:"10s" placeholder:"TIME" help:"How long; a signal ends it earlier. (default: ${default})"`
	JSON   bool        `name:"json" help:"In JSON, with the events of each connection."`
}

// Run traces a process and prints the report.
func (c *traceCmd) Run(e *cli.Env) error {
	if c.For == 0 || c.PID < 0 || c.PID > 0 && c.Cgroup != "" {
		return cli.Usagef("trace: write --for TIME above 0, and either --pid N or --cgroup DIR, or neither (see: penstock trace --help)")
	}
	ctx, stop := untilStopped(e)
	defer stop()
	target, err := c.target(ctx, e)
	if err != nil {
		return failed(e, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	attached := func() { time.AfterFunc(c.For.Duration(), cancel) }
	report, err := evidence.Trace(ctx, target, attached)
	if err != nil {
		return failed(e, err)
	}
	return c.write(e.Stdout, report)
}

// untilStopped returns a context that ends with the first signal that stops the program.
func untilStopped(e *cli.Env) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-e.Stops:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// target returns the processes that the flags select.
func (c *traceCmd) target(ctx context.Context, e *cli.Env) (t evidence.Target, err error) {
	t.Cgroup = c.Cgroup
	if c.PID > 0 {
		t.PIDs = []int{c.PID}
	}
	if c.PID > 0 || c.Cgroup != "" {
		return t, nil
	}
	if t.Admin, err = c.client(e, "trace"); err != nil {
		return t, c.elsewhere(e, err)
	}
	status, err := t.Admin.Status(ctx)
	if err != nil {
		return t, fmt.Errorf("%w (another process is traced with --pid N)", c.elsewhere(e, err))
	}
	t.PIDs = []int{status.PID}
	return t, nil
}

func (c *traceCmd) write(w io.Writer, r *evidence.Report) error {
	if !c.JSON {
		return r.WriteText(w)
	}
	return writeJSON(w, r)
}
