package load

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// tick is the time between two reports of progress.
const tick = 100 * time.Millisecond

// Event is what a load in a process of its own says: how far the plan under
// way is, and at its end either the result or what went wrong.
type Event struct {
	Received int64         `json:"received,omitempty"` // bytes so far
	Elapsed  time.Duration `json:"elapsed,omitempty"`  // so far
	Result   *Result       `json:"result,omitempty"`
	Error    string        `json:"error,omitempty"`
}

// Serve reads Plans from in, one JSON object after the other, carries each of
// them out and writes Events to out. It returns nil when in ends, even in the
// middle of a plan, which is then broken off; and the error of a plan that
// cannot be read or an event that cannot be written. It returns only after in
// has ended or ctx is done, and in the latter case leaves a goroutine reading
// in until that ends too.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	plans := make(chan Plan)
	go func() { fail(decode(ctx, in, plans)) }()
	runner, events := new(Runner), json.NewEncoder(out)
	for {
		select {
		case p := <-plans:
			if err := perform(ctx, runner, p, events); err != nil {
				return err
			}
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, io.EOF) {
				return err
			}
			return nil
		}
	}
}

// decode passes on plans until in ends.
func decode(ctx context.Context, in io.Reader, plans chan<- Plan) error {
	decoder := json.NewDecoder(in)
	for {
		var p Plan
		if err := decoder.Decode(&p); err != nil {
			return err
		}
		select {
		case plans <- p:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// perform carries out one plan and tells about it.
func perform(ctx context.Context, runner *Runner, p Plan, events *json.Encoder) error {
	ctx, cancel := context.WithCancel(ctx)
	var last Event
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	go func() {
		defer close(done)
		result, err := runner.Run(ctx, p)
		if err != nil {
			last.Error = err.Error()
			return
		}
		last.Result = &result
	}()
	ticker, start := time.NewTicker(tick), time.Now()
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return events.Encode(last)
		case <-ticker.C:
			if err := events.Encode(Event{Received: runner.Received(), Elapsed: time.Since(start)}); err != nil {
				return err
			}
		}
	}
}
