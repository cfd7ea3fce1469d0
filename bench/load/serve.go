package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Serve reads Plans from in, one JSON object after the other, carries out each of them, and writes Events to out.
// It returns nil when in ends, and breaks off a plan that is in progress. It returns an error if it cannot read a
// plan or write an event. It returns only after in has ended or ctx has ended. In the second case, a goroutine
// goes on reading in until in ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	plans := make(chan Plan)
	go func() { fail(decode(ctx, in, plans)) }()
	runner, events := NewRunner(), json.NewEncoder(out)
	for {
		select {
		case p := <-plans:
			if p.Release {
				continue // no plan holds connections
			}
			if err := perform(ctx, runner, p, plans, events); err != nil {
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

// decode sends the plans on until in ends.
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

// perform carries out a plan, and writes its events.
func perform(ctx context.Context, runner *Runner, p Plan, plans <-chan Plan, events *json.Encoder) error {
	ctx, cancel := context.WithCancel(ctx)
	var last Event
	done := make(chan struct{})
	stages := make(chan Event, 3) // keeps the order of the stages
	defer func() { cancel(); <-done }()
	runner.Hold = func() { stages <- Event{Holding: true} }
	runner.Warm = func() { stages <- Event{Warm: true} }
	runner.Over = func() { stages <- Event{Over: true} }
	go func() {
		defer close(done)
		last = outcome(runner.Run(ctx, p))
	}()
	if p.Workload != Idle {
		plans = nil // the next plan must wait
	}
	for {
		var e Event
		select {
		case <-done:
			return events.Encode(last)
		case next := <-plans:
			if !next.Release {
				return fmt.Errorf("load: a plan for %s while one for %s is under way: release that first", next.Workload, p.Workload)
			}
			runner.Release()
			continue
		case e = <-stages:
		}
		if err := events.Encode(e); err != nil {
			return err
		}
	}
}

// outcome returns the last event of a plan.
func outcome(result Result, err error) Event {
	if err != nil {
		return Event{Error: err.Error()}
	}
	return Event{Result: &result}
}
