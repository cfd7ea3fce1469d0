// Package rounds is the common part of all measurements: contestants in separate processes that take turns in
// rounds, and the progress of the measurement.
package rounds

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/penstock/penstock/bench/process"
)

// Setup is the part of a measurement's setup that does not depend on the subject. Other setups embed it.
type Setup struct {
	Group  *process.Group // starts the children; the caller owns it
	Rounds int            // at least 1
	Watch  func(Progress) // nil: progress is not reported
}

// Turns yields each round, from 1, with the index of each of n contestants, from 0. In every second round the
// order is reversed, so that no contestant is always the first.
func (s *Setup) Turns(n int) iter.Seq2[int, int] {
	return func(yield func(round, i int) bool) {
		for round := 1; round <= s.Rounds; round++ {
			for i := range n {
				if round%2 == 0 {
					i = n - 1 - i
				}
				if !yield(round, i) {
					return
				}
			}
		}
	}
}

// Notify reports progress.
func (s *Setup) Notify(p Progress) {
	if p.Rounds = s.Rounds; s.Watch != nil {
		s.Watch(p)
	}
}

// Progress is a step of a measurement. With a Result the step is over, otherwise it begins.
type Progress struct {
	Round, Rounds int    // from 1; Round is 0 outside of rounds
	Doing         string // what is done outside of rounds, such as "system calls"
	Case          string // a scenario or a shape, if there are several; otherwise ""
	Contestant    string // "" if the step is for all contestants
	Result        string // the main figure; "" if there is none
}

// String returns a line of text, in columns.
func (p Progress) String() string {
	step := p.Doing
	if p.Round > 0 {
		step = fmt.Sprintf("round %d of %d", p.Round, p.Rounds)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-14s ", step)
	if p.Case != "" {
		fmt.Fprintf(&b, "%-14s ", p.Case)
	}
	if p.Contestant != "" {
		fmt.Fprintf(&b, "%-16s ", p.Contestant)
	}
	b.WriteString(p.Result)
	return strings.TrimRight(b.String(), " ")
}

// Blame returns why a measurement ends: the request to end it, or the error.
func Blame(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
