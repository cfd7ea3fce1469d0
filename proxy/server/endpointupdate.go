package server

import (
	"errors"
	"fmt"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/sockopt"
)

// An endpointUpdate is the next members of an upstream. The monitors of the new ones exist
// before any client can get to them; checks begin once they are in use.
type endpointUpdate struct {
	cfg     *config.Upstream      // of their checks, outlier detection and breakers
	breaker *health.BreakerConfig // of each of them, from cfg; nil: they have none
	changes monitorChanges        // for those that the upstream has already
	members map[string]*member
	order   []*member
	set     *lb.Set
	kept    int       // how many of order the upstream has
	gone    []*member // that the upstream has, and will not have

	reactivated []reactivation // members that the upstream had before

	newMonitors []*health.OutlierMonitor // judges that are new
	oldMonitors []*health.OutlierMonitor // monitors that are not needed any more
	oldBreakers []*health.Breaker        // breakers that are not needed any more
	before      *lb.Set                  // once it is in use: that of the update before; nil: none
}

// newEndpointUpdate prepares the members of an upstream for specs. u has their detectors and
// breakers, old the present members; it may be u, or nil. With an error the update is without invalid
// members.
func (s *Server) newEndpointUpdate(u, old *upstream, cfg *config.Upstream, specs specs) (*endpointUpdate, error) {
	update := &endpointUpdate{cfg: cfg, members: make(map[string]*member, specs.n), order: make([]*member, 0, specs.n)}
	if b := cfg.CircuitBreaker; b != nil {
		update.breaker = breakerConfig(b, false)
	}
	var set *lb.Set
	if old != nil {
		update.changes = changesOf(old.cfg, cfg)
		set = old.snapshot.Set()
	}
	var errs []error
	for i := range specs.n {
		of := specs.at(i)
		id := of.Identity()
		if update.members[id] != nil {
			continue
		}
		m, err := s.memberOf(update, u, old, &of)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		update.members[id] = m
		update.order = append(update.order, m)
	}
	update.set = u.newSet(cfg, update.order, set)
	if old != nil {
		update.gone = update.without(old.order)
	}
	return update, errors.Join(few(errs)...)
}

// few returns the first ones of errors, and one that counts the others.
func few(errs []error) []error {
	if more := len(errs) - maxNamed; more > 0 {
		return append(errs[:maxNamed:maxNamed], fmt.Errorf("%d more endpoints cannot be used", more))
	}
	return errs
}

// without returns those of an upstream's members that the update lacks.
func (update *endpointUpdate) without(order []*member) (gone []*member) {
	switch update.kept {
	case 0:
		return order
	case len(order):
		return nil
	}
	for _, was := range order {
		if m := update.members[was.spec.Identity()]; m == nil || m.endpoint != was.endpoint {
			gone = append(gone, was)
		}
	}
	return gone
}

// memberOf returns the member of a spec: the one that there is, if nothing about it
// changes, or one that takes its place, or a new one.
func (s *Server) memberOf(update *endpointUpdate, u, old *upstream, wanted *spec) (*member, error) {
	var was *member
	if old != nil {
		was = old.members[wanted.Identity()]
	}
	if was == nil || was.spec.Address != wanted.Address {
		if back := s.drainingMember(update.cfg.Name, wanted); back != nil {
			return s.reuse(update, u, back, wanted), nil
		}
		return s.newMember(update, u, old != nil, wanted)
	}
	update.kept++
	if was.is(wanted) && !update.changes.monitors() {
		return was, nil
	}
	m := new(member)
	*m = *was
	m.take(wanted)
	s.monitorEndpoint(update, u, m)
	return m, nil
}

// is reports whether a member is as it is wanted.
func (m *member) is(wanted *spec) bool {
	return m.spec == wanted.Endpoint && m.mode == wanted.mode && m.share == wanted.share && m.byHand == wanted.byHand
}

// take has a member be as it is wanted; [Server.enforce] brings its state into force.
func (m *member) take(wanted *spec) {
	m.spec, m.mode, m.share, m.byHand = wanted.Endpoint, wanted.mode, wanted.share, wanted.byHand
}

// newMember makes a member, its endpoint and its guards.
func (s *Server) newMember(update *endpointUpdate, u *upstream, added bool, wanted *spec) (*member, error) {
	id, addr := wanted.Identity(), wanted.address
	if addr.Network == "" {
		var err error
		if addr, err = sockopt.Parse(wanted.Address); err != nil {
			return nil, fmt.Errorf("endpoint %s: %w", id, err)
		}
	}
	e, _, err := u.router.Endpoint(id, addr, lb.EndpointConfig{ID: id, Weight: wanted.share, Connections: wanted.Connections, Now: s.now})
	if err != nil {
		return nil, err
	}
	m := &member{endpoint: e, enforced: config.Ready}
	m.take(wanted)
	e.SetDraining(m.mode != config.Ready) // before a client can find it
	s.monitorEndpoint(update, u, m)
	e.SetMonitor(m.monitor)
	e.SetBreaker(m.breaker)
	if added {
		e.Added()
	}
	return m, nil
}

// monitorEndpoint gives a member the guards that it is to have and has not, and takes away those that
// it is not to have. Its endpoint has them by newMember, or by use.
func (s *Server) monitorEndpoint(update *endpointUpdate, u *upstream, m *member) {
	subject := ""
	if u.outlier != nil && m.monitor == nil || update.breaker != nil && m.breaker == nil {
		subject = subjectOf(update.cfg, m)
	}
	switch {
	case u.outlier == nil && m.monitor != nil:
		update.oldMonitors, m.monitor = append(update.oldMonitors, m.monitor), nil
	case u.outlier != nil && m.monitor == nil:
		if update.newMonitors == nil {
			update.newMonitors = make([]*health.OutlierMonitor, 0, cap(update.order))
		}
		m.monitor = u.outlier.NewMonitor(subject, m.endpoint)
		update.newMonitors = append(update.newMonitors, m.monitor)
	}
	switch {
	case update.breaker == nil && m.breaker != nil:
		update.oldBreakers, m.breaker = append(update.oldBreakers, m.breaker), nil
	case update.breaker != nil && m.breaker == nil:
		m.breaker = health.NewBreaker(s.scheduler, subject, m.endpoint, update.breaker)
	}
}

func subjectOf(cfg *config.Upstream, m *member) string {
	return "endpoint " + cfg.Name + "/" + m.spec.Identity()
}

// abandon is the end of an update that does not replace the present members.
func (update *endpointUpdate) abandon(old *upstream) {
	for id, m := range update.members {
		if was := old.members[id]; was == nil || was.endpoint != m.endpoint {
			old.router.Forget(m.endpoint)
		}
	}
}

// use has an upstream's clients sent to the members of an update. Its guards have their
// configuration already.
func (u *upstream) use(update *endpointUpdate) {
	if len(update.newMonitors) > 0 {
		u.outlier.Join(update.newMonitors...)
	}
	if update.changes.monitors() {
		update.reconfigureMonitors()
	}
	update.reactivate(u)
	u.members, u.order = update.members, update.order
	update.set.Attach()
	update.before = u.snapshot.SetEndpoints(update.set)
}

// reconfigureMonitors applies a changed configuration to the members' monitors, breakers and checks, and
// removes those that are not wanted any more.
func (update *endpointUpdate) reconfigureMonitors() {
	for _, m := range update.order {
		m.endpoint.SetMonitor(m.monitor)
		m.endpoint.SetBreaker(m.breaker)
		if update.changes.outlier && m.monitor != nil {
			m.monitor.Configure()
		}
		if update.changes.breaker && m.breaker != nil {
			m.breaker.Configure(update.breaker)
		}
	}
	for _, judge := range update.oldMonitors {
		judge.Remove()
	}
	for _, b := range update.oldBreakers {
		b.Configure(&health.BreakerConfig{}) // it closes
	}
}

// settleEndpointUpdate follows the use of an update: removed members are released, and the
// present ones are checked.
func (s *Server) settleEndpointUpdate(u *upstream, update *endpointUpdate) {
	if update.before != nil {
		update.before.Detach()
	}
	s.keepSessions(u, update)
	if len(update.gone) > 0 {
		u.leaving = stillThere(u.leaving)
	}
	for _, m := range update.gone {
		m.endpoint.SetDraining(true)
		s.dropMember(u, m)
		if m.endpoint.Active() > 0 { // no other client gets there
			u.leaving = append(u.leaving, m)
			s.drainRemoved(u, m)
		}
	}
	for _, m := range update.order {
		s.watch(u.cfg, m, update.changes.check)
		s.enforce(u.cfg, m)
	}
	s.adopted.bind(s, u)
}
