package server

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
	"weak"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/clientkey"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lanes"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/sockopt"
)

// The upstreamManager brings upstreams and their endpoints into force, watches them, and takes them out of service. Fields are guarded by the
// server's mu unless they say otherwise.
type upstreamManager struct {
	*core
	*drains
	*liveChanges
	scheduler *health.Scheduler
	checker   *health.Checker
	dnsLimit  *discovery.QueryLimiter
	inotify   discovery.Inotify // for files that change; shared by all upstreams
	tracked   router.Places     // counts clients that no endpoint can serve
	lanes     *lanes.Lanes

	lastAnswers   lastAnswers // of discovery
	mostUpstreams int         // the most upstreams there were when an answer was kept

	unresolved atomic.Pointer[map[string]error] // why endpoints' names without a check did not resolve the last time; needs no lock
	down       *backlog[*router.Endpoint]       // found unhealthy; drainDown treats their sessions
	late       *backlog[lateSession]            // for drainLate
}

// An upstream is an upstream of the configuration, for as long as the configuration names it.
// Everything is guarded by the server's mu.
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
	leaving  []*member          // removed members that had sessions at the last look
	watched  []health.Watched   // the members in order, as each round of answers sees them

	source   discovery.Source // nil: its endpoints are in the file
	found    []discovery.Endpoint
	refused  []string                              // why some of found are not used, see [ownAddresses.fit]
	answered bool                                  // the source has answered
	first    *atomic.Pointer[[]discovery.Endpoint] // the first answer, which a waiting change reads under mu; nil: none yet
	stop     context.CancelFunc

	congestion *sockopt.Congestion // of the connections to endpoints; nil: the system's
}

type nextUpstream struct {
	cfg    *config.Upstream
	now    *upstream       // old, if it lasts
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

// prepare makes the parts that an upstream lacks under the next configuration, except for its
// members.
func (um *upstreamManager) prepare(c *change, cfg *config.Upstream) (err error) {
	old := um.upstreams[cfg.Name]
	next := &nextUpstream{cfg: cfg, now: old, old: old}
	c.upstreams[cfg.Name] = next
	if !um.lasts(c, cfg.Name) {
		next.now, err = um.make(c, old, cfg)
	}
	return err
}

// prepareMembers makes the members of an upstream under the next configuration, if they may differ.
func (um *upstreamManager) prepareMembers(c *change, cfg *config.Upstream) (err error) {
	next := c.upstreams[cfg.Name]
	old := next.old
	if next.now == old && (cfg.Discover != nil || old.cfg.SameEndpoints(cfg)) && !c.lives.touchAny(cfg.Name, "") {
		return nil
	}
	fit, _ := um.circles.fit(cfg, next.now.found)
	wanted := c.lives.set.edit(cfg, specsOf(cfg, fit))
	if next.update, err = um.newEndpointUpdate(next.now, old, cfg, wanted); old != nil {
		c.undo = append(c.undo, func() { next.update.abandon(old) })
	}
	return err
}

// make makes an upstream without members, which keeps the health and statistics of the old one.
func (um *upstreamManager) make(c *change, old *upstream, cfg *config.Upstream) (*upstream, error) {
	u := &upstream{cfg: cfg}
	if old != nil {
		u.router, u.stats, u.budget = old.router, old.stats, old.budget
		u.breaker, u.outlier, u.answers, u.congestion = old.breaker, old.outlier, old.answers, old.congestion
	} else {
		um.removed.pass(u)
	}
	if u.router == nil {
		u.router, u.stats = router.NewUpstream(cfg.Name, um.down.add), tlsterm.NewStats()
		u.router.HoldUnder(&um.tracked)
		u.router.SetPanic(health.NewPanic(um.scheduler, "upstream "+cfg.Name))
	}
	if err := um.prepareClient(c, u); err != nil {
		return nil, err
	}
	um.prepareMonitors(u)
	if err := um.prepareSource(u, old); err != nil {
		return nil, err
	}
	if name := u.cfg.Socket.Congestion; name != u.congestion.Name() {
		u.congestion = sockopt.NewCongestion(name)
		c.commits = append(c.commits, func() { um.logCongestion(u) })
	}
	u.snapshot = router.NewSnapshot(u.router, u.snapshotConfig())
	return u, nil
}

func (um *upstreamManager) prepareClient(c *change, u *upstream) (err error) {
	t := u.cfg.TLS
	if t == nil {
		return nil
	}
	cfg := &tlsterm.ClientConfig{CA: string(t.CA), SNI: t.SNI, Files: um.files, Limit: um.tls, Stats: u.stats}
	if t.Cert != "" {
		cfg.Pair = tlsterm.Pair{Cert: string(t.Cert), Key: string(t.Key)}
	}
	if u.tls, err = tlsterm.NewClient(cfg); err == nil {
		c.undo = append(c.undo, u.tls.Close)
	}
	return err
}

// prepareMonitors makes the breaker, the outlier detection and the like that are new to an upstream; swap changes the others.
func (um *upstreamManager) prepareMonitors(u *upstream) {
	subject := "upstream " + u.cfg.Name
	switch {
	case u.cfg.CircuitBreaker == nil:
		u.breaker = nil
	case u.breaker == nil:
		u.breaker = health.NewBreaker(um.scheduler, subject, nil, breakerConfig(u.cfg.CircuitBreaker, true))
	}
	switch {
	case u.cfg.OutlierDetection == nil:
		u.outlier = nil
	case u.outlier == nil:
		u.outlier = health.NewOutlierDetector(um.scheduler, outlierConfig(u.cfg.OutlierDetection))
	}
	if u.answers == nil {
		u.answers = health.NewUnanswered(um.ended, um.watches.Go)
	}
	if u.budget == nil {
		u.budget = health.NewRetryBudget(budgetConfig(&u.cfg.Retry))
	}
}

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

// hashKey returns the property of a client that an upstream's policy hashes; zero: none.
func hashKey(c *config.Upstream) clientkey.Key {
	key, _ := clientkey.Parse(c.BalanceOn) // the loader has checked it
	return key
}

// newSet makes the set of an upstream's members. It follows the earlier set, if any.
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

func setConfig(upstream *config.Upstream) *lb.Config {
	policy, _ := lb.ParsePolicy(upstream.Balance) // the loader has checked it
	cfg := &lb.Config{Policy: policy, PanicBelow: upstream.PanicBelow, SlowStart: upstream.SlowStart, BackupWhenFull: upstream.BackupWhen == "full"}
	if z := upstream.ZoneAware; z != nil {
		cfg.Zone, cfg.SpillBelow = z.Local, z.SpillBelow
	}
	return cfg
}

func (um *upstreamManager) swap(next *nextUpstream) {
	u := next.now
	u.cfg = next.cfg
	if u != next.old {
		um.upstreams[u.cfg.Name] = u
		if b := u.cfg.CircuitBreaker; b != nil {
			u.breaker.Configure(breakerConfig(b, true))
		}
		if o := u.cfg.OutlierDetection; o != nil {
			u.outlier.Configure(outlierConfig(o))
		}
		u.budget.Configure(budgetConfig(&u.cfg.Retry))
		if next.old != nil {
			u.leaving = next.old.leaving
		} else {
			um.removed.restore(u)
		}
	}
	if next.update != nil {
		u.use(next.update)
	}
}

func (um *upstreamManager) settle(next *nextUpstream) {
	if old := next.old; old != nil && old != next.now {
		if old.tls != nil {
			old.tls.Close()
		}
		if next.now.source != old.source && old.stop != nil {
			old.stop()
		}
	}
	if next.update != nil {
		um.settleEndpointUpdate(next.now, next.update)
	}
	um.startDiscovery(next.now)
}

// drop ends an upstream that the configuration does not name any more. Clients that came earlier may still be on their way
// and use its last set; its memory is freed when they have left.
func (um *upstreamManager) drop(u *upstream) {
	um.keepAnswer(u)
	delete(um.upstreams, u.cfg.Name)
	u.close()
	for _, m := range u.members {
		um.dropMember(u, m)
	}
	um.removed.add(u)
	u.router.AskAgain() // waiting clients ask again: their listener may use another upstream by now
	if set := u.snapshot.Set(); set != nil {
		kept := weak.Make(set)
		um.runAfter(u.cfg.DrainTimeout+time.Minute, func() {
			if set := kept.Value(); set != nil {
				set.Detach()
			}
		})
	}
}

func outlierConfig(o *config.OutlierDetection) *health.OutlierConfig {
	return &health.OutlierConfig{
		ConsecutiveFailures: o.ConsecutiveFailures, FailurePercentage: o.FailurePercentage, Window: o.Window,
		MinVolume: o.MinVolume, BaseEjectionTime: o.BaseEjectionTime, MaxEjectionTime: o.MaxEjectionTime,
		MaxEjected: o.MaxEjected,
	}
}

// breakerConfig configures the breaker of an upstream (whole) or of an endpoint, which has the same rules without the
// upstream's bounds.
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

func parseEndpoints(name string, text []byte) (found []discovery.Endpoint, err error) {
	list, err := config.ParseEndpoints(name, text, discovery.MaxEndpoints)
	for i := range list {
		found = append(found, specOf(&list[i]).Endpoint)
	}
	return found, err
}

// prepareSource makes the source of an upstream's endpoints, or keeps the old one.
func (um *upstreamManager) prepareSource(u, old *upstream) (err error) {
	d := u.cfg.Discover
	if old != nil {
		um.keepAnswer(old)
	}
	if d == nil {
		return nil
	}
	if old != nil && old.source != nil && old.cfg.Discover.Same(d) {
		u.source, u.found, u.refused, u.answered, u.stop = old.source, old.found, old.refused, old.answered, old.stop
		return nil
	}
	known, former := um.lastAnswers.last(u.cfg)
	u.found = known // until the source has answered
	log := um.log.With("upstream", u.cfg.Name)
	if f := d.File; f != nil {
		cfg := discovery.FileConfig{Path: string(f.Path), Parse: parseEndpoints, Known: known, Share: &um.inotify, Log: log}
		if former != nil {
			cfg.KnownSince = former.Status().Changed
		}
		u.source = discovery.NewFile(cfg)
		return nil
	}
	dns := d.DNS
	cfg := discovery.DNSConfig{
		Name: dns.Name, Type: dns.Type, Port: dns.Port, MinTTL: dns.MinTTL, MaxTTL: dns.MaxTTL, Known: known, Limiter: um.dnsLimit, Log: log,
	}
	cfg.Former, _ = former.(*discovery.DNS)
	for _, server := range dns.Servers {
		cfg.Servers = append(cfg.Servers, server.Name)
	}
	if u.source, err = discovery.NewDNS(cfg); err != nil {
		return fmt.Errorf("discover: %w", err)
	}
	return nil
}
