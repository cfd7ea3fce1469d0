package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/clientkey"
	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/match"
	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A listener is one of the configuration, for as long as that names it. Everything is
// guarded by the server's mu.
type listener struct {
	listenerCounts
	cfg     *config.Listener
	now     *router.Listener
	service *worker.Service
	byKey   *router.KeyCounts // nil: there are none
	tls     *tlsterm.Server
	filters map[string]runningFilter // by name
	modules []runningModule
	keys    []string // of its binds
	shares  []shares
	drained bool // by an operator

	comparisons []*comparison // of its mirrors
}

// listenerCounts are the counters of a listener's clients. They last as long as it has any,
// also while the configuration does not name it.
type listenerCounts struct {
	state   *router.ListenerState
	buckets buckets
	sources *limit.Sources // nil: sources were never limited
	stats   *tlsterm.Stats
	ledgers map[string]*filter.Ledger // of filters, by name
}

// busy reports whether the listener has clients.
func (l *listenerCounts) busy() bool { return l.state.Connections.InUse() > 0 }

// shares are those of a route's split.
type shares struct {
	now   []float64 // percentages in force
	split *lb.WeightedSplit
}

// A nextListener is a listener that is being prepared.
type nextListener struct {
	*listener           // the old one, if it stays
	old       *listener // nil: there is none
	cfg       *config.Listener
}

// close closes the parts of a listener that the next one of its name does not have; nil: there is none.
func (l *listener) close(next *listener) {
	l.retireFilters(next)
	l.retireModules(next)
	if l.tls != nil {
		l.tls.Close()
	}
}

// prepareListener makes the parts that a listener lacks under the next configuration.
func (s *Server) prepareListener(ctx context.Context, c *change, cfg *config.Listener) error {
	old := s.listeners[cfg.Name]
	drained := c.lives.set.drained(cfg.Name)
	if s.listenerUnchanged(c, old, cfg, drained) {
		c.listeners[cfg.Name] = &nextListener{old, old, cfg}
		for _, key := range old.keys {
			c.binds[key] = s.binds[key]
		}
		return nil
	}
	l := &listener{cfg: cfg, listenerCounts: s.countsOf(cfg.Name, old), drained: drained}
	c.listeners[cfg.Name] = &nextListener{l, old, cfg}
	if err := s.prepareLimits(l, old); err != nil {
		return err
	}
	if err := s.prepareTLS(c, l); err != nil {
		return err
	}
	if err := s.prepareFilters(ctx, c, l, old); err != nil {
		return err
	}
	if err := s.prepareModules(ctx, c, l, old); err != nil {
		return err
	}
	routerCfg, err := s.routerConfig(c, l)
	if err != nil {
		return err
	}
	l.now = router.NewListener(routerCfg)
	l.service = l.now.Service()
	if drained {
		return nil
	}
	var errs []error
	for _, at := range cfg.Bind {
		keys, err := s.bind(ctx, c, cfg, at)
		if err != nil {
			errs = append(errs, err)
		}
		l.keys = append(l.keys, keys...)
	}
	return errors.Join(errs...)
}

// countsOf returns the counts of a listener that there is, or that has clients from before it was gone,
// or new ones.
func (s *Server) countsOf(name string, old *listener) listenerCounts {
	if old != nil {
		return old.listenerCounts
	}
	if counts := s.unnamed[name]; counts != nil && counts.busy() {
		return *counts
	}
	return listenerCounts{state: s.newListenerState(name), stats: new(tlsterm.Stats), ledgers: make(map[string]*filter.Ledger)}
}

// prepareLimits makes the limits that the listener has not had before. Those that it has
// had are changed by commitListener.
func (s *Server) prepareLimits(l, old *listener) error {
	limits := &l.cfg.Limits
	l.buckets.make(&limits.Bandwidth)
	if !limitsSources(l.cfg) || l.sources != nil {
		return nil
	}
	var err error
	l.sources, err = limit.NewSources(limit.SourcesConfig{
		Connections: int(limits.PerSource), PerSecond: float64(limits.PerSourcePerSecond),
		PrefixV4: limits.SourcePrefix[0], PrefixV6: limits.SourcePrefix[1],
		Entries: max(65536, s.options.MaxConnections),
	})
	return err
}

// limitsSources reports whether the clients of a listener are counted by their sources.
func limitsSources(c *config.Listener) bool {
	return c.Limits.PerSource > 0 || c.Limits.PerSourcePerSecond > 0
}

func (s *Server) prepareTLS(c *change, l *listener) error {
	t := l.cfg.TLS
	if t == nil {
		return nil
	}
	version, err := tlsterm.ParseVersion(t.MinVersion)
	if err != nil {
		return err
	}
	if l.cfg.SpeaksPostgres() && len(t.ALPN) == 0 {
		t = &config.ListenerTLS{Certificates: t.Certificates, ClientCA: t.ClientCA, MinVersion: t.MinVersion, ALPN: []string{postgres.Protocol}}
	}
	cfg := &tlsterm.Config{
		Name: l.cfg.Name, ClientCA: string(t.ClientCA), MinVersion: version, ALPN: t.ALPN, Timeout: l.cfg.Timeouts.Preread,
		Files: s.files, Tickets: s.tickets, Limit: s.tls, Stats: l.stats,
	}
	for _, c := range t.Certificates {
		cfg.Certificates = append(cfg.Certificates, tlsterm.Pair{Cert: string(c.Cert), Key: string(c.Key)})
	}
	if l.tls, err = tlsterm.NewServer(cfg); err != nil {
		return err
	}
	c.undo = append(c.undo, l.tls.Close)
	return nil
}

// routerConfig is a listener's configuration as package router has it.
func (s *Server) routerConfig(c *change, l *listener) (*router.ListenerConfig, error) {
	cfg, own := l.cfg, &l.cfg.Limits.BandwidthPerConnection
	routerCfg := &router.ListenerConfig{
		Name: cfg.Name, State: l.state, Process: &s.connectRate,
		Access:  limit.Access{Allow: source.NewSet(cfg.Allow), Deny: source.NewSet(cfg.Deny)},
		Denials: &s.denials.rules,
		Wake:    s.wakerOf(cfg.Name), SourcePrefix: cfg.Limits.SourcePrefix,
		Transparent: cfg.Transparent, Own: s.listensOn, StateOf: s.listenerStateOf, Rules: s.rulesFor,
		Limits: relay.Limits{
			IdleTimeout: cfg.Timeouts.Idle, HalfCloseTimeout: cfg.Timeouts.HalfClose, MaxLifetime: cfg.Timeouts.Lifetime,
			LifetimeJitter: cfg.Timeouts.LifetimeJitter, FirstByte: cfg.Timeouts.FirstByte,
			PerConnection: relay.Rates{Both: own.Both, AToB: own.Up, BToA: own.Down, Burst: own.Burst},
		},
		Lane: laneUse(cfg), Options: socketOptions(cfg), Connect: cfg.Timeouts.Connect, TLS: l.tls, Offloaded: s.tlsSession,
		Now: s.now, Resolver: s, Circle: s.circle,
	}
	if limitsSources(cfg) {
		routerCfg.Sources = l.sources
	}
	l.byKey = keyCounts(cfg.MetricsBy, s.listeners[cfg.Name])
	routerCfg.ByKey = l.byKey
	l.buckets.limit(&routerCfg.Limits, &cfg.Limits.Bandwidth)
	if cfg.Upstream != "" {
		routerCfg.Default = c.snapshot(cfg.Upstream)
	}
	var err error
	if routerCfg.Mirror, err = s.mirror(c, l, nil); err != nil {
		return nil, err
	}
	if routerCfg.Rewrite, err = l.rewrite(cfg.RewriteOf(nil)); err != nil {
		return nil, err
	}
	routerCfg.Filter = l.filter(c, cfg.FilterOf(nil))
	if err = s.routes(c, l, routerCfg); err != nil {
		return nil, err
	}
	routerCfg.ByHello = cfg.TLS == nil && cfg.Needs(clientkey.SNI, c.upstreamConfig)
	onlyTLS := cfg.RequireTLS || cfg.TLS != nil || cfg.SpeaksPostgres()
	recognised := !onlyTLS && routerCfg.Table != nil && routerCfg.Table.Recogniser() != nil // the hello is one of the first bytes then
	routerCfg.Preread = worker.Preread{
		Hello:    cfg.RequireTLS || onlyTLS && routerCfg.Table != nil && routerCfg.Table.Hello() || !recognised && routerCfg.ByHello,
		AnyHello: !onlyTLS,
		Data:     cfg.Connect == "on_data",
		Silence:  cfg.Silence,
		Timeout:  cfg.Timeouts.Preread,
	}
	if cfg.SpeaksPostgres() {
		routerCfg.Preread.Postgres = s.postgres(l)
	}
	if cfg.SpeaksPostgres() || recognised {
		routerCfg.Refusal = refusal(cfg.SpeaksPostgres())
	}
	if a := cfg.AcceptProxy; a != nil {
		routerCfg.Preread.Header = &proxyproto.Policy{Versions: a.Versions, From: source.NewSet(a.From), Timeout: a.Timeout}
	}
	return routerCfg, nil
}

// upstreamConfig returns an upstream of the next configuration; nil: there is none of that name.
func (c *change) upstreamConfig(name string) *config.Upstream {
	if u := c.upstreams[name]; u != nil {
		return u.cfg
	}
	return nil
}

// snapshot returns the snapshot that an upstream of the next configuration has; the loader has
// seen to it that there is one.
func (c *change) snapshot(name string) *router.UpstreamSnapshot {
	if u := c.upstreams[name]; u != nil {
		return u.now.snapshot
	}
	return nil
}

// routes makes the table of a listener's routes.
func (s *Server) routes(c *change, l *listener, routerCfg *router.ListenerConfig) error {
	l.shares = make([]shares, len(l.cfg.Routes))
	var table []match.Route
	for i := range l.cfg.Routes {
		r := &l.cfg.Routes[i]
		m := &r.Match
		table = append(table, matcher(m, l.cfg.SpeaksPostgres()))
		routerCfg.BySource = routerCfg.BySource || len(m.Source) > 0
		routerCfg.ByPort = routerCfg.ByPort || m.Port != 0
		to := router.Route{}
		if len(r.Split) > 0 {
			split, err := l.split(i, c.lives.set)
			if err != nil {
				return fmt.Errorf("route %d: %w", i, err)
			}
			to.Split = split
			for _, share := range r.Split {
				to.Snapshots = append(to.Snapshots, c.snapshot(share.Upstream))
			}
		} else {
			to.Snapshot = c.snapshot(r.Upstream)
		}
		var err error
		if to.Mirror, err = s.mirror(c, l, r); err != nil {
			return fmt.Errorf("route %d: %w", i, err)
		}
		if to.Rewrite, err = l.rewrite(l.cfg.RewriteOf(r)); err != nil {
			return fmt.Errorf("route %d: %w", i, err)
		}
		to.Filter = l.filter(c, l.cfg.FilterOf(r))
		routerCfg.Routes = append(routerCfg.Routes, to)
	}
	if len(table) == 0 {
		return nil
	}
	var err error
	routerCfg.Table, err = match.New(table)
	return err
}

// matcher is a match as package match has it. speaksPostgres says that the listener does.
func matcher(m *config.Match, speaksPostgres bool) match.Route {
	r := match.Route{
		SNI: m.SNI, ALPN: m.ALPN, Source: m.Source, Port: uint16(m.Port),
		Host: m.Host, Path: m.Path,
	}
	if speaksPostgres { // the startup message is read by the negotiation
		r.Users, r.Databases = m.User, m.Database
	} else {
		r.User, r.Database = m.User, m.Database
	}
	for _, name := range m.Protocol {
		if p, ok := firstbytes.Parse(name); ok {
			r.Protocols |= firstbytes.SetOf(p)
		}
	}
	for i := range m.Bytes {
		b := &m.Bytes[i]
		content, mask := b.Content()
		r.Bytes = append(r.Bytes, firstbytes.Pattern{Offset: b.Offset, Bytes: content, Mask: mask})
	}
	for i := range m.TLV {
		t := &m.TLV[i]
		r.TLVs = append(r.TLVs, match.TLV{Type: proxyproto.Type(t.Type), Value: t.Value(), Any: t.Value() == nil})
	}
	return r
}

// split makes the split of a route, which an operator may have changed.
func (l *listener) split(route int, by manual) (*lb.WeightedSplit, error) {
	sh, split := &l.shares[route], l.cfg.Routes[route].Split
	if sh.now = by.split(l.cfg.Name, route, split); sh.now == nil {
		for _, share := range split {
			sh.now = append(sh.now, share.Percent)
		}
	}
	var err error
	sh.split, err = lb.NewWeightedSplit(sh.now...)
	return sh.split, err
}

// commitListener brings a listener into force, but for its sockets.
func (s *Server) commitListener(name string, n *nextListener) {
	l := n.listener
	l.cfg = n.cfg // it may have been written elsewhere
	if l == n.old {
		return
	}
	limits := &l.cfg.Limits
	l.state.Connections.Set(limits.Connections)
	l.state.Rate.Set(float64(limits.PerSecond), 0)
	l.now.Enforce()
	l.buckets.set(&limits.Bandwidth)
	if limitsSources(l.cfg) {
		l.sources.Set(int(limits.PerSource), float64(limits.PerSourcePerSecond), 0)
		_ = l.sources.SetPrefix(limits.SourcePrefix[0], limits.SourcePrefix[1], s.now()) // the loader has seen to the range
	}
	s.listeners[name] = l
}

// listensOn reports whether this process itself listens on an address, so that a connection to
// it comes back. A socket without an address listens on all addresses of a family that are
// this machine's own; the kernel is asked for these only where the port is the same.
func (s *Server) listensOn(at netip.AddrPort) bool {
	for _, own := range s.view.Load().addresses {
		switch {
		case own.Port() != at.Port():
		case own.Addr() == at.Addr().Unmap():
			return true
		case own.Addr().IsUnspecified() && own.Addr().Is4() == at.Addr().Unmap().Is4():
			if local, err := sys.LocalRoute(at.Addr()); local || err != nil {
				return true
			}
		}
	}
	return false
}

// wakerOf returns a function that wakes the sockets of a listener to look for room.
func (s *Server) wakerOf(name string) func() {
	return func() {
		for _, listening := range s.view.Load().listenings[name] {
			listening.Wake()
		}
	}
}

// newListenerState makes the state of a listener, which has it logged that a limit is reached, but at
// most once in logEvery.
func (s *Server) newListenerState(listener string) *router.ListenerState {
	var told atomic.Int64 // clock of the last line; 0: never
	var since atomic.Int64
	return &router.ListenerState{Name: listener, Paused: func(limit string, now time.Duration) {
		times := since.Add(1)
		last := told.Load()
		if last != 0 && int64(now)-last < int64(logEvery) || !told.CompareAndSwap(last, max(int64(now), 1)) {
			return
		}
		since.Add(-times)
		s.log.Info("listener at its limit, further clients wait", "listener", listener, "limit", limit, "times", times)
	}}
}
