package server

import (
	"context"
	"fmt"
	"time"
	"weak"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/clientkey"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/sockopt"
)

// An upstream is one of the configuration, for as long as that names it. Everything is
// guarded by the server's mu.
type upstream struct {
	cfg      *config.Upstream
	router   *router.Upstream
	snapshot *router.UpstreamSnapshot
	breaker  *health.Breaker         // nil: there is none
	outlier  *health.OutlierDetector // nil: there is none
	answers  *health.Unanswered
	budget   *health.RetryBudget
	tls      *tlsterm.Client // nil: none
	stats    *tlsterm.Stats
	members  map[string]*member // by identity
	order    []*member          // as the file or discovery lists them
	leaving  []*member          // that are gone, and had sessions when that was looked at
	watched  []health.Watched   // of order, used again in each round of answers

	source   discovery.Source // nil: its endpoints are in the file
	found    []discovery.Endpoint
	refused  []string // why some of found are no endpoints, see inside
	answered bool     // by the source
	first    *firstAnswer
	stop     context.CancelFunc

	congestion *sockopt.Congestion // of the connections to endpoints; nil: that of the system
}

// A nextUpstream is one that is being prepared.
type nextUpstream struct {
	cfg    *config.Upstream
	now    *upstream       // the old one, if it lasts
	old    *upstream       // nil: there is none
	update *endpointUpdate // nil: its members are unchanged
}

// close closes the parts that have goroutines or follow files.
func (u *upstream) close() {
	if u.stop != nil {
		u.stop()
	}
	if u.tls != nil {
		u.tls.Close()
	}
}

// prepareUpstream makes the parts that an upstream lacks under the next configuration, but for its members.
func (s *Server) prepareUpstream(c *change, cfg *config.Upstream) (err error) {
	old := s.upstreams[cfg.Name]
	next := &nextUpstream{cfg: cfg, now: old, old: old}
	c.upstreams[cfg.Name] = next
	if !c.unchanged.has(cfg.Name) {
		next.now, err = s.newUpstream(c, old, cfg)
	}
	return err
}

// prepareMembers makes the members of an upstream under the next configuration, if they may differ.
func (s *Server) prepareMembers(c *change, cfg *config.Upstream) (err error) {
	next := c.upstreams[cfg.Name]
	old := next.old
	if next.now == old && (cfg.Discover != nil || old.cfg.SameEndpoints(cfg)) && !c.lives.touchAny(cfg.Name) {
		return nil
	}
	wanted := c.lives.set.edit(cfg, specsOf(cfg, s.fit(c, next.now)))
	if next.update, err = s.newEndpointUpdate(next.now, old, cfg, wanted); old != nil {
		c.undo = append(c.undo, func() { next.update.abandon(old) })
	}
	return err
}

// newUpstream makes an upstream without members. It has the health and statistics of the old
// one.
func (s *Server) newUpstream(c *change, old *upstream, cfg *config.Upstream) (*upstream, error) {
	u := &upstream{cfg: cfg}
	if old != nil {
		u.router, u.stats, u.budget = old.router, old.stats, old.budget
		u.breaker, u.outlier, u.answers, u.congestion = old.breaker, old.outlier, old.answers, old.congestion
	} else {
		s.from(u)
	}
	if u.router == nil {
		u.router, u.stats = router.NewUpstream(cfg.Name, s.markDown), new(tlsterm.Stats)
		u.router.HoldUnder(&s.tracked)
		u.router.SetPanic(health.NewPanic(s.scheduler, "upstream "+cfg.Name))
	}
	if err := s.prepareClient(c, u); err != nil {
		return nil, err
	}
	s.prepareMonitors(u)
	if err := s.prepareSource(u, old); err != nil {
		return nil, err
	}
	if name := u.cfg.Socket.Congestion; name != u.congestion.Name() {
		u.congestion = sockopt.NewCongestion(name)
		c.commits = append(c.commits, func() { s.logCongestion(u) })
	}
	u.snapshot = router.NewSnapshot(u.router, u.snapshotConfig())
	return u, nil
}

// prepareClient makes the TLS towards endpoints.
func (s *Server) prepareClient(c *change, u *upstream) (err error) {
	t := u.cfg.TLS
	if t == nil {
		return nil
	}
	cfg := &tlsterm.ClientConfig{CA: string(t.CA), SNI: t.SNI, Files: s.files, Limit: s.tls, Stats: u.stats}
	if t.Cert != "" {
		cfg.Pair = tlsterm.Pair{Cert: string(t.Cert), Key: string(t.Key)}
	}
	if u.tls, err = tlsterm.NewClient(cfg); err == nil {
		c.undo = append(c.undo, u.tls.Close)
	}
	return err
}

// prepareMonitors makes the guards that the upstream has not had before; those that it has
// had are changed by swapUpstream.
func (s *Server) prepareMonitors(u *upstream) {
	subject := "upstream " + u.cfg.Name
	switch {
	case u.cfg.CircuitBreaker == nil:
		u.breaker = nil
	case u.breaker == nil:
		u.breaker = health.NewBreaker(s.scheduler, subject, nil, breakerConfig(u.cfg.CircuitBreaker, true))
	}
	switch {
	case u.cfg.OutlierDetection == nil:
		u.outlier = nil
	case u.outlier == nil:
		u.outlier = health.NewOutlierDetector(s.scheduler, outlierConfig(u.cfg.OutlierDetection))
	}
	if u.answers == nil {
		u.answers = health.NewUnanswered(s.ended, s.watches.Go)
	}
	if u.budget == nil {
		u.budget = health.NewRetryBudget(budgetConfig(&u.cfg.Retry))
	}
}

// snapshotConfig returns the configuration of the upstream's router snapshot.
func (u *upstream) snapshotConfig() *router.SnapshotConfig {
	c := u.cfg
	cfg := &router.SnapshotConfig{
		Breaker: u.breaker, Budget: u.budget,
		Attempts: c.Retry.Attempts, Backoff: c.Retry.Backoff, MaxBackoff: c.Retry.MaxBackoff,
		QueueSize: int64(c.Queue.Size), QueueTimeout: c.Queue.Timeout, Hold: c.Queue.Hold,
		SendProxy: c.SendProxy, Source: c.SourceAddress, Congestion: u.congestion, TLS: u.tls,
		BySource: bySource(c), HashKey: hashKey(c), StartTLS: c.StartTLS == config.StartTLSPostgres,
	}
	if f := c.Fallback; f != nil && f.Upstream == "" {
		cfg.Respond = append([]byte{}, f.Respond.Bytes...)
	}
	return cfg
}

// bySource reports whether a client's source decides which endpoint it gets.
func bySource(c *config.Upstream) bool { return setConfig(c).Policy.Keyed() }

// hashKey is the property of a client that decides which endpoint it gets, where the policy hashes one.
func hashKey(c *config.Upstream) clientkey.Key {
	key, _ := clientkey.Parse(c.BalanceOn) // the loader has looked
	return key
}

// newSet makes the set of an upstream's members, which is to follow another one, if there
// is one.
func (u *upstream) newSet(wanted *config.Upstream, members []*member, before *lb.Set) *lb.Set {
	cfg := setConfig(wanted)
	cfg.OnRoom = u.router.Room
	list := make([]lb.Member, len(members))
	for i, m := range members {
		list[i] = lb.Member{
			Endpoint: m.endpoint.Endpoint, Zone: m.spec.Zone, Backup: m.spec.Backup,
			Weight: m.share, Connections: m.spec.Connections,
		}
	}
	return lb.NewSet(list, cfg, before)
}

// setConfig is how an upstream's configuration has clients be shared.
func setConfig(upstream *config.Upstream) *lb.Config {
	policy, _ := lb.ParsePolicy(upstream.Balance) // the loader has looked
	cfg := &lb.Config{Policy: policy, PanicBelow: upstream.PanicBelow, SlowStart: upstream.SlowStart, BackupWhenFull: upstream.BackupWhen == "full"}
	if z := upstream.ZoneAware; z != nil {
		cfg.Zone, cfg.SpillBelow = z.Local, z.SpillBelow
	}
	return cfg
}

// swapUpstream brings an upstream into force.
func (s *Server) swapUpstream(next *nextUpstream) {
	u := next.now
	u.cfg = next.cfg
	if u != next.old {
		s.upstreams[u.cfg.Name] = u
		u.configure()
		if next.old != nil {
			u.leaving = next.old.leaving
		} else {
			s.reactivateUpstream(u)
		}
	}
	if next.update != nil {
		u.use(next.update)
	}
}

// configure applies the configuration to the parts that outlive it.
func (u *upstream) configure() {
	if b := u.cfg.CircuitBreaker; b != nil {
		u.breaker.Configure(breakerConfig(b, true))
	}
	if o := u.cfg.OutlierDetection; o != nil {
		u.outlier.Configure(outlierConfig(o))
	}
	u.budget.Configure(budgetConfig(&u.cfg.Retry))
}

// settleUpstream follows the swap.
func (s *Server) settleUpstream(next *nextUpstream) {
	if old := next.old; old != nil && old != next.now {
		if old.tls != nil {
			old.tls.Close()
		}
		if next.now.source != old.source && old.stop != nil {
			old.stop()
		}
	}
	if next.update != nil {
		s.settleEndpointUpdate(next.now, next.update)
	}
	s.startDiscovery(next.now)
}

// dropUpstream is the end of an upstream that the configuration does not name any more.
// Clients that came before it was dropped may still be on their way, and have its last
// set; it costs its memory until the last of them has left.
func (s *Server) dropUpstream(u *upstream) {
	delete(s.upstreams, u.cfg.Name)
	counts := u.router.Counts()
	s.gone.Add(&counts, 1)
	u.close()
	var deserted []*router.Endpoint
	for _, m := range u.members {
		s.dropMember(u, m)
		if m.endpoint.Active() > 0 {
			u.leaving = append(u.leaving, m)
			s.drainRemoved(u, m)
		} else {
			deserted = append(deserted, m.endpoint)
		}
	}
	s.drainLateSessions(u.cfg, deserted)
	s.former = append(s.former, former{u.cfg.Name, weak.Make(u.router), u.router.Refusals()})
	s.retire(u)
	if set := u.snapshot.Set(); set != nil {
		kept := weak.Make(set)
		s.runAfter(u.cfg.DrainTimeout+time.Minute, func() {
			if set := kept.Value(); set != nil {
				set.Detach()
			}
		})
	}
}

// runAfter has f called after a time, unless everything ends before. f must not take the
// server's mu.
func (s *Server) runAfter(d time.Duration, f func()) *time.Timer {
	return s.at(d, func() { s.goTracked(f) })
}

// A due is a function that is called at a time. The runtime keeps timers that were stopped for
// a while (runtime/time.go, timers.zombies), and the functions that they would have called; so
// the function is removed from them.
type due struct{ f func() } // nil: it was called off

// at has f called after a time, with the server's mu held.
func (s *Server) at(d time.Duration, f func()) *time.Timer {
	var t *time.Timer
	call := &due{f}
	t = s.after(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.timers, t)
		if call.f != nil {
			call.f()
		}
	})
	s.timers[t] = call
	return t
}

// cancelTimer prevents a call that runAfter has scheduled, unless it is called already. t
// may be nil.
func (s *Server) cancelTimer(t *time.Timer) {
	if call := s.timers[t]; call != nil {
		t.Stop()
		call.f = nil
		delete(s.timers, t)
	}
}

func outlierConfig(o *config.OutlierDetection) *health.OutlierConfig {
	return &health.OutlierConfig{
		ConsecutiveFailures: o.ConsecutiveFailures, FailurePercentage: o.FailurePercentage, Window: o.Window,
		MinVolume: o.MinVolume, BaseEjectionTime: o.BaseEjectionTime, MaxEjectionTime: o.MaxEjectionTime,
		MaxEjected: o.MaxEjected,
	}
}

// breakerConfig is that of an upstream's breaker, or of its endpoints', which share its
// rules but not its bounds.
func breakerConfig(b *config.CircuitBreaker, whole bool) *health.BreakerConfig {
	c := &health.BreakerConfig{
		FailurePercentage: b.FailurePercentage, Window: b.Window, MinVolume: b.MinVolume, Open: b.Open,
		TrialConnections: b.TrialConnections,
	}
	if whole {
		c.Connections, c.Pending = b.Connections, b.Pending
	}
	return c
}

func budgetConfig(r *config.Retry) *health.RetryBudgetConfig {
	return &health.RetryBudgetConfig{Ratio: r.Budget, Floor: config.RetryFloor, Window: config.RetryWindow}
}

// prepareSource makes the source of an upstream's endpoints, or keeps the one that it
// has.
func (s *Server) prepareSource(u, old *upstream) (err error) {
	d := u.cfg.Discover
	if d == nil {
		return nil
	}
	if old != nil && old.source != nil && old.cfg.Discover.Same(d) {
		u.source, u.found, u.refused, u.answered, u.stop = old.source, old.found, old.refused, old.answered, old.stop
		return nil
	}
	if old != nil && old.cfg.Discover.SameOrigin(d) {
		u.found = old.found // until it has answered as it is asked now
	}
	log := s.log.With("upstream", u.cfg.Name)
	if f := d.File; f != nil {
		u.source = discovery.NewFile(discovery.FileConfig{Path: string(f.Path), Share: &s.inotify, Log: log})
		return nil
	}
	dns := d.DNS
	cfg := discovery.DNSConfig{
		Name: dns.Name, Type: dns.Type, Port: dns.Port, MinTTL: dns.MinTTL, MaxTTL: dns.MaxTTL, Limiter: s.dnsLimit, Log: log,
	}
	for _, server := range dns.Servers {
		cfg.Servers = append(cfg.Servers, server.Name)
	}
	if u.source, err = discovery.NewDNS(cfg); err != nil {
		return fmt.Errorf("discover: %w", err)
	}
	return nil
}
