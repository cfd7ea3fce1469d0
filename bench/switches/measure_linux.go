package switches

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
)

// Size is the length of a message in bytes.
const Size = 64

// Counter counts the system calls of processes while something goes on.
type Counter interface {
	Tool() string // its name
	Count(ctx context.Context, pids []int, during func() error) (int64, error)
}

// Setup is what to compare, and how.
type Setup struct {
	Group *process.Group // starts the children; the caller owns it
	// Load runs load.Serve, Server a part of RunPart.
	Load   process.Spec
	Server func(part string) process.Spec
	// Isolated says that the children are in a network namespace of their own.
	Isolated    bool
	Connections []int         // each at least 1
	Rounds      int           // at least 1
	Window      time.Duration // of measuring, in each trial
	Counter     Counter       // nil for none
	Watch       func(Progress)
}

// Progress is a trial that is over.
type Progress struct {
	Round, Rounds int // from 1; Round is 0 when system calls are counted
	Connections   int
	Server        string
	Figures       Figures // nothing when system calls are counted
}

// Measure compares the servers. In each round all of them serve the same number
// of connections, one after the other, and who begins alternates. A number that
// a limit of this machine does not allow is left out, and its row says why; so
// does the row of a server that is not built yet. Everything that it starts has
// ended when it returns.
func Measure(ctx context.Context, s Setup) (*Report, error) {
	bounds, err := readLimits(s.Isolated)
	if err != nil {
		return nil, fmt.Errorf("switches: %w", err)
	}
	b := &bench{Setup: s}
	if b.load, err = s.Group.Start(s.Load); err != nil {
		return nil, err
	}
	defer b.load.Kill()
	r := &Report{MessageBytes: Size, Rounds: s.Rounds, WindowSeconds: report.Number(s.Window.Seconds())}
	if s.Counter != nil {
		r.SystemCallCounter = s.Counter.Tool()
	}
	for _, n := range s.Connections {
		g, err := b.group(ctx, n, bounds)
		if err != nil {
			return nil, err
		}
		r.Groups = append(r.Groups, *g)
	}
	return r, nil
}

// bench is a comparison under way.
type bench struct {
	Setup
	load *process.Child
}

// group measures all servers under n connections.
func (b *bench) group(ctx context.Context, n int, bounds *limits) (*Group, error) {
	g := &Group{Connections: n, Rows: make([]Row, len(servers))}
	for i, s := range servers {
		g.Rows[i] = Row{Server: s.name, About: s.about}
		if s.serve == nil {
			g.Rows[i].Missing = "not built yet"
		} else if err := bounds.check(n, s.threaded); err != nil {
			g.Rows[i].Missing = err.Error()
		}
	}
	for round := range b.Rounds {
		for i := range servers {
			at := i
			if round%2 == 1 {
				at = len(servers) - 1 - i
			}
			if err := b.turn(ctx, &g.Rows[at], &servers[at], n, round+1); err != nil {
				return nil, err
			}
		}
	}
	for i := range g.Rows {
		g.Rows[i].sum(&g.Rows[0])
	}
	for i := range g.Rows {
		if err := b.calls(ctx, &g.Rows[i], &servers[i], n); err != nil {
			return nil, err
		}
	}
	return g, nil
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
	b.Watch(Progress{Round: round, Rounds: b.Rounds, Connections: n, Server: s.name, Figures: f})
	return nil
}
