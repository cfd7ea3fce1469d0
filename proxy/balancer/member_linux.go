package balancer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/balance"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/dispatch"
	"github.com/penstock/penstock/proxy/header"
	"github.com/penstock/penstock/proxy/health"
	"github.com/penstock/penstock/proxy/socket"
)

// A member is an endpoint of an upstream, with those who look after it. Everything is
// guarded by the server's mu.
type member struct {
	endpoint *dispatch.Endpoint
	spec     discovery.Endpoint // as the file or discovery says
	check    *health.Check      // nil: it is not checked
	judge    *health.Member     // nil: it is not judged
	breaker  *health.Breaker    // nil: it has none
	draining bool               // by an operator
	cut      *time.Timer        // when that is over; nil: it is, or there is none
	set      *int               // its weight, by an operator; nil: that of the spec
}

func (m *member) weight() int {
	if m.set != nil {
		return *m.set
	}
	return m.spec.Weight
}

// specs are the endpoints that an upstream has: those of the file, or those that were
// found.
func (u *upstream) specs() []discovery.Endpoint {
	if u.cfg.Discover != nil {
		return u.found
	}
	list := make([]discovery.Endpoint, len(u.cfg.Endpoints))
	for i, e := range u.cfg.Endpoints {
		list[i] = discovery.Endpoint{
			Address: e.Address.String(), Name: e.Name, Weight: e.Weight, Backup: e.Backup, Zone: e.Zone,
			Connections: int(e.Connections),
		}
	}
	return list
}

// membersOf returns the members of an upstream under the next configuration (nil: under
// that which is in force), and makes those that are new. What operators have changed
// stays, as long as the file says there what it said before.
func (s *Server) membersOf(n *next, u, old *upstream) ([]*member, error) {
	var list []*member
	var errs []error
	for _, spec := range u.specs() {
		m := &member{spec: spec}
		if old != nil {
			if was := old.members[spec.Identity()]; was != nil && was.spec.Address == spec.Address {
				*m = *was
				if m.spec = spec; was.spec.Weight != spec.Weight {
					m.set = nil
				}
			}
		}
		if m.endpoint == nil {
			if err := s.newMember(n, u, m); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		list = append(list, m)
	}
	return list, errors.Join(errs...)
}

// newMember makes a member's endpoint.
func (s *Server) newMember(n *next, u *upstream, m *member) error {
	addr, err := socket.Parse(m.spec.Address)
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", m.spec.Identity(), err)
	}
	id := m.spec.Identity()
	e, made, err := u.up.Endpoint(id, addr, balance.EndpointConfig{
		ID: id, Weight: m.spec.Weight, Connections: m.spec.Connections, Now: s.now,
	})
	m.endpoint = e
	if made && n != nil {
		n.undo = append(n.undo, func() { u.up.Forget(e) })
	}
	return err
}

// use has an upstream's clients sent to members. before is the configuration that it had,
// nil if it had none. It returns the members that are gone.
func (s *Server) use(u *upstream, members []*member, set *balance.Set, before *config.Upstream) (gone map[string]*member) {
	gone = u.members
	changed := changesOf(before, u.cfg)
	u.members, u.order = make(map[string]*member, len(members)), u.order[:0]
	for _, m := range members {
		id := m.spec.Identity()
		was := gone[id]
		if was != nil && was.endpoint == m.endpoint {
			delete(gone, id)
		} else {
			was = nil
		}
		s.guard(u, m, was, &changed)
		if was == nil && before != nil {
			m.endpoint.Added()
		}
		m.endpoint.SetDraining(m.draining)
		u.members[id] = m
		u.order = append(u.order, id)
	}
	set.Attach()
	if old := u.view.Use(set); old != nil {
		old.Detach()
	}
	for _, m := range gone {
		m.endpoint.SetDraining(true)
		s.dropMember(u, m)
	}
	return gone
}

// guardChanges says which of those that look after members another configuration looks
// after otherwise.
type guardChanges struct{ outlier, breaker, check bool }

func changesOf(before, now *config.Upstream) (c guardChanges) {
	if before == nil {
		return c
	}
	if a, b := before.OutlierDetection, now.OutlierDetection; a != nil && b != nil {
		c.outlier = *outlierConfig(a) != *outlierConfig(b)
	}
	if a, b := before.CircuitBreaker, now.CircuitBreaker; a != nil && b != nil {
		c.breaker = *breakerConfig(a, false) != *breakerConfig(b, false)
	}
	a, b := before.HealthCheck, now.HealthCheck
	c.check = a == nil || b == nil || before.SendProxy != now.SendProxy || !sameCheck(*a, *b)
	return c
}

// sameCheck compares what endpoints are asked, but for where it was written.
func sameCheck(a, b config.HealthCheck) bool {
	for _, h := range []*config.HealthCheck{&a, &b} {
		h.Pos, h.HTTP.Pos = config.Pos{}, config.Pos{}
	}
	return reflect.DeepEqual(a, b)
}

// guard sees to it that those look after a member that its upstream's configuration
// wants.
func (s *Server) guard(u *upstream, m, was *member, changed *guardChanges) {
	subject := "endpoint " + u.cfg.Name + "/" + m.spec.Identity()
	switch {
	case u.outlier == nil:
		if m.judge != nil {
			m.judge.Remove()
			m.judge = nil
		}
	case m.judge == nil:
		m.judge = u.outlier.Add(subject, m.endpoint)
	case changed.outlier:
		m.judge.Configure()
	}
	m.endpoint.SetJudge(m.judge)
	switch b := u.cfg.CircuitBreaker; {
	case b == nil:
		if m.breaker != nil {
			m.breaker.Configure(&health.BreakerConfig{}) // it closes
		}
		m.breaker = nil
	case m.breaker == nil:
		m.breaker = health.NewBreaker(s.keeper, subject, m.endpoint, breakerConfig(b, false))
	case changed.breaker:
		m.breaker.Configure(breakerConfig(b, false))
	}
	m.endpoint.SetBreaker(m.breaker)
	s.watch(u, m, was, changed, subject)
}

// watch sees to it that a member is checked.
func (s *Server) watch(u *upstream, m, was *member, changed *guardChanges, subject string) {
	h := u.cfg.HealthCheck
	if h == nil {
		if m.check != nil {
			m.check.Stop()
			m.check = nil
		}
		return
	}
	if was != nil && m.check != nil && !changed.check {
		return
	}
	cfg, err := checkConfig(u.cfg, m.spec.Address)
	switch {
	case err != nil: // of an address that discovery has found: the loader looks at others
		s.log.Warn("endpoint cannot be checked", "endpoint", subject, "error", err)
	case m.check == nil:
		m.check = s.checker.Watch(subject, m.endpoint, cfg)
	default:
		m.check.Configure(cfg)
	}
}

// checkConfig is how an endpoint is asked whether it is well.
func checkConfig(u *config.Upstream, address string) (*health.CheckConfig, error) {
	h := u.HealthCheck
	probe := &health.ProbeConfig{Address: address, Port: h.Port}
	if h.Type == "http" {
		probe.HTTP = &health.HTTPProbe{Path: h.HTTP.Path, Host: h.HTTP.Host, Status: h.HTTP.Status, Body: []byte(h.HTTP.Body.Value)}
	} else {
		probe.Send, probe.Expect = []byte(h.Send.Value), []byte(h.Expect.Value)
	}
	if h.TLS {
		probe.TLS = &tls.Config{ServerName: h.SNI, InsecureSkipVerify: true} // it asks whether TLS is spoken, no more
	}
	if u.SendProxy > 0 && h.Port == 0 {
		probe.Preface = header.Append(nil, u.SendProxy, &header.Connection{Local: true})
	}
	p, err := health.NewProbe(probe)
	if err != nil {
		return nil, err
	}
	return &health.CheckConfig{
		Probe: p, Interval: h.Interval, FastInterval: h.FastInterval, Jitter: h.Jitter, Timeout: h.Timeout,
		Rise: h.Rise, Fall: h.Fall,
	}, nil
}

var errRemoved = errors.New("its endpoint was removed")

// dropMember is the end of a member that is gone: its sessions have what on_removed says.
// Only clients may still get there that came when its whole upstream was not gone yet.
func (s *Server) dropMember(u *upstream, m *member) {
	e := m.endpoint
	if m.check != nil {
		m.check.Stop()
	}
	if m.judge != nil {
		m.judge.Remove()
	}
	u.up.Forget(e)
	u.leaving = append(stillThere(u.leaving), m)
	s.letGo(e, u.cfg.OnRemoved, u.cfg.DrainTimeout, errRemoved)
}

// stillThere returns those of members that have sessions. The list is used again.
func stillThere(members []*member) []*member {
	return slices.DeleteFunc(members, func(m *member) bool { return m.endpoint.Active() == 0 })
}

// bondTo says whether a session is one to an endpoint.
func bondTo(e *dispatch.Endpoint) core.Match {
	return func(_ *core.Listening, b core.Bond) bool { return b != nil && dispatch.EndpointOf(b) == e }
}

// same compares two parts of configurations, but for where they were written.
func same[T any](a, b T) bool {
	return reflect.DeepEqual(placeless(reflect.ValueOf(a)), placeless(reflect.ValueOf(b)))
}

// placeless returns a copy of a struct without positions, at any depth of structs.
func placeless(v reflect.Value) any {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	wipe(c)
	return c.Interface()
}

func wipe(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Type() == reflect.TypeFor[config.Pos]():
			f.SetZero()
		case f.Kind() == reflect.Struct && f.CanSet() && f.NumField() > 0 && f.Type().Field(0).Name == "Pos":
			wipe(f)
		}
	}
}
