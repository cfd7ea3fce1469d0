package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/live"
	"github.com/penstock/penstock/proxy/internal/state"
)

var errDrained = errors.New("its endpoint was drained")

// ChangeEndpoint implements [admin.Balancer].
func (s *Server) ChangeEndpoint(c *admin.EndpointChange, by string) (admin.EndpointChanged, error) {
	done, takenBack, err := s.hand.changeEndpoint(c, by)
	if err != nil {
		return done, err
	}
	done.Unkept = s.liveChanges.kept(takenBack)
	return done, nil
}

// changeEndpoint changes an endpoint. takenBack says that it only took back earlier changes, or changed nothing, so a
// restart has nothing to lose.
func (h *endpointChanges) changeEndpoint(c *admin.EndpointChange, by string) (done admin.EndpointChanged, takenBack bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	u := h.upstreams[c.Upstream]
	if u == nil {
		return done, false, missing("upstream", c.Upstream, h.upstreams)
	}
	var e *endpointEdit
	switch c.What {
	case admin.EndpointAdd:
		e, err = h.addEndpoint(u, c, by)
	case admin.EndpointRemove:
		e, err = h.removeEndpoint(u, c, by)
	case admin.EndpointWeight:
		e, err = h.weighEndpoint(u, c, by)
	default:
		e, err = h.setEndpointState(u, c, by)
	}
	if err != nil {
		return done, false, err
	}
	takenBack = e.from == e.to || !slices.ContainsFunc(e.set.All(), func(c state.Change) bool { return !slices.Contains(h.live.All(), c) })
	if e.from != e.to {
		if err := h.manager.edit(u, e.set); err != nil {
			return done, false, err
		}
		h.logOperator(by, string(c.What), e.from, e.to, "upstream", c.Upstream, "endpoint", e.name)
	}
	done.Endpoint, done.From, done.To = e.name, fmt.Sprint(e.from), fmt.Sprint(e.to)
	now := u.brief()
	done.Taking, done.Others = now.Taking(e.name)
	if m := u.members[e.name]; m != nil {
		done.Weight, done.Sessions = m.share, int64(m.endpoint.Active())
		if m.mode == config.Drain {
			ms := u.cfg.DrainTimeout.Milliseconds()
			done.ResetAfterMs = &ms
		}
	}
	return done, takenBack, nil
}

type endpointChanges struct {
	*core
	*liveChanges
	manager *upstreamManager
}

// An endpointEdit is a change of an endpoint by hand, and the words for its log line.
type endpointEdit struct {
	set      live.Set // with the change
	name     string
	from, to any // comparable
}

func (um *upstreamManager) edit(u *upstream, set live.Set) error {
	update, err := um.newEndpointUpdate(u, u, u.cfg, manual{set}.edit(u.cfg, um.listed(u)))
	if err != nil {
		update.abandon(u)
		return fmt.Errorf("%w: %w", admin.ErrInvalid, err)
	}
	u.use(update)
	um.settleEndpointUpdate(u, update)
	um.forget(update.gone)
	um.setLive(set)
	return nil
}

// listed returns the endpoints that the file or discovery has for an upstream.
func (r *registry) listed(u *upstream) specs {
	if u.cfg.Discover == nil || len(u.found) == 0 {
		return specsOf(u.cfg, nil)
	}
	fit, _ := r.circles.fit(u.cfg, u.found)
	return specsOf(u.cfg, fit)
}

// brief returns the part of an upstream's status that says which endpoints take clients.
func (u *upstream) brief() *admin.Upstream {
	set := u.snapshot.Set()
	st := &admin.Upstream{Panic: set != nil && set.Panicking()}
	for _, m := range u.order {
		e := admin.Endpoint{Name: m.spec.Identity(), Weight: m.share}
		e.State, e.Breaker = m.state()
		st.Endpoints = append(st.Endpoints, e)
	}
	return st
}

// addEndpoint adds an endpoint, or undoes its removal by hand.
func (h *endpointChanges) addEndpoint(u *upstream, c *admin.EndpointChange, by string) (*endpointEdit, error) {
	if h.closing {
		return nil, errClosing
	}
	keys := config.EndpointKeys{Address: c.Endpoint, Name: c.Name, Zone: c.Zone, Weight: c.Weight, Backup: c.Backup, Connections: c.Connections}
	e, err := config.NewEndpoint(&keys)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", admin.ErrInvalid, err)
	}
	if back := h.removedEndpoint(u, e.Name, c.Endpoint); back != nil {
		set := h.takenBack(u, back, by)
		of := u.specUnder(back.Endpoint, set)
		is := fmt.Sprintf("%s, weight %d", of.Address, of.share)
		if of.Address != e.Address.String() || c.Name != "" && c.Name != back.Endpoint || c.Weight != 1 && c.Weight != of.share ||
			c.Zone != "" && c.Zone != of.Zone || c.Backup && !of.Backup || c.Connections > 0 && c.Connections != int64(of.Connections) {
			return nil, fmt.Errorf("%w: the endpoint %s of %s was removed by hand, and add brings it back as it was (%s): send POST /v1/endpoint/ready?upstream=%[3]s&endpoint=%[2]s first, and change it then",
				admin.ErrInvalid, back.Endpoint, u.cfg.Name, is)
		}
		return &endpointEdit{set, back.Endpoint, admin.Removed, "back at " + is}, nil
	}
	if err := h.admit(u, &e); err != nil {
		return nil, fmt.Errorf("%w: %w", admin.ErrInvalid, err)
	}
	added := changeOf(state.EndpointAdded, by)
	added.Upstream, added.Endpoint = u.cfg.Name, e.Name
	keys.Address = e.Address.String()
	added.Added = (*state.Endpoint)(&keys)
	return &endpointEdit{h.live.WithoutEndpoint(u.cfg.Name, e.Name).With(added), e.Name, "none", addedText(&e)}, nil
}

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

func (h *endpointChanges) admit(u *upstream, e *config.Endpoint) error {
	for _, m := range u.order {
		switch {
		case m.spec.Identity() == e.Name:
			return fmt.Errorf("upstream %s already has an endpoint %s: use another name, or change that endpoint", u.cfg.Name, e.Name)
		case m.endpoint.Address.Network == e.Address.Network && config.SameDestination(m.endpoint.Address, e.Address):
			return fmt.Errorf("%s is the address of the endpoint %s: use another address, or change that endpoint's weight", e.Address, m.spec.Identity())
		case m.spec.Address == e.Name, m.spec.Identity() == e.Address.String():
			return fmt.Errorf("the endpoint %s is at %s: the name of an endpoint cannot be the address of another one", m.spec.Identity(), m.spec.Address)
		}
	}
	if err := h.cfg.Admit(u.cfg.Name, e); err != nil {
		return err
	}
	if why := h.circles.refuse(u.cfg.Name, e.Address.String()); why != "" {
		return fmt.Errorf("%s: write another address", why)
	}
	return nil
}

// removedEndpoint returns the change by hand that removed an endpoint, given by its name or its address, or nil.
func (h *endpointChanges) removedEndpoint(u *upstream, given ...string) *state.Change {
	listed := h.listed(u)
	for _, id := range given {
		if c := h.live.Find(state.Key{Kind: state.EndpointRemoved, Upstream: u.cfg.Name, Endpoint: id}); c != nil {
			return c
		}
		for i := range listed.n {
			if of := listed.at(i); of.Address == id {
				if c := h.live.Find(state.Key{Kind: state.EndpointRemoved, Upstream: u.cfg.Name, Endpoint: of.Identity()}); c != nil {
					return c
				}
			}
		}
	}
	return nil
}

func (h *endpointChanges) present(u *upstream, endpoint string) (*member, error) {
	if back := h.removedEndpoint(u, endpoint); back != nil {
		return nil, missingf("endpoint %q of %s was removed by hand: send POST /v1/endpoint/ready?upstream=%[2]s&endpoint=%[3]s first", endpoint, u.cfg.Name, back.Endpoint)
	}
	return u.find(endpoint)
}

// removeEndpoint removes an endpoint: for good if it was added by hand, otherwise until its line in
// the file changes.
func (h *endpointChanges) removeEndpoint(u *upstream, c *admin.EndpointChange, by string) (*endpointEdit, error) {
	if h.closing {
		return nil, errClosing
	}
	if back := h.removedEndpoint(u, c.Endpoint); back != nil {
		return &endpointEdit{h.live.Set, back.Endpoint, admin.Removed, admin.Removed}, nil
	}
	m, err := u.find(c.Endpoint)
	if err != nil {
		return nil, err
	}
	id := m.spec.Identity()
	e := &endpointEdit{h.live.WithoutEndpoint(u.cfg.Name, id), id, m.mode, admin.Removed}
	if !m.byHand { // the endpoint may come back, so a weight set by hand stays
		mode := h.onEndpoint(state.EndpointState, u, m, by)
		e.set = h.live.Without(mode.Key()).With(h.onEndpoint(state.EndpointRemoved, u, m, by))
	}
	return e, nil
}

// takenBack returns the changes without the removal of an endpoint. The endpoint gets clients then, whatever its state in
// the file.
func (h *endpointChanges) takenBack(u *upstream, back *state.Change, by string) live.Set {
	set := h.live.Without(back.Key())
	if e := u.named(back.Endpoint); e != nil && e.State != config.Ready {
		ready := changeOf(state.EndpointState, by)
		ready.Upstream, ready.Endpoint, ready.Line, ready.Value = u.cfg.Name, back.Endpoint, live.StateLine(e), config.Ready
		set = set.With(ready)
	}
	return set
}

func (h *endpointChanges) weighEndpoint(u *upstream, c *admin.EndpointChange, by string) (*endpointEdit, error) {
	m, err := h.present(u, c.Endpoint)
	if err != nil {
		return nil, err
	}
	if c.Weight < 0 || c.Weight > lb.MaxWeight {
		return nil, fmt.Errorf("weight %d: %w: write 0 to %d", c.Weight, admin.ErrInvalid, lb.MaxWeight)
	}
	weight := h.onEndpoint(state.EndpointWeight, u, m, by)
	weight.Value = strconv.Itoa(c.Weight)
	e := &endpointEdit{h.live.Without(weight.Key()), m.spec.Identity(), m.share, c.Weight}
	if c.Weight != m.spec.Weight {
		e.set = e.set.With(weight)
	}
	return e, nil
}

func (h *endpointChanges) setEndpointState(u *upstream, c *admin.EndpointChange, by string) (*endpointEdit, error) {
	to := string(c.What)
	if back := h.removedEndpoint(u, c.Endpoint); back != nil && to == config.Ready {
		return &endpointEdit{h.takenBack(u, back, by), back.Endpoint, admin.Removed, to}, nil
	}
	m, err := h.present(u, c.Endpoint)
	if err != nil {
		return nil, err
	}
	mode := h.onEndpoint(state.EndpointState, u, m, by)
	mode.Value = to
	e := &endpointEdit{h.live.Without(mode.Key()), m.spec.Identity(), m.mode, to}
	listed := config.Ready
	if of := u.fileEndpoint(m); of != nil {
		listed = of.State
	}
	if to != listed {
		e.set = e.set.With(mode)
	}
	return e, nil
}

func (u *upstream) fileEndpoint(m *member) *config.Endpoint {
	if m.byHand || u.cfg.Discover != nil {
		return nil
	}
	return u.named(m.spec.Identity())
}

func (u *upstream) named(endpoint string) *config.Endpoint {
	for i := range u.cfg.Endpoints {
		if e := &u.cfg.Endpoints[i]; e.Name == endpoint {
			return e
		}
	}
	return nil
}

func (h *endpointChanges) onEndpoint(kind state.Kind, u *upstream, m *member, by string) state.Change {
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

// DrainListener implements [admin.Balancer].
func (s *Server) DrainListener(name, by string) (done admin.ListenerDrained, err error) {
	defer func() { done.Unkept = s.liveChanges.kept(!done.Changed) }() // after mu is released
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listeners[name]
	switch {
	case l == nil:
		return done, missing("listener", name, s.listeners)
	case s.closing: // its descriptors may be other connections by now
		return done, errClosing
	}
	done.Sessions = int64(l.state.Connections.InUse())
	if done.Changed = !l.drained; done.Changed {
		c := changeOf(state.ListenerDrained, by)
		c.Listener, c.Line = name, live.BindLine(l.cfg)
		s.liveChanges.setLive(s.liveChanges.live.With(c))
		s.liveChanges.logOperator(by, "drain", admin.Serving, admin.Draining, "listener", name)
	}
	l.drained = true
	for _, key := range l.keys {
		if socket := s.binds[key]; socket != nil {
			s.sockets.closeSocket(key, socket, errListenerDrained)
		}
	}
	s.sockets.refreshView()
	now := time.Now()
	for _, p := range s.removed.drainingSockets("") {
		if ends := p.cut.ends(); p.owner == name && ends.After(now) && ends.After(done.Until) {
			done.Until = ends
		}
	}
	return done, nil
}

// ReadyListener implements [admin.Balancer].
func (s *Server) ReadyListener(ctx context.Context, name, by string) (done admin.Changed, err error) {
	defer func() { done.Unkept = s.liveChanges.kept(true) }() // after mu is released
	s.mu.Lock()
	cfg := s.cfg
	s.mu.Unlock()
	askPaths(cfg)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listeners[name]
	switch {
	case l == nil:
		return done, missing("listener", name, s.listeners)
	case s.closing:
		return done, errClosing
	case !l.drained:
		return done, nil
	}
	was := s.liveChanges.live
	s.liveChanges.live = manual{s.liveChanges.live.Without(state.Key{Kind: state.ListenerDrained, Listener: name})}
	if err := s.apply(ctx, s.cfg, nil); err != nil { // for instance, its address is taken by now
		s.liveChanges.live = was
		return done, err
	}
	s.liveChanges.markLive()
	s.liveChanges.logOperator(by, "ready", admin.Draining, admin.Serving, "listener", name)
	done.Changed = true
	return done, nil
}

// SetSplit implements [admin.Balancer].
func (s *Server) SetSplit(listener string, route int, percent map[string]float64, by string) (done admin.Changed, err error) {
	takenBack := false
	defer func() { done.Unkept = s.liveChanges.kept(takenBack) }() // after mu is released
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listeners[listener]
	switch {
	case l == nil:
		return done, missing("listener", listener, s.listeners)
	case route < 0 || route >= len(l.shares) || l.shares[route].split == nil:
		return done, missingf("listener %q, route %d, has no split: penstock split lists the splits", listener, route)
	}
	sh, split := &l.shares[route], l.cfg.Routes[route].Split
	now := make([]float64, len(split))
	for i, share := range split {
		p, ok := percent[share.Upstream]
		if !ok {
			return done, fmt.Errorf("%w: the split also has the upstream %s: write its percentage too", admin.ErrInvalid, share.Upstream)
		}
		now[i] = p
	}
	if len(percent) != len(split) {
		return done, fmt.Errorf("%w: write a percentage for each upstream of the split, and for no other upstream", admin.ErrInvalid)
	}
	if err := sh.split.Set(now...); err != nil {
		return done, fmt.Errorf("%w: %w", admin.ErrInvalid, err)
	}
	c := changeOf(state.Split, by)
	c.Listener, c.Route, c.Match, c.Line, c.Value = listener, route, live.MatchLine(&l.cfg.Routes[route]), live.SplitLine(split), live.Percentages(split, now)
	set := s.liveChanges.live.Without(c.Key())
	if takenBack = c.Value == c.Line; !takenBack {
		set = set.With(c)
	}
	s.liveChanges.setLive(set)
	s.liveChanges.logOperator(by, "split", live.Percentages(split, sh.now), c.Value, "listener", listener, "route", route)
	done.Changed = !slices.Equal(sh.now, now)
	sh.now = now
	return done, nil
}

// find returns an endpoint by its name, or by its address if no other endpoint has this address.
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
		return nil, fmt.Errorf("endpoint %q of %s: %w: several endpoints have this address: use one of the names %s", endpoint, of, admin.ErrInvalid, names(found))
	}
	for _, m := range found {
		return m, nil
	}
	return nil, missingf("there is no endpoint %q of %s, known: %s", endpoint, of, names(u.members))
}

// A missingError says that nothing has a given name. It wraps [admin.ErrNotFound].
type missingError string

func (e missingError) Error() string { return string(e) }

func (missingError) Unwrap() error { return admin.ErrNotFound }

func missingf(format string, args ...any) error { return missingError(fmt.Sprintf(format, args...)) }

// missing returns the error about a name that is not among the existing names.
func missing[T any](kind, name string, existing map[string]T) error {
	return missingf("there is no %s %q, known: %s", kind, name, names(existing))
}

// names lists the existing names, or some of them.
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

func (l *liveChanges) logOperator(by, what string, from, to any, subject ...any) {
	attrs := append([]any{"by", by, "what", what}, subject...)
	l.log.Info("changed by hand", append(attrs, "from", from, "to", to)...)
}
