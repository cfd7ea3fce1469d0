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

// ManyConnections returns the scenarios of servers with so many connections, all of them active: Echo of 64
// bytes, and Hello.
func ManyConnections(n int) []Scenario {
	of := report.Exact(int64(n)) + " connections"
	return []Scenario{
		{Name: fmt.Sprintf("echo-64-%d", n), Title: "64 bytes there and back, " + of, Workload: load.Echo, Connections: n, Size: 64, Many: true},
		{Name: fmt.Sprintf("hello-%d", n), Title: "HTTP/1.1 GET, " + of, Workload: load.Hello, Connections: n, Many: true},
	}
}

// In a trial of Many connections the load warms up before the time that counts, and rests after it with all
// connections open, before memory is looked at.
const (
	manyWarmup        = 300 * time.Millisecond
	manyWarmupForEach = 70 * time.Microsecond
	manyRests         = 300 * time.Millisecond
)

// warmup is that of a scenario, 0 if it has none.
func (s *Scenario) warmup() time.Duration {
	if !s.Many {
		return s.Warmup
	}
	return manyWarmup + time.Duration(s.Connections)*manyWarmupForEach
}

// window measures the resources of the part of a trial that counts, and the memory after it.
type window struct {
	rig  *Rig
	c    *contestant.Contestant
	t    *Trial
	used reading
	seen bool // its beginning
	over bool
}

// errTooSlow reports a load that was held up until its window was over.
var errTooSlow = errors.New("the load was not at work before its time was over: this machine is too busy; try fewer connections, or more --seconds")

// manyAttempts is how many times a trial is made that is too slow.
const manyAttempts = 4

// reading is the resources used at a moment.
type reading struct {
	usage   process.Usage
	load    process.Usage
	machine time.Duration
}

// event looks at the resources when the load says that its window begins, is over, and rests.
func (w *window) event(ctx context.Context, e load.Event) error {
	switch {
	case e.Warm:
		w.seen = true
		return w.begin(ctx)
	case e.Over, e.Result != nil && w.seen && !w.over: // a Bulk is over when it ends
		w.over = true
		now, err := w.read()
		w.t.Usage, w.t.Machine = now.usage.Sub(w.used.usage), now.machine-w.used.machine
		w.t.Load = now.load.Sub(w.used.load)
		return err
	case e.Holding && w.t.Plan.Hold:
		if err := w.rig.hold(ctx, manyRests); err != nil {
			return err
		}
		m, err := w.c.Memory()
		w.t.Held = m.RssAnon - w.rig.empty[w.c]
		if err != nil {
			return err
		}
		return w.rig.load.Send(load.Plan{Release: true})
	}
	return nil
}

// begin looks at the resources used before the window, and at the account of a contestant whose sessions leave user
// space. Its answer is no work for sessions, and not counted as the contestant's; the machine has it.
func (w *window) begin(ctx context.Context) (err error) {
	if w.used, err = w.read(); err != nil || w.c.Name != contestant.LaneName {
		return err
	}
	if w.t.warm, err = w.c.Account(ctx); err != nil {
		return err
	}
	w.used.usage, err = w.c.Usage()
	return err
}

// read reads the resources that the contestant, the load and the machine have used so far.
func (w *window) read() (r reading, err error) {
	if r.usage, err = w.c.Usage(); err != nil {
		return r, err
	}
	if r.load, err = w.rig.load.Usage(); err != nil {
		return r, err
	}
	r.machine, err = process.MachineCPU()
	return r, err
}
