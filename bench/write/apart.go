package write

import (
	"context"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/bench/syscalls"
)

// countedPieces is how many pieces are written while something counts system calls:
// strace stops the process at each, for some 50 microseconds.
const countedPieces = 20_000

// apart runs the trials that are not timed: system calls are counted with those pieces that
// the tool can bear, cache misses in a whole trial, and profiles are taken.
func (b *bench) apart(ctx context.Context, g *Group, row *Row, w *way) error {
	if row.Median == nil {
		return nil
	}
	if err := b.calls(ctx, g, row, w); err != nil {
		return err
	}
	if b.Misses != nil && g.Size == 0 {
		misses, err := b.count(ctx, b.Misses, w, &g.Shape, b.Total)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			row.MissesPerBatch = report.Number(misses)
		}
		b.Notify(rounds.Progress{Doing: "cache misses", Case: g.short(), Contestant: w.name, Result: done})
	}
	if b.Profile == nil {
		return nil
	}
	b.Notify(rounds.Progress{Doing: "profile", Case: g.short(), Contestant: w.name, Result: done})
	return b.profile(ctx, w, &g.Shape, min(int64(row.Median.BitsPerSecond)/8*profiled, 8*b.Total))
}

// profiled is how many seconds a profile takes, at most eight trials: it has a hundred
// samples for each second of CPU.
const profiled = 2

// profile takes the profile of a way while it writes so many bytes.
func (b *bench) profile(ctx context.Context, w *way, s *Shape, bytes int64) error {
	t, err := b.start(ctx, w, s, bytes, b.Profile(w.name, s))
	if err != nil {
		return err
	}
	defer t.child.Kill()
	if err := b.turn(ctx, t, turn{Batches: s.batches(bytes)}); err != nil {
		return err
	}
	return b.end(ctx, t)
}

// calls counts a way's system calls. A failure of the tool is reported in the row; it costs
// nothing else.
func (b *bench) calls(ctx context.Context, g *Group, row *Row, w *way) error {
	if b.Calls == nil {
		return nil
	}
	batches := max(int64(countedPieces/g.Count), 64)
	perBatch, err := b.count(ctx, b.Calls, w, &g.Shape, min(batches*int64(g.Bytes), b.Total))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		row.CallsFailed = err.Error()
		return nil
	}
	row.CallsPerBatch = report.Number(perBatch)
	row.CallsPerMB = report.Number(perBatch / float64(g.Bytes) * 1e6)
	row.CallsPerSecond = row.CallsPerMB / 8e6 * row.Median.BitsPerSecond
	b.Notify(rounds.Progress{Doing: "system calls", Case: g.short(), Contestant: w.name, Result: done})
	return nil
}

// count returns how many of a counter's events there are for each batch.
func (b *bench) count(ctx context.Context, c syscalls.EventCounter, w *way, s *Shape, bytes int64) (float64, error) {
	t, err := b.start(ctx, w, s, bytes, "")
	if err != nil {
		return 0, err
	}
	defer t.child.Kill()
	what := turn{Batches: s.batches(bytes)}
	events, err := c.Count(ctx, []int{t.child.Pid()}, func() error { return b.turn(ctx, t, what) })
	return float64(events) / float64(what.Batches), err
}
