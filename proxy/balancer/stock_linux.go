package balancer

import (
	"errors"
	"fmt"

	"github.com/penstock/penstock/proxy/balance"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/health"
	"github.com/penstock/penstock/proxy/socket"
)

// A stock is the members that an upstream is about to have. Those who judge the new ones
// are there before anybody can get to them; they are watched once they are in use.
type stock struct {
	cfg     *config.Upstream      // that they are looked after by
	breaker *health.BreakerConfig // of each of them, by that; nil: they have none
	changes guardChanges          // for those that the upstream has already
	members map[string]*member
	order   []*member
	set     *balance.Set
	kept    int       // how many of order the upstream has
	gone    []*member // that the upstream has, and will not have

	returning []returning // members that the upstream had before

	joining  []*health.Member  // judges that are new
	retiring []*health.Member  // judges that nobody wants any more
	off      []*health.Breaker // breakers that nobody wants any more
	before   *balance.Set      // once it is in use: that of the stock before; nil: none
}

// newStock prepares the members of an upstream for specs. u has the guards that they will
// have, old the members that there are; it may be u, or nil. What operators have changed
// stays, as long as the file says there what it said before. With an error the stock is
// without those that cannot be had.
func (s *Server) newStock(u, old *upstream, cfg *config.Upstream, specs specs) (*stock, error) {
	st := &stock{cfg: cfg, members: make(map[string]*member, specs.n), order: make([]*member, 0, specs.n)}
	if b := cfg.CircuitBreaker; b != nil {
		st.breaker = breakerConfig(b, false)
	}
	var set *balance.Set
	if old != nil {
		st.changes = changesOf(old.cfg, cfg)
		set = old.view.Set()
	}
	var errs []error
	for i := range specs.n {
		of := specs.at(i)
		id := of.Identity()
		if st.members[id] != nil {
			continue
		}
		m, err := s.memberOf(st, u, old, &of)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		st.members[id] = m
		st.order = append(st.order, m)
	}
	st.set = u.newSet(cfg, st.order, set)
	if old != nil {
		st.gone = st.without(old.order)
	}
	return st, errors.Join(few(errs)...)
}

// few returns the first ones of errors, and one that counts the others.
func few(errs []error) []error {
	if more := len(errs) - mostNamed; more > 0 {
		return append(errs[:mostNamed:mostNamed], fmt.Errorf("%d more endpoints cannot be used", more))
	}
	return errs
}

// without returns those of an upstream's members that the stock has not.
func (st *stock) without(order []*member) (gone []*member) {
	switch st.kept {
	case 0:
		return order
	case len(order):
		return nil
	}
	for _, was := range order {
		if m := st.members[was.spec.Identity()]; m == nil || m.endpoint != was.endpoint {
			gone = append(gone, was)
		}
	}
	return gone
}

// memberOf returns the member of a spec: the one that there is, if nothing about it
// changes, or one that takes its place, or a new one.
func (s *Server) memberOf(st *stock, u, old *upstream, of *spec) (*member, error) {
	var was *member
	if old != nil {
		was = old.members[of.Identity()]
	}
	if was == nil || was.spec.Address != of.Address {
		if back := s.leaver(st.cfg.Name, of); back != nil {
			return s.takeBack(st, u, back, of), nil
		}
		return s.newMember(st, u, old != nil, of)
	}
	st.kept++
	if was.spec == of.Endpoint && !st.changes.guards() {
		return was, nil
	}
	m := new(member)
	*m = *was
	if m.spec = of.Endpoint; was.spec.Weight != of.Weight {
		m.set = nil
	}
	s.guard(st, u, m)
	return m, nil
}

// newMember makes a member, its endpoint and its guards.
func (s *Server) newMember(st *stock, u *upstream, added bool, of *spec) (*member, error) {
	id, addr := of.Identity(), of.address
	if addr.Network == "" {
		var err error
		if addr, err = socket.Parse(of.Address); err != nil {
			return nil, fmt.Errorf("endpoint %s: %w", id, err)
		}
	}
	e, _, err := u.up.Endpoint(id, addr, balance.EndpointConfig{ID: id, Weight: of.Weight, Connections: of.Connections, Now: s.now})
	if err != nil {
		return nil, err
	}
	m := &member{spec: of.Endpoint, endpoint: e}
	s.guard(st, u, m)
	e.SetJudge(m.judge)
	e.SetBreaker(m.breaker)
	if added {
		e.Added()
	}
	return m, nil
}

// guard gives a member the guards that it is to have and has not, and takes away those that
// it is not to have. Its endpoint has them by newMember, or by use.
func (s *Server) guard(st *stock, u *upstream, m *member) {
	subject := ""
	if u.outlier != nil && m.judge == nil || st.breaker != nil && m.breaker == nil {
		subject = subjectOf(st.cfg, m)
	}
	switch {
	case u.outlier == nil && m.judge != nil:
		st.retiring, m.judge = append(st.retiring, m.judge), nil
	case u.outlier != nil && m.judge == nil:
		if st.joining == nil {
			st.joining = make([]*health.Member, 0, cap(st.order))
		}
		m.judge = u.outlier.NewMember(subject, m.endpoint)
		st.joining = append(st.joining, m.judge)
	}
	switch {
	case st.breaker == nil && m.breaker != nil:
		st.off, m.breaker = append(st.off, m.breaker), nil
	case st.breaker != nil && m.breaker == nil:
		m.breaker = health.NewBreaker(s.keeper, subject, m.endpoint, st.breaker)
	}
}

func subjectOf(cfg *config.Upstream, m *member) string {
	return "endpoint " + cfg.Name + "/" + m.spec.Identity()
}

// abandon is the end of a stock that is not used in place of the members that there are.
func (st *stock) abandon(old *upstream) {
	for id, m := range st.members {
		if was := old.members[id]; was == nil || was.endpoint != m.endpoint {
			old.up.Forget(m.endpoint)
		}
	}
}

// use has an upstream's clients sent to the members of a stock. Its guards have their
// configuration already.
func (u *upstream) use(st *stock) {
	if len(st.joining) > 0 {
		u.outlier.Join(st.joining...)
	}
	if st.changes.guards() {
		st.reguard()
	}
	st.welcome(u)
	u.members, u.order = st.members, st.order
	st.set.Attach()
	st.before = u.view.Use(st.set)
}

// reguard has those look after members that do by another configuration, as it says.
func (st *stock) reguard() {
	for _, m := range st.order {
		m.endpoint.SetJudge(m.judge)
		m.endpoint.SetBreaker(m.breaker)
		if st.changes.outlier && m.judge != nil {
			m.judge.Configure()
		}
		if st.changes.breaker && m.breaker != nil {
			m.breaker.Configure(st.breaker)
		}
	}
	for _, judge := range st.retiring {
		judge.Remove()
	}
	for _, b := range st.off {
		b.Configure(&health.BreakerConfig{}) // it closes
	}
}

// settleStock does what follows from the use of a stock: members that are gone are let go
// of, and those that there are are watched.
func (s *Server) settleStock(u *upstream, st *stock) {
	if st.before != nil {
		st.before.Detach()
	}
	s.spare(u, st)
	if len(st.gone) > 0 {
		u.leaving = stillThere(u.leaving)
	}
	for _, m := range st.gone {
		m.endpoint.SetDraining(true)
		s.dropMember(u, m)
		if m.endpoint.Active() > 0 { // nobody else gets there
			u.leaving = append(u.leaving, m)
			s.letRemovedGo(u, m)
		}
	}
	for _, m := range st.order {
		s.watch(u.cfg, m, st.changes.check)
	}
}
