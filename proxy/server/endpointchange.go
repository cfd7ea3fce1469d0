package server

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/live"
	"github.com/penstock/penstock/proxy/internal/state"
)

var (
	errDrained = errors.New("its endpoint was drained")
	errNoState = errors.New("state_file is not set. To keep changes, set state_file: /var/lib/penstock/state, or StateDirectory=penstock in the unit of systemd, and restart")
)

// ChangeEndpoint implements [admin.Balancer].
func (s *Server) ChangeEndpoint(c *admin.EndpointChange, by string) (done admin.EndpointChanged, err error) {
	if done, err = s.changeEndpoint(c, by); err != nil {
		return done, err
	}
	s.keep()
	if err := s.unkept(); err != nil {
		done.Unkept = err.Error()
	}
	return done, nil
}

func (s *Server) changeEndpoint(c *admin.EndpointChange, by string) (done admin.EndpointChanged, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.upstreams[c.Upstream]
	if u == nil {
		return done, fmt.Errorf("upstream %q: %w: there are %s", c.Upstream, admin.ErrNotFound, names(s.upstreams))
	}
	var e *endpointEdit
	switch c.What {
	case admin.EndpointAdd:
		e, err = s.addEndpoint(u, c, by)
	case admin.EndpointRemove:
		e, err = s.removeEndpoint(u, c, by)
	case admin.EndpointWeight:
		e, err = s.weighEndpoint(u, c, by)
	default:
		e, err = s.setEndpointState(u, c, by)
	}
	if err != nil {
		return done, err
	}
	if e.from != e.to {
		if err := s.edit(u, e.set); err != nil {
			return done, err
		}
		s.logOperator(by, string(c.What), e.from, e.to, "upstream", c.Upstream, "endpoint", e.name)
	}
	done.Endpoint, done.From, done.To, done.Taking = e.name, fmt.Sprint(e.from), fmt.Sprint(e.to), u.taking()
	if m := u.members[e.name]; m != nil {
		done.Weight = m.share
	}
	return done, nil
}

// An endpointEdit is a change of an endpoint by hand, and the words for its log line.
type endpointEdit struct {
	set      live.Set // with the change
	name     string
	from, to any // comparable
}

// edit brings changes of an upstream's endpoints into force.
func (s *Server) edit(u *upstream, set live.Set) error {
	update, err := s.newEndpointUpdate(u, u, u.cfg, manual{set}.edit(u.cfg, s.listed(u)))
	if err != nil {
		update.abandon(u)
		return fmt.Errorf("%w: %w", admin.ErrInvalid, err)
	}
	u.use(update)
	s.settleEndpointUpdate(u, update)
	s.forget(update.gone)
	s.setLive(set)
	return nil
}

// listed are the endpoints that the file or discovery has for an upstream.
func (s *Server) listed(u *upstream) specs {
	if u.cfg.Discover == nil || len(u.found) == 0 {
		return specsOf(u.cfg, nil)
	}
	fit, _ := s.newOwnAddresses().fit(u.cfg.Name, u.found)
	return specsOf(u.cfg, fit)
}

// taking counts the endpoints that may get clients.
func (u *upstream) taking() (n int) {
	for _, m := range u.order {
		if m.mode == config.Ready && m.share > 0 {
			n++
		}
	}
	return n
}

// addEndpoint adds an endpoint, or takes back that it was removed by hand.
func (s *Server) addEndpoint(u *upstream, c *admin.EndpointChange, by string) (*endpointEdit, error) {
	if s.closing {
		return nil, errClosing
	}
	keys := config.EndpointKeys{Address: c.Endpoint, Name: c.Name, Zone: c.Zone, Weight: c.Weight, Backup: c.Backup, Connections: c.Connections}
	e, err := config.NewEndpoint(&keys)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", admin.ErrInvalid, err)
	}
	if back := s.removedEndpoint(u, e.Name, c.Endpoint); back != nil {
		set := s.takenBack(u, back, by)
		of := u.specUnder(back.Endpoint, set)
		return &endpointEdit{set, back.Endpoint, admin.Removed, fmt.Sprintf("%s, weight %d", of.Address, of.share)}, nil
	}
	if err := s.admit(u, &e); err != nil {
		return nil, fmt.Errorf("%w: %w", admin.ErrInvalid, err)
	}
	added := changeOf(state.EndpointAdded, by)
	added.Upstream, added.Endpoint = u.cfg.Name, e.Name
	keys.Address = e.Address.String()
	added.Added = (*state.Endpoint)(&keys)
	return &endpointEdit{s.live.WithoutEndpoint(u.cfg.Name, e.Name).With(added), e.Name, "none", addedText(&e)}, nil
}

// addedText is an endpoint that is added, for the result and the log.
func addedText(e *config.Endpoint) string {
	text := fmt.Sprintf("%s, weight %d", e.Address, e.Weight)
	if e.Backup {
		text += ", backup"
	}
	if e.Connections > 0 {
		text += fmt.Sprintf(", connections %d", e.Connections)
	}
	return text
}

// admit returns why an endpoint cannot be added to an upstream; nil: it can.
func (s *Server) admit(u *upstream, e *config.Endpoint) error {
	for _, m := range u.order {
		switch {
		case m.spec.Identity() == e.Name:
			return fmt.Errorf("upstream %s has an endpoint %s already: write another name, or change that one", u.cfg.Name, e.Name)
		case m.endpoint.Address.Network == e.Address.Network && config.SameDestination(m.endpoint.Address, e.Address):
			return fmt.Errorf("%s is the address of the endpoint %s: write another one, or change the weight of that one", e.Address, m.spec.Identity())
		}
	}
	if err := s.cfg.Admit(u.cfg.Name, e); err != nil {
		return err
	}
	if why := s.newOwnAddresses().refuse(u.cfg.Name, e.Address.String()); why != "" {
		return fmt.Errorf("%s: write another address", why)
	}
	return nil
}

// removedEndpoint returns the change by which an endpoint was removed, given by its name or its address;
// nil: it was not.
func (s *Server) removedEndpoint(u *upstream, given ...string) *state.Change {
	listed := s.listed(u)
	for _, id := range given {
		if c := s.live.Find(state.Key{Kind: state.EndpointRemoved, Upstream: u.cfg.Name, Endpoint: id}); c != nil {
			return c
		}
		for i := range listed.n {
			if of := listed.at(i); of.Address == id {
				if c := s.live.Find(state.Key{Kind: state.EndpointRemoved, Upstream: u.cfg.Name, Endpoint: of.Identity()}); c != nil {
					return c
				}
			}
		}
	}
	return nil
}

// present returns an endpoint by its name or address, unless it was removed.
func (s *Server) present(u *upstream, endpoint string) (*member, error) {
	if back := s.removedEndpoint(u, endpoint); back != nil {
		return nil, fmt.Errorf("endpoint %q of %s: %w: it was removed by hand: write POST /v1/endpoint/ready?upstream=%[2]s&endpoint=%[4]s first", endpoint, u.cfg.Name, admin.ErrNotFound, back.Endpoint)
	}
	return u.find(endpoint)
}

// removeEndpoint removes an endpoint: one by hand for good, another one until its line changes.
func (s *Server) removeEndpoint(u *upstream, c *admin.EndpointChange, by string) (*endpointEdit, error) {
	if s.closing {
		return nil, errClosing
	}
	if back := s.removedEndpoint(u, c.Endpoint); back != nil {
		return &endpointEdit{s.live.Set, back.Endpoint, admin.Removed, admin.Removed}, nil
	}
	m, err := u.find(c.Endpoint)
	if err != nil {
		return nil, err
	}
	id := m.spec.Identity()
	e := &endpointEdit{s.live.WithoutEndpoint(u.cfg.Name, id), id, m.mode, admin.Removed}
	if !m.byHand { // its weight by hand goes on, since it may come back
		mode := s.onEndpoint(state.EndpointState, u, m, by)
		e.set = s.live.Without(mode.Key()).With(s.onEndpoint(state.EndpointRemoved, u, m, by))
	}
	return e, nil
}

// takenBack returns the changes without the one by which an endpoint was removed. It gets clients then,
// whichever state the file has for it.
func (s *Server) takenBack(u *upstream, back *state.Change, by string) live.Set {
	set := s.live.Without(back.Key())
	if e := u.named(back.Endpoint); e != nil && e.State != config.Ready {
		ready := changeOf(state.EndpointState, by)
		ready.Upstream, ready.Endpoint, ready.Line, ready.Value = u.cfg.Name, back.Endpoint, live.StateLine(e), config.Ready
		set = set.With(ready)
	}
	return set
}

// weighEndpoint changes the weight of an endpoint.
func (s *Server) weighEndpoint(u *upstream, c *admin.EndpointChange, by string) (*endpointEdit, error) {
	m, err := s.present(u, c.Endpoint)
	if err != nil {
		return nil, err
	}
	if c.Weight < 0 || c.Weight > lb.MaxWeight {
		return nil, fmt.Errorf("weight %d: %w: write 0 to %d", c.Weight, admin.ErrInvalid, lb.MaxWeight)
	}
	weight := s.onEndpoint(state.EndpointWeight, u, m, by)
	weight.Value = strconv.Itoa(c.Weight)
	e := &endpointEdit{s.live.Without(weight.Key()), m.spec.Identity(), m.share, c.Weight}
	if c.Weight != m.spec.Weight {
		e.set = e.set.With(weight)
	}
	return e, nil
}

// setEndpointState has an endpoint get clients, drain, or be in maintenance.
func (s *Server) setEndpointState(u *upstream, c *admin.EndpointChange, by string) (*endpointEdit, error) {
	to := string(c.What)
	if back := s.removedEndpoint(u, c.Endpoint); back != nil && to == config.Ready {
		return &endpointEdit{s.takenBack(u, back, by), back.Endpoint, admin.Removed, to}, nil
	}
	m, err := s.present(u, c.Endpoint)
	if err != nil {
		return nil, err
	}
	mode := s.onEndpoint(state.EndpointState, u, m, by)
	mode.Value = to
	e := &endpointEdit{s.live.Without(mode.Key()), m.spec.Identity(), m.mode, to}
	if to != u.listedState(m) {
		e.set = e.set.With(mode)
	}
	return e, nil
}

// listedState is the state that an endpoint has in the file.
func (u *upstream) listedState(m *member) string {
	if e := u.fileEndpoint(m); e != nil {
		return e.State
	}
	return config.Ready
}

// fileEndpoint returns a member as the file has it; nil: it is not in the file.
func (u *upstream) fileEndpoint(m *member) *config.Endpoint {
	if m.byHand || u.cfg.Discover != nil {
		return nil
	}
	return u.named(m.spec.Identity())
}

// named returns an endpoint of the file; nil: it has none of that name.
func (u *upstream) named(endpoint string) *config.Endpoint {
	for i := range u.cfg.Endpoints {
		if e := &u.cfg.Endpoints[i]; e.Name == endpoint {
			return e
		}
	}
	return nil
}

// onEndpoint returns a change of a member, with the line that it stands on.
func (s *Server) onEndpoint(kind state.Kind, u *upstream, m *member, by string) state.Change {
	c := changeOf(kind, by)
	c.Upstream, c.Endpoint = u.cfg.Name, m.spec.Identity()
	e := u.fileEndpoint(m)
	switch {
	case m.byHand:
	case kind == state.EndpointWeight:
		c.Line = live.WeightLine(m.spec.Weight)
	case e == nil:
		c.Line = live.DiscoverLine(u.cfg.Discover)
	case kind == state.EndpointState:
		c.Line = live.StateLine(e)
	default:
		c.Line = live.EndpointLine(e)
	}
	return c
}
