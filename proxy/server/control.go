package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/live"
	"github.com/penstock/penstock/proxy/internal/state"
)

// DrainListener implements [admin.Balancer].
func (s *Server) DrainListener(name, by string) error {
	defer s.keep() // after mu is released
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listeners[name]
	if l == nil {
		return fmt.Errorf("listener %q: %w: there are %s", name, admin.ErrNotFound, names(s.listeners))
	}
	if !l.drained {
		c := changeOf(state.ListenerDrained, by)
		c.Listener, c.Line = name, live.BindLine(l.cfg)
		s.setLive(s.live.With(c))
		s.logOperator(by, "drain", admin.Serving, admin.Draining, "listener", name)
	}
	l.drained = true
	for _, key := range l.keys {
		if socket := s.binds[key]; socket != nil {
			s.closeSocket(key, socket, errListenerDrained)
		}
	}
	s.refreshView()
	return nil
}

// ReadyListener implements [admin.Balancer].
func (s *Server) ReadyListener(ctx context.Context, name, by string) error {
	defer s.keep() // after mu is released
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listeners[name]
	switch {
	case l == nil:
		return fmt.Errorf("listener %q: %w: there are %s", name, admin.ErrNotFound, names(s.listeners))
	case s.closing:
		return errClosing
	case !l.drained:
		return nil
	}
	was := s.live
	s.live = manual{s.live.Without(state.Key{Kind: state.ListenerDrained, Listener: name})}
	if err := s.apply(ctx, s.cfg); err != nil { // its address is taken by now
		s.live = was
		return err
	}
	s.markLive()
	s.logOperator(by, "ready", admin.Draining, admin.Serving, "listener", name)
	return nil
}

// DrainEndpoint drains an endpoint by [Server.ChangeEndpoint], or takes that back.
func (s *Server) DrainEndpoint(upstream, endpoint string, drain bool, by string) error {
	what := admin.EndpointReady
	if drain {
		what = admin.EndpointDrain
	}
	_, err := s.ChangeEndpoint(&admin.EndpointChange{What: what, Upstream: upstream, Endpoint: endpoint}, by)
	return err
}

// SetWeight changes a weight by [Server.ChangeEndpoint].
func (s *Server) SetWeight(upstream, endpoint string, weight int, by string) error {
	_, err := s.ChangeEndpoint(&admin.EndpointChange{What: admin.EndpointWeight, Upstream: upstream, Endpoint: endpoint, Weight: weight}, by)
	return err
}

// SetSplit implements [admin.Balancer].
func (s *Server) SetSplit(listener string, route int, percent map[string]float64, by string) error {
	defer s.keep() // after mu is released
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
	c := changeOf(state.Split, by)
	c.Listener, c.Route, c.Line, c.Value = listener, route, live.SplitLine(split), live.Percentages(split, now)
	set := s.live.Without(c.Key())
	if c.Value != c.Line {
		set = set.With(c)
	}
	s.setLive(set)
	s.logOperator(by, "split", live.Percentages(split, sh.now), c.Value, "listener", listener, "route", route)
	sh.now = now
	return nil
}

// find returns an endpoint by its name or, if it alone has it, its address.
func (u *upstream) find(endpoint string) (*member, error) {
	if m := u.members[endpoint]; m != nil {
		return m, nil
	}
	of, found := u.cfg.Name, make(map[string]*member)
	for name, m := range u.members {
		if m.spec.Address == endpoint {
			found[name] = m
		}
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("endpoint %q of %s: %w: it is the address of several: write one of %s", endpoint, of, admin.ErrInvalid, names(found))
	}
	for _, m := range found {
		return m, nil
	}
	return nil, fmt.Errorf("endpoint %q of %s: %w: there are %s", endpoint, of, admin.ErrNotFound, names(u.members))
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

// logOperator logs a change by an operator, which is in no file, with its author.
func (s *Server) logOperator(by, what string, from, to any, subject ...any) {
	attrs := append([]any{"by", by, "what", what}, subject...)
	s.log.Info("changed by hand", append(attrs, "from", from, "to", to)...)
}
