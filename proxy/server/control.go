package server

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/lb"
)

// DrainListener implements [admin.Balancer].
func (s *Server) DrainListener(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listeners[name]
	if l == nil {
		return fmt.Errorf("listener %q: %w: there are %s", name, admin.ErrNotFound, names(s.listeners))
	}
	if !l.drained {
		s.logOperator("drain", admin.Serving, admin.Draining, "listener", name)
	}
	l.drained = true
	for _, key := range l.keys {
		if socket := s.binds[key]; socket != nil {
			s.closeSocket(key, socket)
		}
	}
	s.refreshView()
	return nil
}

// DrainEndpoint implements [admin.Balancer].
func (s *Server) DrainEndpoint(upstream, endpoint string, drain bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, m, err := s.find(upstream, endpoint)
	if err != nil || m.draining == drain {
		return err
	}
	m.draining = drain
	m.endpoint.SetDraining(drain)
	from, to := admin.Serving, admin.Draining
	if !drain {
		from, to = to, from
	}
	s.logOperator("drain", from, to, "upstream", upstream, "endpoint", m.endpoint.Name())
	s.callOff(m.cut)
	m.cut = nil
	if drain {
		m.cut = s.drainSessions(m.endpoint, "drain", u.cfg.DrainTimeout, errDrained)
	}
	return nil
}

var errDrained = errors.New("its endpoint was drained")

// SetWeight implements [admin.Balancer].
func (s *Server) SetWeight(upstream, endpoint string, weight int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, m, err := s.find(upstream, endpoint)
	if err != nil {
		return err
	}
	if weight < 0 || weight > lb.MaxWeight {
		return fmt.Errorf("weight %d: %w: write 0 to %d", weight, admin.ErrInvalid, lb.MaxWeight)
	}
	from := m.weight()
	if err := m.endpoint.SetWeight(weight); err != nil {
		return fmt.Errorf("%w: %w", admin.ErrInvalid, err)
	}
	m.set = &weight
	s.logOperator("weight", from, weight, "upstream", upstream, "endpoint", m.endpoint.Name())
	u.snapshot.Set().Rebuild()
	return nil
}

// SetSplit implements [admin.Balancer].
func (s *Server) SetSplit(listener string, route int, percent map[string]float64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listeners[listener]
	switch {
	case l == nil:
		return fmt.Errorf("listener %q: %w: there are %s", listener, admin.ErrNotFound, names(s.listeners))
	case route < 0 || route >= len(l.shares) || l.shares[route].split == nil:
		return fmt.Errorf("listener %q, route %d: %w: it has no split", listener, route, admin.ErrNotFound)
	}
	sh, split := &l.shares[route], l.cfg.Routes[route].Split
	now := make([]float64, len(split))
	for i, share := range split {
		p, ok := percent[share.Upstream]
		if !ok {
			return fmt.Errorf("%w: the split has an upstream %s, of which nothing is said", admin.ErrInvalid, share.Upstream)
		}
		now[i] = p
	}
	if len(percent) != len(split) {
		return fmt.Errorf("%w: write a percentage for each upstream of the split, and no other", admin.ErrInvalid)
	}
	if err := sh.split.Set(now...); err != nil {
		return fmt.Errorf("%w: %w", admin.ErrInvalid, err)
	}
	s.logOperator("split", percentages(split, sh.now), percentages(split, now), "listener", listener, "route", route)
	sh.now = now
	return nil
}

// find returns an endpoint by its name or, if it alone has it, its address.
func (s *Server) find(of, endpoint string) (*upstream, *member, error) {
	u := s.upstreams[of]
	if u == nil {
		return nil, nil, fmt.Errorf("upstream %q: %w: there are %s", of, admin.ErrNotFound, names(s.upstreams))
	}
	if m := u.members[endpoint]; m != nil {
		return u, m, nil
	}
	found := make(map[string]*member)
	for name, m := range u.members {
		if m.spec.Address == endpoint {
			found[name] = m
		}
	}
	if len(found) > 1 {
		return nil, nil, fmt.Errorf("endpoint %q of %s: %w: it is the address of several: write one of %s", endpoint, of, admin.ErrInvalid, names(found))
	}
	for _, m := range found {
		return u, m, nil
	}
	return nil, nil, fmt.Errorf("endpoint %q of %s: %w: there are %s", endpoint, of, admin.ErrNotFound, names(u.members))
}

// names lists the names that there are, some of them.
func names[T any](m map[string]T) string {
	all := slices.Sorted(maps.Keys(m))
	if len(all) == 0 {
		return "none"
	}
	if len(all) > 10 {
		return strings.Join(all[:10], ", ") + ", ..."
	}
	return strings.Join(all, ", ")
}

// logOperator logs a change by an operator, which is in no file.
func (s *Server) logOperator(what string, from, to any, subject ...any) {
	attrs := append([]any{"by", "admin", "what", what}, subject...)
	s.log.Info("changed by hand", append(attrs, "from", from, "to", to)...)
}

// percentages are those of a split, in one word.
func percentages(split []config.Share, percent []float64) string {
	parts := make([]string, len(split))
	for i, share := range split {
		parts[i] = fmt.Sprintf("%s:%v", share.Upstream, percent[i])
	}
	return strings.Join(parts, ",")
}
