package server

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/clientkey"
	"github.com/penstock/penstock/proxy/internal/compare"
	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/lanes"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/match"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/internal/offload"
	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// The listenerManager makes listeners, and brings them into force, except for their sockets. Fields are guarded by the
// server's mu unless they say otherwise.
type listenerManager struct {
	*core
	*sockets
	tickets   *tlsterm.Tickets
	compares  *compare.Budget // of all mirrors
	denials   *limit.Denials  // by hand; it has its own lock
	rate      *limit.Rate     // of the whole process; it has its own lock
	offloaded func(*worker.Offloaded, *router.Offloaded)
	cancel    func(h *worker.Offloaded, l *router.Listener, request []byte)
}

// A listener is a listener of the configuration, for as long as the configuration names it.
// Everything is guarded by the server's mu.
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

// listenerCounts are the counters of a listener's clients. They last as long as the
// listener has clients, even while the configuration does not name it.
type listenerCounts struct {
	state   *router.ListenerState
	buckets buckets
	sources *limit.Sources // nil: sources were never limited
	stats   *tlsterm.Stats
	ledgers map[string]*filter.Ledger // of filters, by name
}

func (l *listenerCounts) busy() bool { return l.state.Connections.InUse() > 0 }

type shares struct {
	now   []float64 // percentages in force
	split *lb.WeightedSplit
}

type nextListener struct {
	*listener           // the old listener, if it stays
	old       *listener // nil: there is none
	cfg       *config.Listener
}

// close closes the parts of a listener that next lacks. next is the next listener of the same name, or nil.
func (l *listener) close(next *listener) {
	l.retireFilters(next)
	l.retireModules(next)
	if l.tls != nil {
		l.tls.Close()
	}
}

func (lm *listenerManager) prepare(ctx context.Context, c *change, cfg *config.Listener) error {
	old := lm.listeners[cfg.Name]
	drained := c.lives.set.drained(cfg.Name)
	if lm.listenerUnchanged(c, old, cfg, drained) {
		c.listeners[cfg.Name] = &nextListener{old, old, cfg}
		for _, key := range old.keys {
			c.binds[key] = lm.binds[key]
		}
		return nil
	}
	l := &listener{cfg: cfg, listenerCounts: lm.countsOf(cfg.Name, old), drained: drained}
	c.listeners[cfg.Name] = &nextListener{l, old, cfg}
	if err := lm.prepareLimits(l); err != nil {
		return err
	}
	if err := lm.prepareTLS(c, l); err != nil {
		return err
	}
	if err := lm.prepareFilters(ctx, c, l, old); err != nil {
		return err
	}
	if err := lm.prepareModules(ctx, c, l, old); err != nil {
		return err
	}
	routerCfg, err := lm.routerConfig(c, l)
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
		keys, err := lm.bind(ctx, c, cfg, at)
		if err != nil {
			errs = append(errs, err)
		}
		l.keys = append(l.keys, keys...)
	}
	return errors.Join(errs...)
}

// countsOf returns the counts of a listener that exists, or that was removed and still has clients,
// else new counts.
func (lm *listenerManager) countsOf(name string, old *listener) listenerCounts {
	if old != nil {
		return old.listenerCounts
	}
	if counts := lm.removed.listeners[name]; counts != nil && counts.busy() {
		return *counts
	}
	return listenerCounts{state: lm.newListenerState(name), stats: tlsterm.NewStats(), ledgers: make(map[string]*filter.Ledger)}
}

// mostSources is the largest number of sources that a listener remembers, in 300 MB. The limit of descriptors is no
// bound: in many containers it is 2^30.
const mostSources = 1 << 22

// prepareLimits makes the limits that are new to a listener; commit changes the others.
func (lm *listenerManager) prepareLimits(l *listener) error {
	limits := &l.cfg.Limits
	l.buckets.make(&limits.Bandwidth)
	if !limitsSources(l.cfg) || l.sources != nil {
		return nil
	}
	var err error
	l.sources, err = limit.NewSources(limit.SourcesConfig{
		Connections: int(limits.PerSource), PerSecond: float64(limits.PerSourcePerSecond),
		PrefixV4: limits.SourcePrefix[0], PrefixV6: limits.SourcePrefix[1],
		Entries: min(max(65536, lm.options.MaxConnections), mostSources),
	})
	return err
}

func limitsSources(c *config.Listener) bool {
	return c.Limits.PerSource > 0 || c.Limits.PerSourcePerSecond > 0
}

func (lm *listenerManager) prepareTLS(c *change, l *listener) error {
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
		Files: lm.files, Tickets: lm.tickets, Limit: lm.tls, Stats: l.stats,
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

func (lm *listenerManager) routerConfig(c *change, l *listener) (*router.ListenerConfig, error) {
	cfg, own := l.cfg, &l.cfg.Limits.BandwidthPerConnection
	routerCfg := &router.ListenerConfig{
		Name: cfg.Name, State: l.state, Process: lm.rate,
		Access:  limit.Access{Allow: source.NewSet(cfg.Allow), Deny: source.NewSet(cfg.Deny)},
		Denials: lm.denials,
		Wake:    lm.wakerOf(cfg.Name), SourcePrefix: cfg.Limits.SourcePrefix,
		Transparent: cfg.Transparent, Own: lm.listensOn, StateOf: lm.listenerStateOf, Rules: lm.rulesFor,
		Limits: relay.Limits{
			IdleTimeout: cfg.Timeouts.Idle, HalfCloseTimeout: cfg.Timeouts.HalfClose, MaxLifetime: cfg.Timeouts.Lifetime,
			LifetimeJitter: cfg.Timeouts.LifetimeJitter, FirstByte: cfg.Timeouts.FirstByte,
			PerConnection: relay.Rates{Both: own.Both, AToB: own.Up, BToA: own.Down, Burst: own.Burst},
		},
		Lane: lanes.Use(cfg), Options: socketOptions(cfg), Connect: cfg.Timeouts.Connect, TLS: l.tls, Offloaded: lm.offloaded,
		Now: lm.now, Resolver: resolve, Circle: lm.circles.of(cfg.Name),
	}
	if limitsSources(cfg) {
		routerCfg.Sources = l.sources
	}
	l.byKey = keyCounts(cfg.MetricsBy, lm.listeners[cfg.Name])
	routerCfg.ByKey = l.byKey
	l.buckets.limit(&routerCfg.Limits, &cfg.Limits.Bandwidth)
	if cfg.Upstream != "" {
		routerCfg.Default = c.snapshot(cfg.Upstream)
	}
	var err error
	if routerCfg.Mirror, err = lm.mirror(c, l, nil); err != nil {
		return nil, err
	}
	routerCfg.Rewrite, routerCfg.Filter = l.rewrite(cfg.RewriteOf(nil)), l.filter(c, cfg.FilterOf(nil))
	if err = lm.routes(c, l, routerCfg); err != nil {
		return nil, err
	}
	routerCfg.ByHello = cfg.TLS == nil && cfg.Needs(clientkey.SNI, c.upstreamConfig)
	onlyTLS := cfg.RequireTLS || cfg.TLS != nil || cfg.SpeaksPostgres()
	recognised := !onlyTLS && routerCfg.Table != nil && routerCfg.Table.Recogniser() != nil // the routes read the hello among the first bytes
	routerCfg.Preread = worker.Preread{
		Hello:    cfg.RequireTLS || onlyTLS && routerCfg.Table != nil && routerCfg.Table.Hello() || !recognised && routerCfg.ByHello,
		AnyHello: !onlyTLS,
		Data:     cfg.Connect == "on_data",
		Silence:  cfg.Silence,
		Timeout:  cfg.Timeouts.Preread,
	}
	if cfg.SpeaksPostgres() {
		routerCfg.Preread.Postgres = &worker.Postgres{
			Terminate: cfg.Postgres == config.PostgresTerminate, RequireTLS: cfg.RequireTLS,
			Cancel: func(h *worker.Offloaded, request []byte) { lm.cancel(h, l.now, request) },
		}
	}
	if cfg.SpeaksPostgres() || recognised {
		routerCfg.Refusal = offload.Refusal(cfg.SpeaksPostgres())
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

// snapshot returns the snapshot of an upstream of the next configuration. The loader has
// checked that it exists.
func (c *change) snapshot(name string) *router.UpstreamSnapshot {
	if u := c.upstreams[name]; u != nil {
		return u.now.snapshot
	}
	return nil
}

func (lm *listenerManager) routes(c *change, l *listener, routerCfg *router.ListenerConfig) error {
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
		if to.Mirror, err = lm.mirror(c, l, r); err != nil {
			return fmt.Errorf("route %d: %w", i, err)
		}
		to.Rewrite, to.Filter = l.rewrite(l.cfg.RewriteOf(r)), l.filter(c, l.cfg.FilterOf(r))
		routerCfg.Routes = append(routerCfg.Routes, to)
	}
	if len(table) == 0 {
		return nil
	}
	var err error
	routerCfg.Table, err = match.New(table)
	return err
}

// matcher converts a match for package match. speaksPostgres says that the listener speaks PostgreSQL.
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

// commit brings a listener into force, except for its sockets.
func (lm *listenerManager) commit(name string, n *nextListener) {
	l := n.listener
	l.cfg = n.cfg // an equal listener may have moved in the file
	if l == n.old {
		return
	}
	limits := &l.cfg.Limits
	if n.old == nil {
		l.limit()
	}
	l.now.Enforce()
	l.buckets.set(&limits.Bandwidth)
	if limitsSources(l.cfg) {
		l.sources.Set(int(limits.PerSource), float64(limits.PerSourcePerSecond))
		_ = l.sources.SetPrefix(limits.SourcePrefix[0], limits.SourcePrefix[1], lm.now()) // the loader has checked the range
	}
	lm.listeners[name] = l
}

// limit sets the limits of concurrent clients and of clients per second. For an existing listener it is called after the
// sockets have changed: otherwise a raised limit would admit the clients in their queues by the former configuration.
func (l *listener) limit() {
	l.state.Limit(l.cfg.Limits.Connections, float64(l.cfg.Limits.PerSecond))
}

// newListenerState makes the state of a listener. The state logs that a limit is reached, at most once in logEvery.
func (lm *listenerManager) newListenerState(listener string) *router.ListenerState {
	var told atomic.Int64 // clock of the last line; 0: never
	var since atomic.Int64
	return router.NewListenerState(listener, func(limit string, now time.Duration) {
		times := since.Add(1)
		last := told.Load()
		if last != 0 && int64(now)-last < int64(logEvery) || !told.CompareAndSwap(last, max(int64(now), 1)) {
			return
		}
		since.Add(-times)
		lm.log.Info("a listener is at its limit: further clients wait", "listener", listener, "limit", limit, "times", times)
	})
}

// buckets are the rate limits that all sessions of a listener share: one for both directions together, one for up,
// one for down. A bucket is nil until there is such a limit.
type buckets [3]*relay.Bucket

func ratesOf(c *config.Bandwidth) [3]int64 { return [3]int64{c.Both, c.Up, c.Down} }

// make makes the buckets that are missing.
func (b *buckets) make(c *config.Bandwidth) {
	for i, rate := range ratesOf(c) {
		if rate > 0 && b[i] == nil {
			b[i] = relay.NewBucket(rate, c.Burst)
		}
	}
}

// set changes the buckets that exist: present sessions spend from them even if there is no such limit any more.
func (b *buckets) set(c *config.Bandwidth) {
	for i, rate := range ratesOf(c) {
		if b[i] != nil {
			b[i].Set(rate, c.Burst)
		}
	}
}

// limit makes sessions spend from the buckets that a configuration asks for.
func (b *buckets) limit(l *relay.Limits, c *config.Bandwidth) {
	for i, of := range [3]**relay.Bucket{&l.Bandwidth, &l.BandwidthAToB, &l.BandwidthBToA} {
		if ratesOf(c)[i] > 0 {
			*of = b[i]
		}
	}
}

// balanceOn returns the property that an upstream's policy hashes, or "" for the source.
func balanceOn(c *config.Upstream) string {
	if hashKey(c) == (clientkey.Key{}) {
		return ""
	}
	return c.BalanceOn
}

// keyCounts returns the counts by a property of a listener's clients; nil: there are none. Values that the listener
// already had continue with their counts. before is nil if there was no listener.
func keyCounts(cfg *config.MetricsBy, before *listener) *router.KeyCounts {
	if cfg == nil {
		return nil
	}
	key, _ := clientkey.Parse(cfg.Key) // the loader has checked it
	var counts *router.KeyCounts
	if before != nil {
		counts = before.byKey
	}
	return router.NewKeyCounts(key, cfg.Values, counts)
}

func (l *listener) measureKeys(running *router.Running) (by string, list []metrics.Keyed) {
	if l.byKey == nil {
		return "", nil
	}
	add := func(value string, c *router.KeyCount) {
		list = append(list, metrics.Keyed{Value: value, Sessions: c.Sessions.Load(), Bytes: bytesOf(c.Bytes(), running.Keys[c])})
	}
	for _, value := range l.cfg.MetricsBy.Values {
		add(value, l.byKey.Of[value])
	}
	add(config.OtherValue, l.byKey.Other)
	add(config.UnknownValue, l.byKey.Unknown)
	return l.cfg.MetricsBy.Key, list
}

func (l *listener) cancelStatus() *admin.Cancels {
	if !l.cfg.SpeaksPostgres() {
		return nil
	}
	c := &l.state.Cancels
	return &admin.Cancels{Requests: c.Requests.Load(), Sent: c.Sent.Load(), Failed: c.Failed.Load()}
}
