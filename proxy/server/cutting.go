package server

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A cutJob is the end of sessions that have had their time to drain, see [worker.Spread].
// Fields are guarded by the server's mu unless they say otherwise.
type cutJob struct {
	until time.Time   // when the last one is; not changed
	timer *time.Timer // of the next step; nil: there is none
	off   bool        // there is to be none any more
	turn  sync.Mutex  // of the steps, which are made one after the other
	over  atomic.Bool // the last step was made, or it was called off: a late step cuts no session

	waits  func() *monitor.Line // the line on the sessions it waits for, nil: none now; nil: nothing is logged
	logged int64                // when that was logged last
}

// logWaits has a line logged from time to time on the sessions that a cutting waits for. k may
// be nil.
func (s *Server) logWaits(k *cutJob, waits func() *monitor.Line) {
	if k != nil {
		k.waits, k.logged = waits, s.now()
		s.drains[k] = true
	}
}

// logDrains logs the sessions that parts of the process wait for. A drain of the whole process
// is logged elsewhere.
func (s *Server) logDrains(now int64) {
	for k := range s.drains {
		if k.timer == nil { // it is the last step, or was
			delete(s.drains, k)
		} else if now-k.logged >= int64(drainLook) {
			k.logged = now
			if line := k.waits(); line != nil {
				line.Level, line.Message, line.Kind = slog.LevelInfo, "drain waits for sessions", "drain"
				line.Attrs = append(line.Attrs, "sessions", line.Count, "until", k.until.Format(time.RFC3339))
				s.lines.Note(now, line)
			}
		}
	}
}

// waitsFor returns the line of an endpoint's cutting. It does not keep the endpoint.
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
// step, on a goroutine of its own: chosen reports whether a session is to be cut in that step,
// and last that no step follows.
func (s *Server) cutAfter(within time.Duration, cut func(chosen func() bool, last bool)) *cutJob {
	k, spread := &cutJob{until: time.Now().Add(within)}, worker.NewSpread(within)
	var step func(n int) func()
	step = func(n int) func() {
		return func() {
			if k.timer = nil; k.off || s.closing {
				return
			}
			last := n == spread.Steps-1
			if !last {
				k.timer = s.at(spread.Every, step(n+1))
			}
			s.goTracked(func() {
				k.turn.Lock()
				defer k.turn.Unlock()
				if k.over.Load() {
					return
				}
				if cut(func() bool { return spread.Cuts(n) }, last); last {
					k.over.Store(true)
				}
			})
		}
	}
	k.timer = s.at(spread.First, step(0))
	return k
}

// callOff has cutAfter cut none of the sessions that are left, but for those of a step that is
// under way. k may be nil.
func (s *Server) callOff(k *cutJob) {
	if k != nil {
		k.off = true
		k.over.Store(true)
		s.cancelTimer(k.timer)
		delete(s.drains, k)
	}
}

// ends returns when the last of the sessions is cut; zero if none is. k may be nil.
func (k *cutJob) ends() time.Time {
	if k == nil || k.off {
		return time.Time{}
	}
	return k.until
}

// settled calls f when no step is under way.
func (k *cutJob) settled(f func()) {
	k.turn.Lock()
	defer k.turn.Unlock()
	f()
}
