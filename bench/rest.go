package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
)

// errHeld means that an idle plan has ended without a release.
var errHeld = errors.New("the load ended an idle plan by itself")

// rests makes every entrant hold idle sessions, each entrant in its own process. Each round begins with the
// baseline, and ends with it as "again". The order of the others in between is reversed from round to round.
// Memory does not drift as time does, so no trial needs the baseline directly before or after it.
func (f *field) rests(ctx context.Context) error {
	f.enter(f.base.kind, report.Again)
	for f.step.Round = 1; f.step.Round <= f.out.Rounds; f.step.Round++ {
		for _, e := range f.turns() {
			if err := f.rested(ctx, e); err != nil {
				return err
			}
			f.end(e)
		}
	}
	f.step.Round = f.out.Rounds
	return nil
}

func (f *field) turns() []*entrant {
	turns := slices.Clone(f.entrants)
	if f.step.Round%2 == 0 {
		slices.Reverse(turns[1 : len(turns)-1])
	}
	return turns
}

// rested makes one trial of idle sessions. If the entrant is out, it does nothing.
func (f *field) rested(ctx context.Context, e *entrant) error {
	ok, err := f.start(ctx, e)
	if !ok || err != nil {
		return err
	}
	f.step.Contestant, f.step.Doing = e.kind.Name, "sessions rest"
	f.watch(f.step)
	start := time.Now()
	r := &rest{rig: f.rig, c: e.c, sessions: f.scenario.Connections, quiet: f.Quiet}
	t, err := r.run(ctx, f.plan(0))
	if err != nil {
		return f.lose(ctx, e, err)
	}
	out := f.took(&t, e.cell.Role, "", start)
	var unsteady string
	if out.Idle, unsteady = r.grown(); unsteady != "" {
		e.cell.Notes = append(e.cell.Notes, fmt.Sprintf("round %d: kernel slab not counted: %s", f.step.Round, unsteady))
	}
	f.add(out)
	return nil
}

// held has the resources in use at a moment.
type held struct {
	process process.Memory
	slab    int64
}

func holds(c *contestant.Contestant) (h held, err error) {
	if h.process, err = c.Memory(); err != nil {
		return h, err
	}
	h.slab, err = kernelSlab()
	return h, err
}

// kernelSlab returns the slab memory of sockets if that can be known, otherwise all slab memory.
func kernelSlab() (int64, error) {
	if n, err := process.SocketSlab(); err == nil {
		return n, nil
	}
	return process.Slab()
}

func slabCounted() string {
	_, err := process.SocketSlab()
	switch {
	case err == nil:
		return "the caches of sockets, pipes and files in /proc/slabinfo, of the whole machine"
	case errors.Is(err, fs.ErrPermission):
		return "Slab of /proc/meminfo: all of the whole machine, because /proc/slabinfo, which tells sockets from the rest, is for root only"
	}
	return "Slab of /proc/meminfo: all of the whole machine, because " + err.Error()
}

// rest is an Idle plan in progress, with its readings.
type rest struct {
	rig                 *Rig
	c                   *contestant.Contestant
	sessions            int
	quiet               time.Duration
	before, with, after held // the time of the sessions
}

// run runs the plan. It reads the resources of the sessions after they have been quiet
// for r.quiet, and the resources still held after they have ended.
func (r *rest) run(ctx context.Context, plan load.Plan) (Trial, error) {
	err := pause(ctx, r.c, r.quiet/10) // so that memory taken by the start is given back
	if err == nil {
		r.before, err = holds(r.c)
	}
	if err != nil {
		return Trial{}, r.rig.blame(ctx, err, r.c)
	}
	var looked error
	released := false
	t, err := r.rig.trial(ctx, r.c, plan, func(e load.Event) error {
		switch {
		case e.Result != nil && !released:
			return errHeld
		case !e.Holding || released:
			return nil
		}
		released = true
		if err := r.rig.hold(ctx, r.quiet); err != nil {
			return err // the plan has failed
		}
		r.with, looked = holds(r.c)
		return r.rig.load.Send(load.Plan{Release: true}) // whatever was read, the load must be released
	})
	if looked != nil {
		err = r.rig.blame(ctx, looked, r.c)
	}
	if err != nil {
		return t, err
	}
	return t, r.settle(ctx)
}

// givenBack is how long the kernel may take to free the memory of the sessions.
const givenBack = time.Second

// settle waits until the kernel has given back the memory of the sessions, for givenBack at
// most. Memory still in use then belongs to something else.
func (r *rest) settle(ctx context.Context) (err error) {
	for deadline := time.Now().Add(givenBack); ; {
		if r.after, err = holds(r.c); err != nil {
			return r.rig.blame(ctx, err, r.c)
		}
		if r.steady() || time.Now().After(deadline) {
			return nil
		}
		if err := pause(ctx, r.c, givenBack/50); err != nil {
			return r.rig.blame(ctx, err, r.c)
		}
	}
}

// growth returns the slab memory that the sessions added, and the difference between the readings before and after
// the sessions.
func (r *rest) growth() (growth, moved int64) {
	return r.with.slab - r.before.slab, r.after.slab - r.before.slab
}

// steady reports whether the slab memory is the same before and after the sessions, with a tolerance of a quarter
// of what the sessions added.
func (r *rest) steady() bool {
	growth, moved := r.growth()
	return growth > 0 && max(moved, -moved) <= growth/4
}

// grown returns the resources that the sessions added. If the slab memory is missing there, it also returns the
// reason.
func (r *rest) grown() (*report.Idle, string) {
	growth, moved := r.growth()
	i := &report.Idle{
		Sessions:     r.sessions,
		RssAnonBytes: report.Number(r.with.process.RssAnon - r.before.process.RssAnon),
		SlabBytes:    report.Number(growth),
		Descriptors:  report.Number(r.with.process.Descriptors - r.before.process.Descriptors),
	}
	if r.c.Name == directName {
		i.RssAnonBytes, i.Descriptors = report.Unmeasured(), report.Unmeasured()
	}
	if r.steady() {
		return i, ""
	}
	i.SlabBytes = report.Unmeasured()
	return i, fmt.Sprintf("it grew by %s with the sessions, and changed by %s without them",
		report.Bytes(float64(growth)), report.Bytes(float64(moved)))
}

// hold leaves the sessions quiet for a time. It fails if they end.
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

// pause waits for d. It returns early if the contestant ends.
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
