package write

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
)

// Bounds of the time of a trial. patience is for anything but writing. slowest is how many
// bytes a second any way writes at least, on any machine and under any tool. culprit is for
// the death of a child that explains a failure.
const (
	patience = 30 * time.Second
	slowest  = 1 << 20
	culprit  = 100 * time.Millisecond
)

// The warm-up before the measurement: this part of the bytes of a trial, or a turn, at most so
// many bytes. By then windows and buffers are as large as they become, and again so after a
// rest.
const (
	warmup     = 8
	mostWarmup = 16 << 20
)

// trial is a process that writes, and its results.
type trial struct {
	way   *way
	shape *Shape
	child *process.Child // owned
	sum   account
	turns []Turn
}

// turn is one of so many bytes.
func (s *Shape) turn(bytes int64) turn {
	return turn{Warmup: s.batches(bytes / warmup), Batches: s.batches(bytes)}
}

// start starts a way that is about to write so many bytes of a shape, and waits until
// it is warm. profile is a file, empty for none.
func (b *bench) start(ctx context.Context, w *way, s *Shape, bytes int64, profile string) (*trial, error) {
	child, err := b.Group.Start(b.Part(w.part()))
	if err != nil {
		return nil, err
	}
	t := &trial{way: w, shape: s, child: child}
	p := plan{Address: b.address, Pieces: s.Pieces, Warmup: s.batches(min(bytes/warmup, mostWarmup)), Profile: profile}
	if _, err := b.ask(ctx, t, p, p.Warmup); err != nil {
		child.Kill()
		return nil, err
	}
	return t, nil
}

// turn has a trial take one.
func (b *bench) turn(ctx context.Context, t *trial, what turn) error {
	m, err := b.ask(ctx, t, what, what.Warmup+what.Batches)
	if err != nil {
		return err
	}
	if m.Turn == nil {
		return fmt.Errorf("%s has no account of its turn", t.way.name)
	}
	t.sum.add(m.Turn)
	t.turns = append(t.turns, Turn{m.Turn.figures().BitsPerSecond, report.Number(m.Turn.Objects)})
	return nil
}

// end has a trial see to it that all has arrived.
func (b *bench) end(ctx context.Context, t *trial) error {
	m, err := b.ask(ctx, t, turn{}, 0)
	if err == nil && !m.Arrived {
		err = fmt.Errorf("%s does not say that all has arrived", t.way.name)
	}
	return err
}

// ask sends a trial a request, for which it writes so many batches, and reads its answer.
func (b *bench) ask(ctx context.Context, t *trial, what any, batches int64) (*message, error) {
	long := patience + time.Duration(batches*int64(t.shape.Bytes)/slowest)*time.Second
	timed, cancel := context.WithTimeoutCause(ctx, long, fmt.Errorf("no answer within %v", long))
	defer cancel()
	m := new(message)
	err := t.child.Send(what)
	if err == nil {
		err = t.child.Receive(timed, m)
	}
	if err != nil {
		return nil, b.blame(ctx, fmt.Errorf("%s, %s: %w", t.way.name, t.shape.Name, err))
	}
	return m, nil
}

// blame returns the best explanation of a failure: the end of the run, or the death of the
// sink, which its senders only see as a reset.
func (b *bench) blame(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-b.sink.Done():
		return errors.Join(b.sink.Err())
	case <-time.After(culprit):
		return err
	}
}
