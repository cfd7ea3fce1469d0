package main

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/penstock/penstock/bench/reload"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/proxy/cli"
)

// reloadFormat is the number of the document's form.
const reloadFormat = 1

// reloadDocument is the document of --json.
type reloadDocument struct {
	benchHead
	hostInfo
	*reload.Report
}

// measured reports whether there is anything.
func (d *reloadDocument) measured() bool {
	return d.Report != nil && (len(d.Rows) > 0 && d.Rows[0].Median != nil || d.Steady != nil)
}

// Run measures and reports.
func (c *benchReloadCmd) Run(e *cli.Env) error {
	d := &reloadDocument{benchHead: newBenchHead(e, reloadFormat)}
	return measureDocument(e, "reload", c.JSON, d, func(ctx context.Context) error {
		err := c.measure(ctx, e, d)
		if err == nil && d.Steady != nil && len(d.Steady.Violations) > 0 {
			err = errors.New(strings.Join(d.Steady.Violations, "; "))
		}
		return err
	})
}

// setup returns the setup of the flags.
func (c *benchReloadCmd) setup() reload.Setup {
	listeners, endpoints, count, reloads, idle, row := 1000, 10_000, 6, 1000, 8000, 100
	if c.Quick {
		listeners, endpoints, count, reloads, idle, row = 50, 500, 2, 20, 200, 10
	}
	s := reload.Setup{
		Setup:     rounds.Setup{Rounds: given(c.Rounds, count)},
		Listeners: given(c.Listeners, listeners), Endpoints: given(c.Endpoints, endpoints),
		Reloads: given(c.Reloads, reloads), Busy: c.Busy, RowListeners: given(c.RowListeners, row),
	}
	s.Idle = given(c.Idle, min(idle, cli.Affordable(cli.Descriptors(), cli.DefaultLoops())-2*s.Busy-100))
	if c.Checks > 0 {
		s.Interval = c.Checks.Duration().String()
	}
	return s
}

// measure does.
func (c *benchReloadCmd) measure(ctx context.Context, e *cli.Env, d *reloadDocument) (err error) {
	s := c.setup()
	if s.Program, err = c.program(); err != nil {
		return err
	}
	if s.Dir, err = os.MkdirTemp("", "penstock-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.Dir)
	s.Setup = inRounds(e, d.group(), s.Rounds)
	defer s.Group.Close()
	announce(e, "A load balancer, its endpoints and clients, each a process of its own")
	d.Report, err = reload.Measure(ctx, s)
	return err
}
