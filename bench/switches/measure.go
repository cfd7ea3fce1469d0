package switches

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/bench/syscalls"
)

// Size is the length of a message in bytes.
const Size = 64

// Setup is the setup of a comparison.
type Setup struct {
	rounds.Setup
	// Load runs load.Serve, Server a part of RunPart.
	Load   process.Spec
	Server func(part string) process.Spec
	// Isolated says that the children are in a network namespace of their own.
	Isolated    bool
	Connections []int                 // each at least 1
	Window      time.Duration         // of measuring, in each trial
	Counter     syscalls.EventCounter // nil for none
}

// Measure compares the servers. In each round all of them serve the same number of
// connections, one after the other, and the first one alternates. A number that a limit of
// this machine does not allow is left out, and its row has the reason. If it fails, or ctx
// ends, it returns the results until then with the error. Everything that it starts has
// ended when it returns.
func Measure(ctx context.Context, s Setup) (*Report, error) {
	r := &Report{MessageBytes: Size, Rounds: s.Rounds, WindowSeconds: report.Number(s.Window.Seconds())}
	if s.Counter != nil {
		r.SystemCallCounter = s.Counter.Tool()
	}
	bounds, err := readLimits(s.Isolated)
	if err != nil {
		return r, fmt.Errorf("switches: %w", err)
	}
	b := &bench{Setup: s}
	if b.load, err = s.Group.Start(s.Load); err != nil {
		return r, err
	}
	defer b.load.Kill()
	for _, n := range s.Connections {
		g := newGroup(n, bounds)
		err := b.group(ctx, g)
		r.Groups = append(r.Groups, *g)
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// bench is a comparison under way.
type bench struct {
	Setup
	load *process.Child
}

// newGroup has a row for each server, and says which cannot be measured.
func newGroup(n int, bounds *limits) *Group {
	g := &Group{Connections: n, Rows: make([]Row, len(servers))}
	for i, s := range servers {
		g.Rows[i] = Row{
			Server: s.name, About: s.about,
			CallsPerRequest: report.Unmeasured(), CallsPerSecond: report.Unmeasured(),
		}
		if err := bounds.check(n, s.threaded); err != nil {
			g.Rows[i].Missing = err.Error()
		}
	}
	return g
}

// group measures all servers under a group's connections.
func (b *bench) group(ctx context.Context, g *Group) error {
	err := b.trials(ctx, g)
	for i := range g.Rows { // also of the results until an interruption
		g.Rows[i].sum(&g.Rows[0])
	}
	for i := 0; i < len(g.Rows) && err == nil; i++ {
		err = b.calls(ctx, &g.Rows[i], &servers[i], g.Connections)
	}
	return err
}

// trials are all timed ones of a group.
func (b *bench) trials(ctx context.Context, g *Group) error {
	for round, i := range b.Turns(len(servers)) {
		if err := b.turn(ctx, &g.Rows[i], &servers[i], g.Connections, round); err != nil {
			return err
		}
	}
	return nil
}

// turn adds a trial to a row that has them.
func (b *bench) turn(ctx context.Context, row *Row, s *server, n, round int) error {
	if row.Missing != "" {
		return nil
	}
	f, err := b.trial(ctx, s, n)
	var refused *refusedError
	if errors.As(err, &refused) {
		row.Missing, row.Trials = refused.Error(), nil
		return nil
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%s, %d connections: %w", s.name, n, err)
	}
	row.Trials = append(row.Trials, f)
	b.Notify(rounds.Progress{Round: round, Case: connections(n), Contestant: s.name, Result: report.Count(float64(f.RequestsPerSecond)) + "/s"})
	return nil
}

func connections(n int) string { return report.Exact(int64(n)) + " connections" }
