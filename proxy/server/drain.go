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

// The drains of a server end sessions of parts that were taken out of service, at once or within a time.
type drains struct {
	*core
	jobs map[*cutJob]bool // jobs that log which sessions they wait for; under mu
}

// drainSessions keeps, drains or resets the sessions of an endpoint, as how says. No session is cut while spared
// returns true; if spared is nil, every session may be cut. The result is the job that drains, for [drains.callOff],
// or nil if there is none. The job holds the endpoint by a weak pointer: the endpoint is collected once no session
// and no client on its way uses it.
func (d *drains) drainSessions(endpoint *router.Endpoint, how string, within time.Duration, cause error, spared func(e *router.Endpoint) bool) *cutJob {
	switch how {
	case "keep":
		return nil
	case "reset":
		within = 0
	}
	n, kept := 0, weak.Make(endpoint)
	cut := func(chosen func() bool, last bool) {
		e := kept.Value()
		if e == nil {
			return
		}
		if spared == nil || !spared(e) {
			n += d.group.CutMatching(func(_ *worker.Listening, b worker.Binding) bool {
				return b != nil && router.EndpointOf(b) == e && chosen()
			}, cause)
		}
		if last {
			d.logCut(e, n, cause)
		}
	}
	if within <= 0 {
		d.goTracked(func() { cut(func() bool { return true }, true) })
		return nil
	}
	return d.cutAfter(within, cut, func() *monitor.Line {
		e := kept.Value()
		if e == nil || e.Active() == 0 || spared != nil && spared(e) {
			return nil
		}
		upstream := e.Upstream().Name()
		return &monitor.Line{
			Upstream: upstream, Name: e.Name(), Count: int64(e.Active()), Attrs: []any{"upstream", upstream, "endpoint", e.Name()},
		}
	})
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

// drainDown applies on_unhealthy to the sessions of endpoints that are found to be unhealthy, or barred again, until ctx ends.
func (um *upstreamManager) drainDown(ctx context.Context) {
	um.down.each(ctx, func(list []*router.Endpoint) {
		um.mu.Lock()
		defer um.mu.Unlock()
		for _, e := range list {
			u := um.upstreams[e.Upstream().Name()]
			if u == nil {
				continue
			}
			m, falls := u.members[e.Name()], e.DownTransitions.Load()
			if m == nil || m.endpoint != e {
				m = new(member) // it was removed meanwhile
			}
			if k := m.fell; u.cfg.OnUnhealthy != "drain" || k == nil || k.over.Load() || m.falls != falls { // otherwise k also ends the sessions that have begun since
				m.fell, m.falls = um.drainUnhealthy(e, u.cfg), falls
			}
		}
	})
}

// drainUnhealthy is drainSessions for an unhealthy endpoint. Its sessions are not cut if it has recovered meanwhile; if it
// becomes unhealthy again, they get the full time once more.
func (d *drains) drainUnhealthy(e *router.Endpoint, cfg *config.Upstream) *cutJob {
	var spared func(e *router.Endpoint) bool
	if cfg.OnUnhealthy == "drain" && cfg.DrainTimeout > 0 {
		fell := e.DownTransitions.Load()
		spared = func(e *router.Endpoint) bool {
			st := e.State()
			return !st.Down && !st.Ejected || e.DownTransitions.Load() != fell
		}
	}
	return d.drainSessions(e, cfg.OnUnhealthy, cfg.DrainTimeout, errUnhealthy, spared)
}

// A cutJob cuts the sessions that are left at the end of a drain, see [worker.Spread].
// Fields are guarded by the server's mu unless they say otherwise.
type cutJob struct {
	until time.Time   // when the last session is cut; not changed
	timer *time.Timer // runs the next step; nil: no step follows
	off   bool        // called off
	turn  sync.Mutex  // held for each step: steps do not overlap
	over  atomic.Bool // the last step has begun, or the job was called off: a late step cuts no session

	waits  func() *monitor.Line // returns a line about the sessions that the job waits for, nil if there are none
	logged int64                // when this line was logged last
}

// logDrains logs which sessions the drains of parts wait for. The drain of the whole process logs for itself.
func (d *drains) logDrains(now int64) {
	for k := range d.jobs {
		if now-k.logged >= int64(drainLook) {
			k.logged = now
			if line := k.waits(); line != nil {
				line.Level, line.Message, line.Kind = slog.LevelInfo, "a drain waits for sessions", "drain"
				line.Attrs = append(line.Attrs, "sessions", line.Count, "until", k.until.Format(time.RFC3339))
				d.lines.Note(now, line)
			}
		}
	}
}

// cutAfter cuts sessions within a time, unless all of them end before. cut is called for each step, on a separate
// goroutine: chosen reports whether a session is cut in this step, and last says that no step follows. waits is as in
// [cutJob].
func (d *drains) cutAfter(within time.Duration, cut func(chosen func() bool, last bool), waits func() *monitor.Line) *cutJob {
	k, spread := &cutJob{until: time.Now().Add(within), waits: waits, logged: d.now()}, worker.NewSpread(within)
	d.jobs[k] = true
	var step func(n int) func()
	step = func(n int) func() {
		return func() {
			if k.timer = nil; k.off {
				return
			}
			last := n == spread.Steps-1
			if last {
				delete(d.jobs, k)
			} else {
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
