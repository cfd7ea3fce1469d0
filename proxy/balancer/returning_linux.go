package balancer

import "slices"

// What was taken out of service may come back before its sessions have ended: by a
// rollback, or because discovery leaves an endpoint out of one answer. Then it is the same
// one again, with its counts, and its sessions are not cut any more.

// A returning is a member that was gone.
type returning struct {
	now, was *member
}

// leavers returns the members of the upstream of that name that are gone and have
// sessions, also if the upstream is.
func (s *Server) leavers(name string) []*member {
	if u := s.upstreams[name]; u != nil {
		return u.leaving
	}
	if u := s.departed[name]; u != nil {
		return u.leaving
	}
	return nil
}

// leaver returns the one of them that an endpoint was, nil if there is none.
func (s *Server) leaver(upstream string, of *spec) *member {
	for _, m := range s.leavers(upstream) {
		if m.spec.Identity() == of.Identity() && m.spec.Address == of.Address && m.endpoint.Active() > 0 {
			return m
		}
	}
	return nil
}

// takeBack returns a member in place of one that was gone.
func (s *Server) takeBack(st *stock, u *upstream, was *member, of *spec) *member {
	m := &member{spec: of.Endpoint, endpoint: was.endpoint}
	s.guard(st, u, m)
	st.returning = append(st.returning, returning{m, was})
	return m
}

// welcome has members that were gone be had again.
func (st *stock) welcome(u *upstream) {
	for _, r := range st.returning {
		e := r.now.endpoint
		e.SetJudge(r.now.judge)
		e.SetBreaker(r.now.breaker)
		u.up.Recall(e)
		e.SetDraining(false)
	}
}

// spare has the sessions of members that are back go on.
func (s *Server) spare(u *upstream, st *stock) {
	for _, r := range st.returning {
		s.callOff(r.was.leave)
		u.leaving = slices.DeleteFunc(u.leaving, func(m *member) bool { return m == r.was })
	}
}

// depart keeps an upstream that is gone for as long as one of its members has sessions.
func (s *Server) depart(u *upstream) {
	for name, other := range s.departed {
		if other.leaving = stillThere(other.leaving); len(other.leaving) == 0 {
			delete(s.departed, name)
		}
	}
	if u.leaving = stillThere(u.leaving); len(u.leaving) > 0 {
		s.departed[u.cfg.Name] = u
	}
}

// resume has an upstream that was gone be there again, as its next configuration has it.
func (s *Server) resume(u *upstream) {
	was := s.departed[u.cfg.Name]
	if was == nil || was.up != u.up {
		return
	}
	delete(s.departed, u.cfg.Name)
	u.leaving = was.leaving
	s.keepCounts(u.up, -1)
}

// from is what a new upstream of that name goes on from: nil, or what is left of one that
// is gone.
func (s *Server) from(u *upstream) {
	if was := s.departed[u.cfg.Name]; was != nil {
		u.up, u.stats, u.budget = was.up, was.stats, was.budget
		u.breaker, u.outlier = was.breaker, was.outlier
	}
}
