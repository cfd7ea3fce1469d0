package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/process"
)

// culprit is how long a failed trial waits for the end of a child, which would explain the failure.
const culprit = 3 * time.Second

// Trial is one contestant in one plan, once.
type Trial struct {
	Contestant string
	Plan       load.Plan
	Result     load.Result
	// In a plan with a Warmup, Usage and Machine are only from the time that counts.
	Usage   process.Usage // of the contestant's processes, during the trial
	Machine time.Duration // of all processors, during the trial
	// Spliced is how many bytes the contestant has spliced, by its own count; negative if it does not count.
	Spliced int64
	// Lane is the share of the counted bytes that the lane carried, by the contestant's own count; negative if it
	// has no lane.
	Lane float64
	warm *contestant.Account // at the end of the Warmup, for a contestant with a lane
	// Lost is how many bytes Penstock lost, by its own count.
	Lost int64
}

// trial runs one plan against c. watch gets the load's events, and ends the trial if it returns an error.
func (r *Rig) trial(ctx context.Context, c *contestant.Contestant, plan load.Plan, watch func(load.Event) error) (Trial, error) {
	plan.Address = c.Address
	t := Trial{Contestant: c.Name, Plan: plan, Spliced: -1, Lane: -1}
	w := &window{rig: r, c: c, t: &t}
	if plan.Warmup > 0 {
		watch = func(e load.Event) error { return w.event(ctx, e) }
	}
	err := r.drive(ctx, c, &t, watch)
	if err == nil && plan.Warmup > 0 && !w.seen {
		return t, errTooSlow
	}
	if err == nil {
		err = r.account(ctx, c, &t)
	}
	if err != nil {
		return t, r.blame(ctx, err, c)
	}
	return t, nil
}

// drive runs the trial's plan and measures the resources used. It reads the machine's time last before the plan,
// and first after it. So that time does not contain the reading of the contestant's time.
func (r *Rig) drive(ctx context.Context, c *contestant.Contestant, t *Trial, watch func(load.Event) error) error {
	used, err := read(c)
	if err != nil {
		return err
	}
	if err := r.load.Send(t.Plan); err != nil {
		return err
	}
	if t.Result, err = r.follow(ctx, watch); err != nil {
		return err
	}
	if t.Plan.Warmup > 0 {
		return nil // see window
	}
	if t.Machine, err = process.MachineCPU(); err != nil {
		return err
	}
	t.Machine -= used.machine
	t.Usage, err = c.Usage()
	t.Usage = t.Usage.Sub(used.usage)
	return err
}

// window measures the resources of the part of a trial that counts.
type window struct {
	rig  *Rig
	c    *contestant.Contestant
	t    *Trial
	used reading
	seen bool // it has begun
	over bool
}

// errTooSlow means that the load was delayed until its window was over.
var errTooSlow = errors.New("the load did not start in time: this machine is too busy: write a larger --seconds")

// slowAttempts is how many times a trial is made that ends with errTooSlow.
const slowAttempts = 4

// reading has the resources used at a moment.
type reading struct {
	usage   process.Usage
	machine time.Duration
}

// event reads the resources when the load says that its window begins, and that the window is over.
func (w *window) event(ctx context.Context, e load.Event) error {
	switch {
	case e.Warm:
		w.seen = true
		return w.begin(ctx)
	case e.Over, e.Result != nil && w.seen && !w.over: // a Bulk is over when it ends
		w.over = true
		now, err := read(w.c)
		w.t.Usage, w.t.Machine = now.usage.Sub(w.used.usage), now.machine-w.used.machine
		return err
	}
	return nil
}

// begin reads the resources used before the window. For a contestant with a lane it also reads the account, and
// then the usage again: the work for that answer must not count as the contestant's work for sessions. It counts
// only as the machine's.
func (w *window) begin(ctx context.Context) (err error) {
	if w.used, err = read(w.c); err != nil || w.c.Name != contestant.LaneName {
		return err
	}
	if w.t.warm, err = w.c.Account(ctx); err != nil {
		return err
	}
	w.used.usage, err = w.c.Usage()
	return err
}

// read reads the resources that the contestant and the machine have used so far.
func read(c *contestant.Contestant) (r reading, err error) {
	if r.usage, err = c.Usage(); err != nil {
		return r, err
	}
	r.machine, err = process.MachineCPU()
	return r, err
}

// follow passes the load's events on until there is a result.
func (r *Rig) follow(ctx context.Context, watch func(load.Event) error) (load.Result, error) {
	for {
		e, err := r.event(ctx)
		if err != nil {
			return load.Result{}, err
		}
		if err := watch(e); err != nil {
			return load.Result{}, err
		}
		if e.Result != nil {
			return *e.Result, nil
		}
	}
}

// event waits for the next event. If the event reports a failure, it returns an error.
func (r *Rig) event(ctx context.Context) (load.Event, error) {
	line, err := r.load.Stdout(ctx)
	if err != nil {
		return load.Event{}, err
	}
	e, err := load.ReadEvent(line)
	if err != nil {
		return load.Event{}, brokenError{fmt.Errorf("bench: %w", err)}
	}
	if e.Error != "" {
		return e, fmt.Errorf("the load failed: %s", e.Error)
	}
	return e, nil
}

// account waits until the contestant has settled, and compares the contestant's account of the trial with the
// load's.
func (r *Rig) account(ctx context.Context, c *contestant.Contestant, t *Trial) error {
	before := r.accounts[c]
	if before == nil {
		return nil
	}
	settling, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	now, err := c.Settle(settling)
	if err != nil {
		return err
	}
	r.accounts[c] = now
	t.Spliced = now.Spliced - before.Spliced
	if s := now.Summary; s != nil {
		t.Lost = s.Lost - before.Summary.Lost
		if s.Lane != nil {
			t.Lane = inLane(cmp.Or(t.warm, before), now)
		}
	}
	return t.check(now.ClientToEndpoint-before.ClientToEndpoint, now.EndpointToClient-before.EndpointToClient)
}

// inLane returns the share of the bytes between two accounts that the lane carried. It is computed from the bytes
// moved in user space, because these are counted at once. The lane's bytes are read only now and then.
func inLane(before, now *contestant.Account) float64 {
	all := now.ClientToEndpoint + now.EndpointToClient - before.ClientToEndpoint - before.EndpointToClient
	if all <= 0 {
		return 0
	}
	return 1 - float64(now.Spliced+now.Copied-before.Spliced-before.Copied)/float64(all)
}

func (t *Trial) check(there, back int64) error {
	for _, d := range []struct {
		name        string
		load, proxy int64
	}{
		{"client to endpoint", t.Result.Sent, there},
		{"endpoint to client", t.Result.Received, back},
	} {
		if d.load != d.proxy {
			return fmt.Errorf("the load counts %d bytes %s, %s counts %d", d.load, d.name, t.Contestant, d.proxy)
		}
	}
	if t.Lost != 0 {
		return fmt.Errorf("%s lost %d bytes", t.Contestant, t.Lost)
	}
	return nil
}
