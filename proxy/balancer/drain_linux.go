package balancer

import (
	"errors"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/dispatch"
)

// letGo does with the sessions of an endpoint what a configuration says: keep, drain or
// reset. It returns what [Server.forgo] has left alone, nil if there is no such thing.
func (s *Server) letGo(e *dispatch.Endpoint, how string, within time.Duration, cause error) *time.Timer {
	cut := func() { s.cutSessions(e, cause) }
	switch {
	case how == "keep":
	case how == "reset" || within <= 0:
		s.aside(cut)
	default:
		return s.later(within, cut)
	}
	return nil
}

// cutSessions ends those of an endpoint. It waits for the loops.
func (s *Server) cutSessions(e *dispatch.Endpoint, cause error) {
	if n := s.group.CutMatching(bondTo(e), cause); n > 0 {
		s.log.Info("sessions cut", "upstream", e.Upstream().Name(), "endpoint", e.Name(), "sessions", n, "cause", cause)
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
	fell := e.Fell()
	s.later(cfg.DrainTimeout, func() {
		if st := e.State(); (st.Down || st.Ejected) && e.Fell() == fell {
			s.cutSessions(e, errUnhealthy)
		}
	})
}
