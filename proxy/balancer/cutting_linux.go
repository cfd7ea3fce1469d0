package balancer

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/dispatch"
	"github.com/penstock/penstock/proxy/monitor"
)

// A cutting is that sessions are cut when they have had their time to drain, see
// [core.Spread]. What does not say otherwise is guarded by the server's mu.
type cutting struct {
	until time.Time   // when the last one is; not changed
	timer *time.Timer // of the next step; nil: there is none
	off   bool        // there is to be none any more
	turn  sync.Mutex  // of the steps, which are made one after the other
	over  atomic.Bool // the last one was made, or it was called off: one that is late cuts nobody

	waits func() *monitor.Line // what of, nil: for nothing now; nil: nobody is told
	told  int64                // when that was logged last
}

// tellWaits has it logged every so often what a cutting waits for. k may be nil.
func (s *Server) tellWaits(k *cutting, waits func() *monitor.Line) {
	if k != nil {
		k.waits, k.told = waits, s.now()
		s.drains[k] = true
	}
}

// tellDrains logs what parts of the process wait for that drain. When it is all of it that is
// said elsewhere.
func (s *Server) tellDrains(now int64) {
	for k := range s.drains {
		if k.timer == nil { // it is the last step, or was
			delete(s.drains, k)
		} else if now-k.told >= int64(drainLook) {
			k.told = now
			if line := k.waits(); line != nil {
				line.Level, line.Message, line.Kind = slog.LevelInfo, "drain waits for sessions", "drain"
				line.Attrs = append(line.Attrs, "sessions", line.Count, "until", k.until.Format(time.RFC3339))
				s.lines.Note(now, line)
			}
		}
	}
}

// waitsFor is what a cutting waits for that is an endpoint's. It does not keep the endpoint.
func waitsFor(endpoint *dispatch.Endpoint, drains func(e *dispatch.Endpoint) bool) func() *monitor.Line {
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

// cutAfter has sessions cut within a time, unless everything ends before. cut is called for
// each step, on a goroutine of its own: chosen says of a session that is left whether it is
// to be cut in that step, and last that nobody is asked after it.
func (s *Server) cutAfter(within time.Duration, cut func(chosen func() bool, last bool)) *cutting {
	k, spread := &cutting{until: time.Now().Add(within)}, core.NewSpread(within)
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
			s.aside(func() {
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
func (s *Server) callOff(k *cutting) {
	if k != nil {
		k.off = true
		k.over.Store(true)
		s.forgo(k.timer)
		delete(s.drains, k)
	}
}

// ends returns when the last of the sessions is cut; zero if none is. k may be nil.
func (k *cutting) ends() time.Time {
	if k == nil || k.off {
		return time.Time{}
	}
	return k.until
}

// settled calls f when no step is under way.
func (k *cutting) settled(f func()) {
	k.turn.Lock()
	defer k.turn.Unlock()
	f()
}
