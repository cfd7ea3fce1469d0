package balancer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/dispatch"
	"github.com/penstock/penstock/proxy/health"
	"github.com/penstock/penstock/proxy/terminate"
)

var _ admin.Balancer = (*Server)(nil)

// Status implements [admin.Balancer].
func (s *Server) Status() admin.Status {
	total := s.group.Summary()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := admin.Status{
		State:       admin.Serving,
		Changes:     s.changes,
		Connections: admin.Connections{Accepted: total.Accepted, Active: total.Active, Refused: total.Refused},
	}
	st.TLSSessions = admin.TLSSessions{Active: int64(s.tls.Sessions()), Most: int64(s.tls.Most())}
	if s.closing {
		st.State = admin.Draining
	}
	for _, name := range slices.Sorted(maps.Keys(s.listeners)) {
		st.Listeners = append(st.Listeners, s.listenerStatus(name))
	}
	for _, name := range slices.Sorted(maps.Keys(s.upstreams)) {
		st.Upstreams = append(st.Upstreams, s.upstreamStatus(s.upstreams[name]))
	}
	st.Counters = s.counters()
	return st
}

func (s *Server) listenerStatus(name string) admin.Listener {
	l := s.listeners[name]
	c := l.door.Counts()
	st := admin.Listener{
		Name: name, State: admin.Serving, Reasons: c.Refused,
		Connections: admin.Connections{Accepted: c.Accepted, Active: c.Active},
	}
	for _, n := range c.Refused {
		st.Connections.Refused += n
	}
	if l.tls != nil {
		st.Handshakes = handshakes(l.stats)
	}
	switch {
	case l.drained:
		st.State = admin.Draining
	case l.door.Connections.Full():
		st.State = admin.Paused
	}
	for _, key := range l.keys {
		if b := s.binds[key]; b != nil {
			st.Addresses = append(st.Addresses, b.listener.Addr())
		}
	}
	for i := range l.cfg.Routes {
		st.Routes = append(st.Routes, l.routeStatus(i))
	}
	if l.cfg.Upstream != "" {
		st.Routes = append(st.Routes, admin.Route{To: map[string]float64{l.cfg.Upstream: 100}})
	}
	return st
}

func handshakes(s *terminate.Stats) *admin.Handshakes {
	h := &admin.Handshakes{
		Active: s.Active.Load(), Completed: s.Completed.Load(), Resumed: s.Resumed.Load(), Failed: make(map[string]int64),
	}
	for kind := range terminate.Kinds {
		if n := s.Failed[kind].Load(); n > 0 {
			h.Failed[kind.String()] = n
		}
	}
	return h
}

func (l *listener) routeStatus(i int) admin.Route {
	r := &l.cfg.Routes[i]
	to := map[string]float64{}
	if r.Upstream != "" {
		to[r.Upstream] = 100
	}
	for j, share := range r.Split {
		to[share.Upstream] = l.shares[i].now[j]
	}
	return admin.Route{Match: matchText(&r.Match), To: to}
}

// matchText says whom a route is for, as in the file.
func matchText(m *config.Match) string {
	var parts []string
	add := func(key string, n int, value any) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %v", key, value))
		}
	}
	add("sni", len(m.SNI), m.SNI)
	add("alpn", len(m.ALPN), m.ALPN)
	add("source", len(m.Source), m.Source)
	add("port", m.Port, m.Port)
	return strings.Join(parts, ", ")
}

func (s *Server) upstreamStatus(u *upstream) admin.Upstream {
	c := u.up.Counts()
	st := admin.Upstream{
		Name: u.cfg.Name, Balance: u.cfg.Balance, Pending: int64(u.up.Waiting()),
		Retries: c.Retries, RetriesDenied: u.budget.Denied(), Reasons: c.Refused,
	}
	if u.tls != nil {
		st.Handshakes = handshakes(u.stats)
	}
	if u.breaker != nil {
		st.Breaker = u.breaker.State().String()
	}
	if set := u.view.Set(); set != nil {
		st.Panic = set.Status().Panic
	}
	for _, id := range u.order {
		e := endpointStatus(u.members[id])
		st.Active += e.Active
		st.Endpoints = append(st.Endpoints, e)
	}
	u.leaving = stillThere(u.leaving)
	for _, m := range u.leaving {
		e := endpointStatus(m)
		e.State, e.Why = admin.Removed, ""
		st.Active += e.Active
		st.Endpoints = append(st.Endpoints, e)
	}
	return st
}

func endpointStatus(m *member) admin.Endpoint {
	e, state := m.endpoint, m.endpoint.State()
	st := admin.Endpoint{
		Name: m.spec.Identity(), Address: m.spec.Address, Zone: m.spec.Zone, Weight: e.Weight(), Backup: m.spec.Backup,
		State: admin.Up, Active: int64(e.Active()), Total: e.Total(), Failures: e.Failures(),
	}
	if m.breaker != nil && m.breaker.State() != health.Closed {
		st.Breaker = m.breaker.State().String()
	}
	switch {
	case state.Draining:
		st.State = admin.Draining
	case state.Down:
		st.State = admin.Down
		if m.check != nil {
			if err := m.check.Status().Err; err != nil {
				st.Why = err.Error()
			}
		}
	case state.Ejected:
		st.State = admin.Ejected
	}
	return st
}

// counters are those that never fall, by name. The server's mu is held.
func (s *Server) counters() map[string]int64 {
	total := s.group.Summary()
	c := map[string]int64{
		"accepted": total.Accepted, "refused": total.Refused, "lost": total.Totals.Lost,
		"accept_pauses": s.paused.Load(), "transitions": s.keeper.Transitions(),
	}
	for _, u := range s.upstreams {
		counts := u.up.Counts()
		c["failures"] += counts.Failures
		c["retries"] += counts.Retries
		c["queued"] += counts.Queued
		c["fallbacks"] += counts.Fallbacks
	}
	for _, name := range []string{"failures", "retries", "queued", "fallbacks"} {
		c[name] += s.gone[name] // of upstreams that the configuration does not name any more
	}
	return c
}

// keepCounts has the counters not fall by the end of an upstream.
func (s *Server) keepCounts(u *dispatch.Upstream) {
	c := u.Counts()
	s.gone["failures"] += c.Failures
	s.gone["retries"] += c.Retries
	s.gone["queued"] += c.Queued
	s.gone["fallbacks"] += c.Fallbacks
}

// Counter returns a counter that never falls, of those in the status.
func (s *Server) Counter(name string) (value int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, known = s.counters()[name]
	return value, known
}
