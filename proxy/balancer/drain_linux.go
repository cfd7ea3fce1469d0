package balancer

import (
	"errors"
	"log/slog"
	"sync"
	"time"
	"weak"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/dispatch"
	"github.com/penstock/penstock/proxy/monitor"
)

// letGo does with the sessions of an endpoint what a configuration says: keep, drain or
// reset. It returns what [Server.callOff] calls off, nil if there is no such thing.
func (s *Server) letGo(e *dispatch.Endpoint, how string, within time.Duration, cause error) *cutting {
	switch {
	case how == "keep":
	case how == "reset" || within <= 0:
		s.aside(func() { s.tellCut(e, s.group.CutMatching(bondTo(e), cause), cause) })
	default:
		k := s.cutAfter(within, s.cutter(e, cause))
		s.tellWaits(k, waitsFor(e, func(*dispatch.Endpoint) bool { return true }))
		return k
	}
	return nil
}

// letLateGo is letGo for endpoints that are removed and have no sessions, but may get some of
// clients that are on their way. It does not keep those that get none.
func (s *Server) letLateGo(cfg *config.Upstream, endpoints []*dispatch.Endpoint) {
	if cfg.OnRemoved != "drain" || cfg.DrainTimeout <= 0 || len(endpoints) == 0 {
		return
	}
	kept := make([]weak.Pointer[dispatch.Endpoint], len(endpoints))
	for i, e := range endpoints {
		kept[i] = weak.Make(e)
	}
	s.cutAfter(cfg.DrainTimeout, func(chosen func() bool, _ bool) {
		left := make(map[*dispatch.Endpoint]bool)
		for _, k := range kept {
			if e := k.Value(); e != nil {
				left[e] = true
			}
		}
		if len(left) > 0 {
			s.group.CutMatching(func(_ *core.Listening, b core.Bond) bool {
				return b != nil && left[dispatch.EndpointOf(b)] && chosen()
			}, errRemoved)
		}
	})
}

// cutter returns what cuts the sessions of an endpoint in steps. It waits for the loops. It does
// not keep the endpoint: one that has no sessions, and that nobody is on the way to, goes.
func (s *Server) cutter(endpoint *dispatch.Endpoint, cause error) func(chosen func() bool, last bool) {
	n, kept := 0, weak.Make(endpoint)
	return func(chosen func() bool, last bool) {
		e := kept.Value()
		if e == nil {
			return
		}
		to := bondTo(e)
		n += s.group.CutMatching(func(l *core.Listening, b core.Bond) bool { return to(l, b) && chosen() }, cause)
		if last {
			s.tellCut(e, n, cause)
		}
	}
}

// tellCut logs how many sessions of an endpoint were cut.
func (s *Server) tellCut(e *dispatch.Endpoint, n int, cause error) {
	if n > 0 {
		upstream := e.Upstream().Name()
		s.lines.Note(s.now(), &monitor.Line{
			Upstream: upstream, Level: slog.LevelInfo, Message: "sessions cut", Kind: cause, Name: e.Name(), Count: int64(n),
			Attrs: []any{"upstream", upstream, "endpoint", e.Name(), "sessions", n, "cause", cause},
		})
	}
}

// aside has f called on a goroutine of its own, for which the end waits: what waits for
// loops does not wait under the server's mu.
func (s *Server) aside(f func()) {
	if s.closing {
		return
	}
	s.watches.Go(f)
}

// sickness is endpoints that were found to be unwell, on whatever goroutine: what follows
// is done elsewhere.
type sickness struct {
	mu        sync.Mutex
	endpoints []*dispatch.Endpoint
}

// fallIll notes that an endpoint was found to be unwell.
func (s *Server) fallIll(e *dispatch.Endpoint) {
	s.sick.mu.Lock()
	s.sick.endpoints = append(s.sick.endpoints, e)
	s.sick.mu.Unlock()
	s.wakeTend()
}

// wakeTend has tend look at what there is to do.
func (s *Server) wakeTend() {
	select {
	case s.found <- struct{}{}:
	default:
	}
}

var errUnhealthy = errors.New("its endpoint is unhealthy")

// tend does, until stop, what follows from what loops have found out: with the sessions of
// unwell endpoints what on_unhealthy says, and nothing is kept of sockets that are deserted.
func (s *Server) tend(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-s.found:
		}
		s.forgetDeserted()
		s.sick.mu.Lock()
		list := s.sick.endpoints
		s.sick.endpoints = nil
		s.sick.mu.Unlock()
		for _, e := range list {
			s.mu.Lock()
			u := s.upstreams[e.Upstream().Name()]
			var cfg *config.Upstream
			if u != nil {
				cfg = u.cfg
			}
			if cfg != nil && !s.closing {
				s.letGoUnwell(e, cfg)
			}
			s.mu.Unlock()
		}
	}
}

// letGoUnwell is letGo for an endpoint that may be well again by the time its sessions
// would be cut, also if it falls ill once more: then they have as long again.
func (s *Server) letGoUnwell(e *dispatch.Endpoint, cfg *config.Upstream) {
	if cfg.OnUnhealthy != "drain" || cfg.DrainTimeout <= 0 {
		s.letGo(e, cfg.OnUnhealthy, cfg.DrainTimeout, errUnhealthy)
		return
	}
	fell, cut := e.Fell(), s.cutter(e, errUnhealthy)
	ill := func(e *dispatch.Endpoint) bool {
		st := e.State()
		return (st.Down || st.Ejected) && e.Fell() == fell
	}
	k := s.cutAfter(cfg.DrainTimeout, func(chosen func() bool, last bool) {
		still := ill(e)
		cut(func() bool { return still && chosen() }, last)
	})
	s.tellWaits(k, waitsFor(e, ill))
}
