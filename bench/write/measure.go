package write

import (
	"cmp"
	"context"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/bench/syscalls"
)

// Turns is how many turns the ways take in a round.
const Turns = 16

// Setup is the setup of a comparison.
type Setup struct {
	rounds.Setup
	Part   func(part string) process.Spec
	Shapes []Shape
	Total  int64 // bytes that each way writes in a round, rounded to whole batches
	// Calls counts system calls and Misses cache misses, each in trials of their
	// own; nil for none.
	Calls, Misses syscalls.EventCounter
	// Profile returns the file for the CPU profile of a way and a shape, which are
	// taken in trials of their own; nil for none.
	Profile func(way string, s *Shape) string
	// Exchanges is how many of the write-write-read of Nagle are made; 0 for none.
	Exchanges int
}

// Measure compares the ways. In each round all of them write the same, by turns, and the first
// one alternates. If it fails, or ctx ends, it returns the results until then with the error.
// Everything that it starts has ended when it returns.
func Measure(ctx context.Context, s Setup) (*Report, error) {
	r := &Report{BatchBytes: BatchSize, Rounds: s.Rounds, Turns: Turns, TotalBytes: s.Total}
	if s.Calls != nil {
		r.SystemCallCounter = s.Calls.Tool()
	}
	b := &bench{Setup: s}
	err := b.listen(ctx)
	for i := 0; i < len(s.Shapes) && err == nil; i++ {
		g := newGroup(&s.Shapes[i])
		err = b.group(ctx, g)
		r.Groups = append(r.Groups, *g)
	}
	if b.sink != nil {
		b.sink.Kill()
	}
	if err == nil {
		err = b.nagle(ctx, r)
	}
	r.judge()
	return r, err
}

// nagle measures two writes before a read.
func (b *bench) nagle(ctx context.Context, r *Report) error {
	if b.Exchanges == 0 {
		return nil
	}
	before, after, err := Nagle(ctx, b.Exchanges)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	r.Nagle = &NagleReport{b.Exchanges, before.seconds(), after.seconds()}
	b.Notify(rounds.Progress{Doing: "exchanges", Case: "write-write-read", Contestant: wayVecio, Result: done})
	return nil
}

// done is the result of a trial that is not timed.
const done = "done"

// short returns the name in so few characters that lines of progress are aligned.
func (s *Shape) short() string { return s.Name[:min(len(s.Name), 10)] }

// bench is a comparison under way.
type bench struct {
	Setup
	sink    *process.Child
	address string
}

// listen starts the sink.
func (b *bench) listen(ctx context.Context) (err error) {
	if b.sink, err = b.Group.Start(b.Part(PartSink)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var l listening
	if err := b.sink.Receive(ctx, &l); err != nil {
		return err
	}
	b.address = l.Address
	return nil
}

// newGroup has a row for each way.
func newGroup(s *Shape) *Group {
	g := &Group{Shape: *s, Rows: make([]Row, len(ways))}
	for i, w := range ways {
		unknown := report.Unmeasured()
		g.Rows[i] = Row{
			Way: w.name, About: w.about,
			CallsPerMB: unknown, CallsPerSecond: unknown, CallsPerBatch: unknown, MissesPerBatch: unknown,
		}
	}
	return g
}

// group measures all ways with one shape.
func (b *bench) group(ctx context.Context, g *Group) error {
	err := b.trials(ctx, g)
	g.sum() // also of the results until an interruption
	for i := 0; i < len(ways) && err == nil; i++ {
		err = b.apart(ctx, g, &g.Rows[i], &ways[i])
	}
	return err
}

// trials are all timed ones of a group.
func (b *bench) trials(ctx context.Context, g *Group) error {
	for round := range b.Rounds {
		trials, err := b.round(ctx, g, round)
		if err != nil {
			return err
		}
		for i, t := range trials {
			row := &g.Rows[i]
			row.Trials = append(row.Trials, t.sum.figures())
			row.Turns = append(row.Turns, t.turns...)
			b.Notify(rounds.Progress{Round: round + 1, Case: g.short(), Contestant: row.Way, Result: report.BitRate(t.sum.figures().BitsPerSecond)})
		}
	}
	return nil
}

// round has every way in a process of its own. They live side by side and write one after the
// other, so many turns each; no way is always the first.
func (b *bench) round(ctx context.Context, g *Group, round int) (trials []*trial, err error) {
	defer func() {
		for _, t := range trials {
			t.child.Kill()
		}
	}()
	for i := range ways {
		t, err := b.start(ctx, &ways[i], &g.Shape, b.Total, "")
		if err != nil {
			return nil, err
		}
		trials = append(trials, t)
	}
	for n := range Turns {
		for i := range trials {
			t := trials[i]
			if (n+round)%2 == 1 {
				t = trials[len(trials)-1-i]
			}
			if err := b.turn(ctx, t, g.turn(b.Total/Turns)); err != nil {
				return nil, err
			}
		}
	}
	for _, t := range trials {
		if err := b.end(ctx, t); err != nil {
			return nil, err
		}
	}
	return trials, nil
}
