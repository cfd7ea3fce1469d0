package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/proxy"
)

// culprit is how long a failed trial waits for the death of a child that
// would explain it.
const culprit = 500 * time.Millisecond

// Trial is one contestant under one plan, once.
type Trial struct {
	Round      int // from 0
	Contestant string
	Plan       load.Plan
	Result     load.Result
	Usage      process.Usage // of the contestant's process, during the trial
	// Pipes is how many kernel pipes the contestant held in the middle of it,
	// negative if the trial was too short to look.
	Pipes int
	// Summary is the contestant's own account of the trial, nil for one that
	// keeps none. Its bytes have been compared with the load's.
	Summary *proxy.Summary
}

// Progress is where a series of trials stands.
type Progress struct {
	Trial, Trials int // from 0
	Round, Rounds int // from 0
	Contestant    string
	Plan          load.Plan
	Received      int64 // bytes, by this trial so far
	Elapsed       time.Duration
	Result        *load.Result // when the trial is over
}

// Series is what to measure: every plan with every contestant, Rounds times.
type Series struct {
	Rounds      int
	Plans       []load.Plan // Address is filled in
	Contestants []*Contestant
}

// Measure runs a series and calls watch, which may be nil, as it goes on. The
// contestants take turns within a plan, and who begins alternates from round
// to round. It fails as soon as anything does: a wrong byte, a byte that the
// load and the contestant count differently, a child that dies.
func (r *Rig) Measure(ctx context.Context, s Series, watch func(Progress)) ([]Trial, error) {
	if watch == nil {
		watch = func(Progress) {}
	}
	p := Progress{Rounds: s.Rounds, Trials: s.Rounds * len(s.Plans) * len(s.Contestants)}
	trials := make([]Trial, 0, p.Trials)
	for round := range s.Rounds {
		for _, plan := range s.Plans {
			for i := range s.Contestants {
				c := s.Contestants[(i+round)%len(s.Contestants)]
				p.Round, p.Contestant, p.Plan = round, c.Name, plan
				t, err := r.trial(ctx, c, plan, p, watch)
				if err != nil {
					return nil, err
				}
				trials = append(trials, t)
				p.Trial++
			}
		}
	}
	return trials, nil
}

// trial runs one plan against c.
func (r *Rig) trial(ctx context.Context, c *Contestant, plan load.Plan, p Progress, watch func(Progress)) (Trial, error) {
	t := Trial{Round: p.Round, Contestant: c.Name, Plan: plan}
	plan.Address = c.Address
	summary := c.summary
	before, err := c.child.Usage()
	if err != nil {
		return t, r.blame(ctx, err, c)
	}
	if err := r.load.Send(plan); err != nil {
		return t, r.blame(ctx, err, c)
	}
	if t.Result, t.Pipes, err = r.follow(ctx, c, p, watch); err != nil {
		return t, r.blame(ctx, err, c)
	}
	after, err := c.child.Usage()
	if err != nil {
		return t, r.blame(ctx, err, c)
	}
	t.Usage = after.Sub(before)
	settling, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	if err := c.settle(settling); err != nil {
		return t, r.blame(ctx, err, c)
	}
	if summary != nil {
		t.Summary = Since(summary, c.summary)
	}
	return t, t.check()
}

// follow passes on the load's events until it has a result, and looks at the
// contestant's pipes once half the time is over.
func (r *Rig) follow(ctx context.Context, c *Contestant, p Progress, watch func(Progress)) (load.Result, int, error) {
	pipes := -1
	for {
		line, err := r.load.Stdout(ctx)
		if err != nil {
			return load.Result{}, 0, err
		}
		var e load.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return load.Result{}, 0, fmt.Errorf("bench: the load said %q: %w", line, err)
		}
		if pipes < 0 && e.Elapsed >= p.Plan.Duration/2 {
			if pipes, err = c.child.Pipes(); err != nil {
				return load.Result{}, 0, err
			}
		}
		p.Received, p.Elapsed, p.Result = e.Received, e.Elapsed, e.Result
		switch {
		case e.Error != "":
			return load.Result{}, 0, fmt.Errorf("%s: %s", c.Name, e.Error)
		case e.Result != nil:
			watch(p)
			return *e.Result, pipes, nil
		}
		watch(p)
	}
}

// blame finds the child whose death explains err, if there is one.
func (r *Rig) blame(ctx context.Context, err error, c *Contestant) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-c.child.Done():
		err = c.child.Err()
	case <-r.origin.Done():
		err = r.origin.Err()
	case <-r.load.Done():
		err = r.load.Err()
	case <-time.After(culprit):
	}
	return describe(err)
}

// describe leaves of a child's last words only what is a complaint.
func describe(err error) error {
	var ended *process.EndedError
	if errors.As(err, &ended) {
		ended.Said = complaint(ended.Said)
	}
	return err
}

// check compares the contestant's account with the load's.
func (t *Trial) check() error {
	if t.Summary == nil {
		return nil
	}
	for _, d := range []struct {
		name        string
		load, proxy int64
	}{
		{"client to endpoint", t.Result.Sent, total(t.Summary.Bytes.ClientToEndpoint)},
		{"endpoint to client", t.Result.Received, total(t.Summary.Bytes.EndpointToClient)},
	} {
		if d.load != d.proxy {
			return fmt.Errorf("bench: round %d, %s: the load counts %d bytes %s, %s counts %d",
				t.Round+1, t.Plan.Workload, d.load, d.name, t.Contestant, d.proxy)
		}
	}
	if t.Summary.Lost != 0 {
		return fmt.Errorf("bench: %s lost %d bytes", t.Contestant, t.Summary.Lost)
	}
	return nil
}
