package server

import (
	"slices"

	"github.com/penstock/penstock/proxy/config"
)

// A part that was taken out of service may come back before its sessions have ended: by a
// rollback, or because discovery leaves an endpoint out of one answer. Then it is the same one
// again, with its counts, and its sessions are not cut any more.

// A reactivation is a member that was gone.
type reactivation struct {
	now, was *member
}

// drainingMembers returns the members of the upstream of that name that are gone and have
// sessions, also if the upstream is.
func (s *Server) drainingMembers(name string) []*member {
	if u := s.upstreams[name]; u != nil {
		return u.leaving
	}
	if u := s.retired[name]; u != nil {
		return u.leaving
	}
	return nil
}

// drainingMember returns the one of them that an endpoint was, nil if there is none.
func (s *Server) drainingMember(upstream string, wanted *spec) *member {
	for _, m := range s.drainingMembers(upstream) {
		if m.spec.Identity() == wanted.Identity() && m.spec.Address == wanted.Address && m.endpoint.Active() > 0 {
			return m
		}
	}
	return nil
}

// reuse returns a member in place of one that was gone.
func (s *Server) reuse(update *endpointUpdate, u *upstream, old *member, wanted *spec) *member {
	m := &member{endpoint: old.endpoint, enforced: config.Ready}
	m.take(wanted)
	s.monitorEndpoint(update, u, m)
	update.reactivated = append(update.reactivated, reactivation{m, old})
	return m
}

// reactivate has members that were gone be had again.
func (update *endpointUpdate) reactivate(u *upstream) {
	for _, r := range update.reactivated {
		e := r.now.endpoint
		e.SetMonitor(r.now.monitor)
		e.SetBreaker(r.now.breaker)
		u.router.Recall(e)
		e.SetDraining(r.now.mode != config.Ready)
	}
}

// keepSessions has the sessions of members that are back go on.
func (s *Server) keepSessions(u *upstream, update *endpointUpdate) {
	for _, r := range update.reactivated {
		s.callOff(r.was.leave)
		u.leaving = slices.DeleteFunc(u.leaving, func(m *member) bool { return m == r.was })
	}
}

// retire keeps an upstream that is gone for as long as one of its members has sessions.
func (s *Server) retire(u *upstream) {
	for name, other := range s.retired {
		if other.leaving = stillThere(other.leaving); len(other.leaving) == 0 {
			delete(s.retired, name)
		}
	}
	if u.leaving = stillThere(u.leaving); len(u.leaving) > 0 {
		s.retired[u.cfg.Name] = u
	}
}

// reactivateUpstream has an upstream that was gone be there again, as its next configuration has it.
func (s *Server) reactivateUpstream(u *upstream) {
	was := s.retired[u.cfg.Name]
	if was == nil || was.router != u.router {
		return
	}
	delete(s.retired, u.cfg.Name)
	u.leaving = was.leaving
	counts := u.router.Counts()
	s.gone.Add(&counts, -1)
}

// from passes the state of a removed upstream of the same name on to u, if there is one.
func (s *Server) from(u *upstream) {
	if was := s.retired[u.cfg.Name]; was != nil {
		u.router, u.stats, u.budget = was.router, was.stats, was.budget
		u.breaker, u.outlier = was.breaker, was.outlier
	}
}
