package server

import (
	"errors"
	"log/slog"
	"sync"
	"time"
	"weak"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// drainSessions applies a configuration's treatment to the sessions of an endpoint: keep,
// drain or reset. It returns a cutting that [Server.callOff] calls off, nil if there is none.
func (s *Server) drainSessions(e *router.Endpoint, how string, within time.Duration, cause error) *cutJob {
	switch {
	case how == "keep":
	case how == "reset" || within <= 0:
		s.goTracked(func() { s.logCut(e, s.cutTo(e, func() bool { return true }, cause), cause) })
	default:
		k := s.cutAfter(within, s.cutter(e, cause))
		s.logWaits(k, waitsFor(e, func(*router.Endpoint) bool { return true }))
		return k
	}
	return nil
}

// drainLateSessions is letGo for endpoints that are removed and have no sessions, but may get some of
// clients that are on their way. It does not keep those that get none.
func (s *Server) drainLateSessions(cfg *config.Upstream, endpoints []*router.Endpoint) {
	if cfg.OnRemoved != "drain" || cfg.DrainTimeout <= 0 || len(endpoints) == 0 {
		return
	}
	kept := make([]weak.Pointer[router.Endpoint], len(endpoints))
	for i, e := range endpoints {
		kept[i] = weak.Make(e)
	}
	s.cutAfter(cfg.DrainTimeout, func(chosen func() bool, _ bool) {
		left := make(map[*router.Endpoint]bool)
		for _, k := range kept {
			if e := k.Value(); e != nil {
				left[e] = true
			}
		}
		if len(left) > 0 {
			s.group.CutMatching(func(_ *worker.Listening, b worker.Binding) bool {
				return b != nil && left[router.EndpointOf(b)] && chosen()
			}, errRemoved)
		}
	})
}

// cutter returns a function that cuts the sessions of an endpoint in steps. It waits for the
// loops. It does not keep the endpoint: one without sessions, and without clients on the way
// to it, is collected.
func (s *Server) cutter(endpoint *router.Endpoint, cause error) func(chosen func() bool, last bool) {
	n, kept := 0, weak.Make(endpoint)
	return func(chosen func() bool, last bool) {
		e := kept.Value()
		if e == nil {
			return
		}
		n += s.cutTo(e, chosen, cause)
		if last {
			s.logCut(e, n, cause)
		}
	}
}

// cutTo cuts sessions of an endpoint that are chosen, adopted ones included, and returns how many. It waits for the loops.
func (s *Server) cutTo(e *router.Endpoint, chosen func() bool, cause error) int {
	n := s.adopted.cut(func(one *adoptedSession) bool { return one.to == e && chosen() }, cause)
	to := bindingTo(e)
	return int(n) + s.group.CutMatching(func(l *worker.Listening, b worker.Binding) bool { return to(l, b) && chosen() }, cause)
}

// logCut logs how many sessions of an endpoint were cut.
func (s *Server) logCut(e *router.Endpoint, n int, cause error) {
	if n > 0 {
		upstream := e.Upstream().Name()
		s.lines.Note(s.now(), &monitor.Line{
			Upstream: upstream, Level: slog.LevelInfo, Message: "sessions cut", Kind: cause, Name: e.Name(), Count: int64(n),
			Attrs: []any{"upstream", upstream, "endpoint", e.Name(), "sessions", n, "cause", cause},
		})
	}
}

// goTracked calls f on a goroutine of its own, for which the end waits: waiting for loops is
// not done under the server's mu.
func (s *Server) goTracked(f func()) {
	if s.closing {
		return
	}
	s.watches.Go(f)
}

// downQueue is endpoints that were found to be unhealthy, on any goroutine: their sessions are
// treated on another.
type downQueue struct {
	mu        sync.Mutex
	endpoints []*router.Endpoint
}

// markDown notes that an endpoint was found to be unwell.
func (s *Server) markDown(e *router.Endpoint) {
	s.downQueue.mu.Lock()
	s.downQueue.endpoints = append(s.downQueue.endpoints, e)
	s.downQueue.mu.Unlock()
	s.wakeDrainDown()
}

// wakeDrainDown wakes drainDown.
func (s *Server) wakeDrainDown() {
	select {
	case s.downPending <- struct{}{}:
	default:
	}
}

var errUnhealthy = errors.New("its endpoint is unhealthy")

// drainDown handles, until stop, events that loops have found: it applies on_unhealthy to the
// sessions of unhealthy endpoints, and releases sockets without sessions.
func (s *Server) drainDown(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-s.downPending:
		}
		s.forgetDeserted()
		s.downQueue.mu.Lock()
		list := s.downQueue.endpoints
		s.downQueue.endpoints = nil
		s.downQueue.mu.Unlock()
		for _, e := range list {
			s.mu.Lock()
			u := s.upstreams[e.Upstream().Name()]
			var cfg *config.Upstream
			if u != nil {
				cfg = u.cfg
			}
			if cfg != nil && !s.closing {
				s.drainUnhealthy(e, cfg)
			}
			s.mu.Unlock()
		}
	}
}

// drainUnhealthy is letGo for an endpoint that may be well again by the time its sessions
// would be cut, also if it falls ill once more: then they have as long again.
func (s *Server) drainUnhealthy(e *router.Endpoint, cfg *config.Upstream) {
	if cfg.OnUnhealthy != "drain" || cfg.DrainTimeout <= 0 {
		s.drainSessions(e, cfg.OnUnhealthy, cfg.DrainTimeout, errUnhealthy)
		return
	}
	fell, cut := e.DownTransitions(), s.cutter(e, errUnhealthy)
	ill := func(e *router.Endpoint) bool {
		st := e.State()
		return (st.Down || st.Ejected) && e.DownTransitions() == fell
	}
	k := s.cutAfter(cfg.DrainTimeout, func(chosen func() bool, last bool) {
		still := ill(e)
		cut(func() bool { return still && chosen() }, last)
	})
	s.logWaits(k, waitsFor(e, ill))
}
