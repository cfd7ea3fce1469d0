package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/pauses"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
)

// errNoTalk is a load that ends a plan of which some were to talk.
var errNoTalk = errors.New("the load ended an idle plan while some of it talked")

// sitting is idle sessions, of which a few talk: once undisturbed, and then again
// for a shorter time, in the middle of which the contestant collects its garbage.
type sitting struct {
	rest *rest
	talk load.Talk

	opening             *pauses.Pauses // nil if it cannot be asked
	talking, collecting said
}

// said is a talk that is over.
type said struct {
	load.Result
	used   process.Usage  // by the contestant
	pauses *pauses.Pauses // since the talk before; nil if it cannot be asked
}

// shorter is how much shorter the second talk is.
const shorter = 2

// converse is called when all sessions are idle.
func (s *sitting) converse(ctx context.Context) (err error) {
	c := s.rest.c
	if s.opening, err = c.Pauses(ctx, false); err != nil {
		return err
	}
	if s.talking, err = s.once(ctx, s.talk, func() error { return nil }); err != nil {
		return err
	}
	brief := s.talk
	brief.Duration /= shorter
	var first *pauses.Pauses // the answer begins a new count
	s.collecting, err = s.once(ctx, brief, func() error {
		if err := pause(ctx, c, brief.Duration/2); err != nil {
			return err
		}
		first, err = c.Pauses(ctx, true)
		return err
	})
	s.collecting.pauses = longer(s.collecting.pauses, first)
	return err
}

// longer returns the one with the longer pause.
func longer(a, b *pauses.Pauses) *pauses.Pauses {
	if a == nil || b != nil && b.Longest > a.Longest {
		return b
	}
	return a
}

// once is one talk; meanwhile is called while it goes on.
func (s *sitting) once(ctx context.Context, talk load.Talk, meanwhile func() error) (said, error) {
	var r said
	rig, c := s.rest.rig, s.rest.c
	used, err := c.Usage()
	if err != nil {
		return r, err
	}
	if err := rig.load.Send(load.Plan{Talk: &talk}); err != nil {
		return r, err
	}
	if err := meanwhile(); err != nil {
		return r, err
	}
	if r.Result, err = rig.talked(ctx, talk.Duration); err != nil {
		return r, err
	}
	if r.used, err = c.Usage(); err != nil {
		return r, err
	}
	r.used = r.used.Sub(used)
	r.pauses, err = c.Pauses(ctx, false)
	return r, err
}

// talked waits for the end of a talk of that duration.
func (r *Rig) talked(ctx context.Context, d time.Duration) (load.Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d+r.Patience, fmt.Errorf("a talk of %v did not end within %v", d, d+r.Patience))
	defer cancel()
	for {
		e, err := r.event(ctx)
		switch {
		case err != nil:
			return load.Result{}, err
		case e.Result != nil:
			return load.Result{}, errNoTalk
		case e.Talked != nil:
			return *e.Talked, nil
		}
	}
}

// figures returns the results.
func (s *sitting) figures() *SessionFigures {
	i, _ := s.rest.grown()
	n, t := report.Number(i.Sessions), &s.talking
	f := &SessionFigures{
		RssAnonBytes: i.RssAnonBytes / n, SlabBytes: i.SlabBytes / n, Descriptors: i.Descriptors / n,
		Goroutines:  report.Unmeasured(),
		Message:     seconds(t.Elapsed) / report.Number(t.Requests),
		P50:         seconds(t.P50),
		P99:         seconds(t.P99),
		CPU:         report.Number(t.used.CPU.Seconds()) / report.Number(t.Requests),
		CollectP99:  seconds(s.collecting.P99),
		OpenPause:   longest(s.opening),
		TalkPause:   longest(longer(t.pauses, s.collecting.pauses)),
		Collections: report.Unmeasured(),
	}
	if s.opening != nil {
		f.Goroutines = report.Number(s.opening.Goroutines) / n
		f.Collections = report.Number(s.opening.Collections + t.pauses.Collections + s.collecting.pauses.Collections)
	}
	return f
}

// longest is unknown of nil, and 0 if there was no pause.
func longest(p *pauses.Pauses) report.Number {
	if p == nil {
		return report.Unmeasured()
	}
	return report.Number(p.Longest.Seconds())
}
