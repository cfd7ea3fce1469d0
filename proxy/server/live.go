package server

import (
	"time"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/live"
	"github.com/penstock/penstock/proxy/internal/state"
)

// restore takes the changes by hand that an earlier process has kept.
func (s *Server) restore() {
	if s.options.State != nil {
		s.live = manual{live.NewSet(s.options.State.Changes())}
		s.restoreDenials(s.options.State.Denials())
	}
}

// logRestored logs the changes that are in force again, and notes those that have ended meanwhile.
func (s *Server) logRestored() {
	for i := range s.live.All() {
		c := &s.live.All()[i]
		s.log.Info("changed by hand before the restart, and in force again", "what", c.String(), "by", c.By, "since", c.Since)
	}
}

// setLive replaces the changes that are in force. [Server.keep] has them survive a restart.
func (s *Server) setLive(set live.Set) {
	s.live = manual{set}
	s.markLive()
}

func (s *Server) markLive() {
	if s.options.State != nil {
		s.options.State.SetChanges(s.live.All())
	}
}

// keep writes the changes by hand to the file of the state, if it has others. It waits for the disk, so
// the server's mu is not held.
func (s *Server) keep() {
	if s.options.State == nil {
		return
	}
	if err := s.options.State.Flush(); err != nil {
		s.log.Error("changes by hand are not kept over a restart", "error", err)
	}
}

// unkept returns why changes by hand do not survive a restart; nil: they do.
func (s *Server) unkept() error {
	if s.options.State == nil {
		return errNoState
	}
	return s.options.State.Err()
}

// logEnded logs changes by hand that end, and why.
func (s *Server) logEnded(ended []live.Ended) {
	for i := range ended {
		e := &ended[i]
		s.log.Info("change by hand ended", "what", e.String(), "by", e.By, "since", e.Since, "cause", e.Why)
	}
	if len(ended) > 0 {
		s.markLive()
	}
}

// endDiscovered ends the changes that discovery has overtaken: it has found an endpoint that was added by
// hand, or has another weight for one. It returns them; the caller logs them.
func (s *Server) endDiscovered(u *upstream) (ended []live.Ended) {
	by := s.live.Of(u.cfg.Name)
	if u.cfg.Discover == nil || by == nil {
		return nil
	}
	for _, m := range u.order {
		id := m.spec.Identity()
		if m.byHand {
			continue
		}
		if c := by.Find(state.EndpointAdded, id); c != nil {
			ended = append(ended, live.Ended{Change: *c, Why: "discovery has found the endpoint"})
		}
	}
	listed := s.listed(u) // those that were removed by hand among them
	for i := range listed.n {
		of := listed.at(i)
		if c := by.Find(state.EndpointWeight, of.Identity()); c != nil && c.Line != live.WeightLine(of.Weight) {
			ended = append(ended, live.Ended{Change: *c, Why: "discovery has another weight for it"})
		}
	}
	keys := make([]state.Key, len(ended))
	for i := range ended {
		keys[i] = ended[i].Key()
	}
	if len(keys) > 0 {
		s.live = manual{s.live.Without(keys...)}
	}
	return ended
}

// enforce has a member's state take effect.
func (s *Server) enforce(u *config.Upstream, m *member) {
	if m.mode == m.enforced {
		return
	}
	s.callOff(m.cut)
	m.cut = nil
	m.endpoint.SetDraining(m.mode != config.Ready)
	switch m.mode {
	case config.Drain:
		m.cut = s.drainSessions(m.endpoint, "drain", u.DrainTimeout, errDrained)
	case config.Ready:
		m.endpoint.Added() // its weight grows over slow_start
	}
	m.enforced = m.mode
}

// changeOf returns a change that is made now.
func changeOf(kind state.Kind, by string) state.Change {
	return state.Change{Kind: kind, By: by, Since: time.Now().Truncate(time.Millisecond)}
}
