package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
)

// errHeld is an idle plan that ends although nobody released it.
var errHeld = errors.New("the load ended an idle plan by itself")

// checks has every entrant checked once.
func (f *field) checks(ctx context.Context) error {
	f.base.cell.Role = report.Contender // there is nothing to be beside
	f.step.Round = 1
	for _, e := range f.entrants {
		if err := f.check(ctx, e); err != nil {
			return err
		}
		f.end(e)
		f.advance(checksTake)
	}
	return nil
}

func (f *field) check(ctx context.Context, e *entrant) error {
	t, err := f.timed(ctx, e, report.Contender, "")
	if t == nil || err != nil {
		return err
	}
	for _, c := range t.Result.Checks {
		e.cell.Checks = append(e.cell.Checks, report.Check{Name: c.Name, OK: c.OK, Said: c.Said})
		if !c.OK && report.IsPenstock(e.kind.Name) {
			f.doc.Failures = append(f.doc.Failures, fmt.Sprintf("%s, %s: %s: %s", f.scenario.Name, e.kind.Name, c.Name, c.Said))
		}
	}
	return nil
}

// rests has every entrant hold idle sessions, each in a process of its own,
// the baseline twice.
func (f *field) rests(ctx context.Context) error {
	f.enter(f.base.kind, report.Again)
	for f.step.Round = 1; f.step.Round <= f.out.Rounds; f.step.Round++ {
		for _, e := range f.entrants {
			if err := f.rested(ctx, e); err != nil {
				return err
			}
			f.end(e)
			f.advance(f.restTakes())
		}
	}
	f.step.Round = f.out.Rounds
	return nil
}

// rested is one trial of idle sessions, nothing if the entrant is out.
func (f *field) rested(ctx context.Context, e *entrant) error {
	ok, err := f.start(ctx, e)
	if !ok || err != nil {
		return err
	}
	f.step.Contestant, f.step.Doing = e.kind.Name, "sessions rest"
	f.watch(f.step)
	start := time.Now()
	var idle *report.Idle
	t, err := f.rig.rest(ctx, e.c, f.plan(0), f.Quiet, &idle)
	if err != nil {
		return f.lose(ctx, e, err)
	}
	out := f.took(&t, e.cell.Role, "", start)
	out.Idle = idle
	f.add(out)
	return nil
}

// held is what is held at a moment.
type held struct {
	process process.Memory
	slab    int64
}

func holds(c *contestant.Contestant) (h held, err error) {
	if h.process, err = c.Memory(); err != nil {
		return h, err
	}
	h.slab, err = process.Slab()
	return h, err
}

// rest runs an Idle plan and looks at what the sessions hold once they have
// been quiet for so long.
func (r *Rig) rest(ctx context.Context, c *contestant.Contestant, plan load.Plan, quiet time.Duration, idle **report.Idle) (Trial, error) {
	if err := pause(ctx, c, quiet/10); err != nil { // what starting took is given back
		return Trial{}, r.blame(ctx, err, c)
	}
	before, err := holds(c)
	if err != nil {
		return Trial{}, r.blame(ctx, err, c)
	}
	var looked error
	released := false
	t, err := r.trial(ctx, c, plan, func(e load.Event) error {
		switch {
		case e.Result != nil && !released:
			return errHeld
		case !e.Holding || released:
			return nil
		}
		released = true
		if err := r.hold(ctx, quiet); err != nil {
			return err // and the plan is over
		}
		*idle, looked = look(c, plan.Connections, before)
		return r.load.Send(load.Plan{Release: true}) // whatever was seen: the load is to be free
	})
	if looked != nil {
		err = r.blame(ctx, looked, c)
	}
	return t, err
}

// hold lets the sessions be quiet for so long; the error is that they ended.
func (r *Rig) hold(ctx context.Context, quiet time.Duration) error {
	resting, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	for {
		e, err := r.event(resting)
		switch {
		case resting.Err() != nil && (err == nil || errors.Is(err, context.Cause(resting))):
			return ctx.Err()
		case err != nil:
			return err
		case e.Result != nil:
			return errHeld
		}
	}
}

// look returns what has been added since before.
func look(c *contestant.Contestant, sessions int, before held) (*report.Idle, error) {
	after, err := holds(c)
	return grown(c, sessions, before, after), err
}

// pause waits, but not for a contestant that is gone.
func pause(ctx context.Context, c *contestant.Contestant, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-c.Done():
		return c.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// grown is what so many sessions add.
func grown(c *contestant.Contestant, sessions int, before, after held) *report.Idle {
	i := &report.Idle{
		Sessions:     sessions,
		RssAnonBytes: report.Number(after.process.RssAnon - before.process.RssAnon),
		SlabBytes:    report.Number(after.slab - before.slab),
		Descriptors:  report.Number(after.process.Descriptors - before.process.Descriptors),
	}
	if c.Name == directName {
		i.RssAnonBytes, i.Descriptors = report.Unmeasured(), report.Unmeasured()
	}
	return i
}
