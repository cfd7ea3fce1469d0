package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/rollback"
)

var errClosing = fmt.Errorf("%w: the process is draining and takes no more changes", rollback.ErrClosed)

// change is a configuration that is being prepared: nothing that runs depends on it yet.
type change struct {
	cfg        *config.Config
	next       map[string]*config.Upstream
	lasts      map[string]bool // results of [registry.lasts], by upstream
	lives      lives           // changes by hand under this configuration
	sessionLog *nextSessionLog // nil: unchanged
	upstreams  map[string]*nextUpstream
	listeners  map[string]*nextListener
	binds      binds
	kept       map[*listenSocket]bool // sockets in force that are kept; nil until computed
	reusePort  []*listenSocket        // reuse-port sockets that this change gives up; another process may still hold their address
	successors []*listenSocket        // sockets bound beside the sockets in reusePort; they listen once everything is prepared
	undo       []func()               // called in reverse order if the preparation fails
	commits    []func()               // changes to parts that stay, run when nothing can fail any more
}

// Apply brings a configuration into force: all of it, or nothing and an error. Parts that do not change are left alone.
func (s *Server) Apply(ctx context.Context, cfg *config.Config) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mu.Lock()
	before := s.cfg
	s.mu.Unlock()
	log := openNext(cfg, before)
	defer log.discard()
	askPaths(cfg)
	s.sockets.findPaths()
	defer s.liveChanges.keep() // after mu is released
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return errClosing
	}
	return s.apply(ctx, cfg, log)
}

// apply brings a configuration into force. The server's mu is held.
func (s *Server) apply(ctx context.Context, cfg *config.Config, log *nextSessionLog) error {
	began := time.Now()
	c := s.newChange(cfg)
	c.sessionLog = log
	if err := s.prepare(ctx, c); err != nil {
		for i := len(c.undo) - 1; i >= 0; i-- {
			c.undo[i]()
		}
		return err
	}
	prepared, before := time.Now(), s.cfg
	s.swap(c)
	swapped := time.Now()
	s.settle(c)
	s.liveChanges.noteLives(before, &c.lives)
	if before != nil {
		s.changes = admin.Changes{
			Made: s.changes.Made + 1, PreparedUs: prepared.Sub(began).Microseconds(), SwappedUs: swapped.Sub(prepared).Microseconds(),
		}
	}
	return nil
}

func (s *Server) newChange(cfg *config.Config) *change {
	n := len(cfg.Upstreams)
	c := &change{
		cfg: cfg, lives: s.liveChanges.livesUnder(cfg), next: make(map[string]*config.Upstream, n), lasts: make(map[string]bool, n), upstreams: make(map[string]*nextUpstream, n),
		listeners: make(map[string]*nextListener, len(cfg.Listeners)), binds: make(binds, len(s.binds)),
	}
	c.lives.denied = s.denials.without(cfg)
	for _, u := range cfg.Upstreams {
		c.next[u.Name] = u
	}
	return c
}

// prepare does everything that can fail or takes long.
func (s *Server) prepare(ctx context.Context, c *change) error {
	if err := c.eachUpstream(func(u *config.Upstream) error { return s.upstreamManager.prepare(c, u) }); err != nil {
		return err
	}
	s.upstreamManager.awaitNewSources(ctx, c)
	if err := c.eachUpstream(func(u *config.Upstream) error { return s.upstreamManager.prepareMembers(c, u) }); err != nil {
		return err
	}
	for _, u := range c.upstreams {
		if f := u.cfg.Fallback; u.now != u.old && f != nil && f.Upstream != "" {
			u.now.snapshot.SetFallback(c.snapshot(f.Upstream))
		}
	}
	var errs []error
	lane, undo, err := s.lanes.Prepare(c.cfg)
	if err != nil {
		return err
	}
	c.commits, c.undo = append(c.commits, lane), append(c.undo, undo)
	for _, l := range c.cfg.Listeners {
		if err := s.listenerManager.prepare(ctx, c, l); err != nil {
			errs = append(errs, fmt.Errorf("listener %s: %w", l.Name, err))
		}
	}
	if err := s.sessionLog.prepareSessionLog(c, c.sessionLog); err != nil {
		errs = append(errs, err)
	}
	if err := s.traceExport.prepareTraces(c); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return c.listen()
}

func (c *change) eachUpstream(f func(*config.Upstream) error) error {
	var errs []error
	for _, u := range c.cfg.Upstreams {
		if err := f(u); err != nil {
			errs = append(errs, fmt.Errorf("upstream %s: %w", u.Name, err))
		}
	}
	return errors.Join(errs...)
}

// swap brings the prepared change into force: it serves new clients from then on. swap cannot fail.
func (s *Server) swap(c *change) { s.swapWith(c, func(swapStage) {}) }

type swapStage uint8

const (
	swappedUpstreams   swapStage = iota // clients find the endpoints of the change
	committedListeners                  // the listeners of the change are in force; the sockets still serve by the previous ones
)

// swapWith calls a function at the stages of the swap.
func (s *Server) swapWith(c *change, at func(swapStage)) {
	s.swapUpstreams(c)
	at(swappedUpstreams)
	for _, cfg := range c.cfg.Listeners {
		s.listenerManager.commit(cfg.Name, c.listeners[cfg.Name])
	}
	at(committedListeners)
	s.swapSockets(c)
	s.swapLimits(c)
	s.sockets.refreshView()
	s.sockets.rules.Store(&rules{now: s.sockets.rules.Load().next})
	for _, u := range c.upstreams {
		if u.now != u.old {
			u.now.snapshot.Enforce()
		}
	}
}

// swapUpstreams lets waiting clients find the endpoints of the change. From here until the sockets serve by the new
// listeners, a client must be admitted by both the new and the present listener.
func (s *Server) swapUpstreams(c *change) {
	next := &rules{next: c.generation()}
	if before := s.sockets.rules.Load(); before != nil {
		next.now = before.now
	}
	s.sockets.rules.Store(next)
	s.cfg, s.liveChanges.live = c.cfg, c.lives.set
	s.upstreamManager.tracked.Set(int64(max(s.options.MostConnections(c.cfg)/holdShare, 1)))
	for _, u := range c.upstreams {
		s.upstreamManager.swap(u)
	}
}

// settle follows the swap: removed parts are released, and new ones are monitored.
func (s *Server) settle(c *change) {
	if most := s.options.MaxConnections; c.cfg.Limits.Connections > int64(most) {
		s.log.Warn("limits.connections is more than RLIMIT_NOFILE allows", "connections", c.cfg.Limits.Connections, "allowed", most)
	}
	s.placement.logLasting(s.log, c.cfg, s.lanes)
	s.lanes.Settle(c.laneChanges())
	recount := false
	for _, l := range c.listeners {
		recount = recount || limitsSources(l.cfg) && (l.old == nil || !limitsSources(l.old.cfg))
		if l.old != nil && l.old != l.listener {
			l.old.close(l.listener)
		}
	}
	if recount {
		s.group.Recount()
	}
	var gone []*member
	for _, u := range c.upstreams {
		s.upstreamManager.settle(u)
		if u.update != nil {
			gone = append(gone, u.update.gone...)
		}
	}
	for name, u := range s.upstreams {
		if c.upstreams[name] == nil {
			s.upstreamManager.drop(u)
		}
	}
	s.lanes.Found()
	s.forget(gone)
	s.upstreamManager.reconsider()
	for _, u := range c.upstreams {
		c.lives.ended = append(c.lives.ended, s.liveChanges.endDiscovered(u.now)...)
	}
}

func (s *Server) swapSockets(c *change) {
	gone := maps.Clone(s.binds)
	for _, cfg := range c.cfg.Listeners {
		l := c.listeners[cfg.Name]
		for _, key := range l.keys {
			socket := c.binds[key]
			socket.adapts = socket.cfg == nil || optionsOf(socket.cfg) != optionsOf(l.cfg)
			socket.owner, socket.cfg, socket.service = cfg.Name, l.cfg, l.service
			socket.state.Store(l.state)
			if s.binds[key] == socket {
				delete(gone, key)
			}
		}
	}
	for _, cfg := range c.cfg.Listeners {
		for _, key := range c.listeners[cfg.Name].keys {
			s.sockets.serveSocket(key, c.binds[key])
		}
	}
	for _, change := range c.commits {
		change()
	}
	s.sockets.clearReusePort(c) // while all sockets are open
	for _, key := range slices.Sorted(maps.Keys(gone)) {
		successors := c.successorsOf(gone[key])
		if now := c.binds[key]; now != nil && !now.listener.TCP() { // the old socket's path was lost
			successors = []*listenSocket{now}
		}
		if len(successors) > 0 {
			s.sockets.replaceSocket(key, gone[key], successors, c.closedFor(gone[key]))
		} else {
			s.sockets.closeSocket(key, gone[key], c.closedFor(gone[key]))
		}
	}
	for _, successor := range c.successors {
		successor.overlapping = nil
	}
	for name, l := range s.listeners {
		if c.listeners[name] == nil {
			delete(s.listeners, name)
			counts := l.listenerCounts // a copy, so that the listener can be collected
			s.removed.listeners[name] = &counts
			l.close(nil)
		}
	}
	maps.DeleteFunc(s.removed.listeners, func(name string, of *listenerCounts) bool { return s.listeners[name] != nil || !of.busy() })
}

// swapLimits sets the limits for new clients, and wakes the sockets that wait for room.
func (s *Server) swapLimits(c *change) {
	for _, l := range c.listeners {
		l.listener.limit()
	}
	s.connectRate.Set(float64(c.cfg.Limits.PerSecond))
	s.group.SetMaxConnections(s.options.MostConnections(c.cfg))
}

// lasts reports whether the named upstream keeps its configuration (except for its endpoints), the contents of its
// certificates, and its fallback. Such an upstream keeps its snapshot, and listeners that use it need not be made again.
// The loader ensures that fallbacks form no circle.
func (r *registry) lasts(c *change, name string) bool {
	if lasts, known := c.lasts[name]; known {
		return lasts
	}
	now, next := r.upstreams[name], c.next[name]
	lasts := now != nil && next != nil && now.cfg.SameButEndpoints(next) && (now.tls == nil || now.tls.Current())
	if lasts && next.Fallback != nil && next.Fallback.Upstream != "" {
		lasts = r.lasts(c, next.Fallback.Upstream)
	}
	c.lasts[name] = lasts
	return lasts
}

// routesUnchanged reports whether all upstreams of a listener last.
func (r *registry) routesUnchanged(c *change, cfg *config.Listener) bool {
	return !slices.ContainsFunc(destinations(cfg), func(name string) bool { return !r.lasts(c, name) })
}

// listenerUnchanged reports whether the listener old can stay: the next configuration changes neither its keys nor
// its upstreams, certificates and changes by hand. A drained listener cannot stay; drained says that the next one is
// drained.
func (lm *listenerManager) listenerUnchanged(c *change, old *listener, cfg *config.Listener, drained bool) bool {
	if old == nil || old.drained || drained || !old.cfg.Same(cfg) || !lm.routesUnchanged(c, cfg) || old.tls != nil && !old.tls.Current() ||
		c.lives.touchAny("", cfg.Name) {
		return false
	}
	for _, key := range old.keys {
		if socket := lm.binds[key]; socket == nil || socket.listening == nil || socket.lost.Load() {
			return false
		}
	}
	return true
}
