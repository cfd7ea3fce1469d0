package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// The drains of a server end the sessions of parts that were taken out of service: never, within a
// time, or at once.
type drains struct {
	*core
	jobs map[*cutJob]bool // jobs that log which sessions they wait for; under mu
}

// drainSessions applies a configuration's treatment to the sessions of an endpoint: keep, drain or reset. It returns the
// job that drains, for [drains.callOff], or nil if there is none.
func (d *drains) drainSessions(e *router.Endpoint, how string, within time.Duration, cause error) *cutJob {
	switch {
	case how == "keep":
	case how == "reset" || within <= 0:
		d.goTracked(func() { d.logCut(e, d.cutTo(e, func() bool { return true }, cause), cause) })
	default:
		k := d.cutAfter(within, d.cutter(e, cause))
		d.logWaits(k, waitsFor(e, func(*router.Endpoint) bool { return true }))
		return k
	}
	return nil
}

// cutter returns a function that cuts the sessions of an endpoint in steps, and waits for the loops. The function holds the
// endpoint by a weak pointer: once no session and no client on its way has the endpoint, it is collected.
func (d *drains) cutter(endpoint *router.Endpoint, cause error) func(chosen func() bool, last bool) {
	n, kept := 0, weak.Make(endpoint)
	return func(chosen func() bool, last bool) {
		e := kept.Value()
		if e == nil {
			return
		}
		n += d.cutTo(e, chosen, cause)
		if last {
			d.logCut(e, n, cause)
		}
	}
}

// cutTo cuts the chosen sessions of an endpoint, and returns their number. It waits for the loops.
func (d *drains) cutTo(e *router.Endpoint, chosen func() bool, cause error) int {
	return d.group.CutMatching(func(_ *worker.Listening, b worker.Binding) bool {
		return b != nil && router.EndpointOf(b) == e && chosen()
	}, cause)
}

func (d *drains) logCut(e *router.Endpoint, n int, cause error) {
	if n > 0 {
		upstream := e.Upstream().Name()
		d.lines.Note(d.now(), &monitor.Line{
			Upstream: upstream, Level: slog.LevelInfo, Message: "sessions were reset", Kind: cause, Name: e.Name(), Count: int64(n),
			Attrs: []any{"upstream", upstream, "endpoint", e.Name(), "sessions", n, "cause", cause},
		})
	}
}

var errUnhealthy = errors.New("its endpoint is unhealthy")

// drainDown applies on_unhealthy to the sessions of endpoints that are found to be unhealthy, until ctx ends.
func (um *upstreamManager) drainDown(ctx context.Context) {
	um.down.each(ctx, func(list []*router.Endpoint) {
		um.mu.Lock()
		defer um.mu.Unlock()
		for _, e := range list {
			if u := um.upstreams[e.Upstream().Name()]; u != nil && !um.closing {
				um.drainUnhealthy(e, u.cfg)
			}
		}
	})
}

// drainUnhealthy is drainSessions for an unhealthy endpoint. Its sessions are not cut if it has recovered meanwhile; if it
// becomes unhealthy again, they get the full time once more.
func (d *drains) drainUnhealthy(e *router.Endpoint, cfg *config.Upstream) {
	if cfg.OnUnhealthy != "drain" || cfg.DrainTimeout <= 0 {
		d.drainSessions(e, cfg.OnUnhealthy, cfg.DrainTimeout, errUnhealthy)
		return
	}
	fell, cut := e.DownTransitions.Load(), d.cutter(e, errUnhealthy)
	ill := func(e *router.Endpoint) bool {
		st := e.State()
		return (st.Down || st.Ejected) && e.DownTransitions.Load() == fell
	}
	k := d.cutAfter(cfg.DrainTimeout, func(chosen func() bool, last bool) {
		still := ill(e)
		cut(func() bool { return still && chosen() }, last)
	})
	d.logWaits(k, waitsFor(e, ill))
}

// A cutJob cuts the sessions that are left at the end of a drain, see [worker.Spread].
// Fields are guarded by the server's mu unless they say otherwise.
type cutJob struct {
	until time.Time   // when the last session is cut; not changed
	timer *time.Timer // runs the next step; nil: no step follows
	off   bool        // called off
	turn  sync.Mutex  // held for each step: steps do not overlap
	over  atomic.Bool // the last step has begun, or the job was called off: a late step cuts no session

	waits  func() *monitor.Line // returns a line about the sessions that it waits for, nil if there are none; nil: nothing is logged
	logged int64                // when it was logged last
}

// logWaits logs from time to time which sessions a job waits for. k may be nil.
func (d *drains) logWaits(k *cutJob, waits func() *monitor.Line) {
	if k != nil {
		k.waits, k.logged = waits, d.now()
		d.jobs[k] = true
	}
}

// logDrains logs which sessions the drains of parts wait for. The drain of the whole process logs for itself.
func (d *drains) logDrains(now int64) {
	for k := range d.jobs {
		if k.timer == nil { // the last step is under way or done
			delete(d.jobs, k)
		} else if now-k.logged >= int64(drainLook) {
			k.logged = now
			if line := k.waits(); line != nil {
				line.Level, line.Message, line.Kind = slog.LevelInfo, "a drain waits for sessions", "drain"
				line.Attrs = append(line.Attrs, "sessions", line.Count, "until", k.until.Format(time.RFC3339))
				d.lines.Note(now, line)
			}
		}
	}
}

// waitsFor returns [cutJob].waits for the sessions of an endpoint. It holds the endpoint by a weak pointer.
func waitsFor(endpoint *router.Endpoint, drains func(e *router.Endpoint) bool) func() *monitor.Line {
	kept := weak.Make(endpoint)
	return func() *monitor.Line {
		e := kept.Value()
		if e == nil || e.Active() == 0 || !drains(e) {
			return nil
		}
		upstream := e.Upstream().Name()
		return &monitor.Line{
			Upstream: upstream, Name: e.Name(), Count: int64(e.Active()), Attrs: []any{"upstream", upstream, "endpoint", e.Name()},
		}
	}
}

// cutAfter cuts sessions within a time, unless all of them end before. cut is called for each
// step, on a separate goroutine: chosen reports whether a session is cut in this step, and
// last says that no step follows.
func (d *drains) cutAfter(within time.Duration, cut func(chosen func() bool, last bool)) *cutJob {
	k, spread := &cutJob{until: time.Now().Add(within)}, worker.NewSpread(within)
	var step func(n int) func()
	step = func(n int) func() {
		return func() {
			if k.timer = nil; k.off || d.closing {
				return
			}
			last := n == spread.Steps-1
			if !last {
				k.timer = d.at(spread.Every, step(n+1))
			}
			d.goTracked(func() {
				k.turn.Lock()
				defer k.turn.Unlock()
				if k.over.Load() {
					return
				}
				k.over.Store(last)
				cut(func() bool { return spread.Cuts(n) }, last)
			})
		}
	}
	k.timer = d.at(spread.First, step(0))
	return k
}

// callOff calls off a job, except for a step under way. k may be nil.
func (d *drains) callOff(k *cutJob) {
	if k != nil {
		k.off = true
		k.over.Store(true)
		d.cancelTimer(k.timer)
		delete(d.jobs, k)
	}
}

// ends returns when the last of the sessions is cut; zero if none is. k may be nil.
func (k *cutJob) ends() time.Time {
	if k == nil || k.off {
		return time.Time{}
	}
	return k.until
}
