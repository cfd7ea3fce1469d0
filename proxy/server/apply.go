package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/rollback"
)

// errClosing is the error of a change while the process is about to end.
var errClosing = fmt.Errorf("%w: it drains, and nothing is changed any more", rollback.ErrClosed)

// change is a configuration that is being prepared: nothing that runs depends on it yet.
type change struct {
	cfg        *config.Config
	unchanged  *unchanged
	lives      lives // changes by hand under this configuration
	upstreams  map[string]*nextUpstream
	listeners  map[string]*nextListener
	binds      binds
	kept       map[*listenSocket]bool // sockets in force that are kept; nil until computed
	reusePort  []*listenSocket        // reuse-port sockets given up by this change; another process may still hold their address
	successors []*listenSocket        // sockets bound beside the ones in reusePort; they listen once everything is prepared
	own        *ownAddresses          // addresses of the configuration in force; nil until computed
	undo       []func()               // called in reverse order if the preparation fails
	commits    []func()               // changes to parts that stay, run when nothing can fail any more
}

// Apply brings a configuration into force: all of it, or nothing and an error. Parts that are the same in
// the configuration in force are left alone.
func (s *Server) Apply(ctx context.Context, cfg *config.Config) error {
	defer s.keep() // after mu is released
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return errClosing
	}
	return s.apply(ctx, cfg)
}

// apply brings a configuration into force. The server's mu is held.
func (s *Server) apply(ctx context.Context, cfg *config.Config) error {
	began := time.Now()
	c := s.newChange(cfg)
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
	s.noteLives(before, &c.lives)
	if before != nil {
		s.changes = admin.Changes{
			Made: s.changes.Made + 1, PreparedUs: prepared.Sub(began).Microseconds(), SwappedUs: swapped.Sub(prepared).Microseconds(),
		}
	}
	return nil
}

func (s *Server) newChange(cfg *config.Config) *change {
	return &change{
		cfg: cfg, lives: s.livesUnder(cfg), unchanged: newUnchanged(s.upstreams, cfg), upstreams: make(map[string]*nextUpstream, len(cfg.Upstreams)),
		listeners: make(map[string]*nextListener, len(cfg.Listeners)), binds: make(binds, len(s.binds)),
	}
}

// prepare does everything that can fail or takes long.
func (s *Server) prepare(ctx context.Context, c *change) error {
	if err := c.eachUpstream(func(u *config.Upstream) error { return s.prepareUpstream(c, u) }); err != nil {
		return err
	}
	s.awaitNewSources(ctx, c)
	if err := c.eachUpstream(func(u *config.Upstream) error { return s.prepareMembers(c, u) }); err != nil {
		return err
	}
	for _, u := range c.upstreams {
		if f := u.cfg.Fallback; u.now != u.old && f != nil && f.Upstream != "" {
			u.now.snapshot.SetFallback(c.snapshot(f.Upstream))
		}
	}
	var errs []error
	if err := s.prepareLane(c); err != nil {
		return err
	}
	for _, l := range c.cfg.Listeners {
		if err := s.prepareListener(ctx, c, l); err != nil {
			errs = append(errs, fmt.Errorf("listener %s: %w", l.Name, err))
		}
	}
	if err := s.prepareSessionLog(c); err != nil {
		errs = append(errs, err)
	}
	if err := s.prepareTraces(c); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return c.listen()
}

// eachUpstream calls a function for all upstreams of the change, and joins its errors.
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

// A swapStage is how far a swap has come.
type swapStage uint8

const (
	swappedUpstreams   swapStage = iota // clients find the endpoints of the change
	committedListeners                  // the listeners of the change are in force, and the sockets have those before
)

// swapWith calls a function at the stages of the swap.
func (s *Server) swapWith(c *change, at func(swapStage)) {
	s.swapUpstreams(c)
	at(swappedUpstreams)
	changed := s.viewChanges(c)
	s.commitListeners(c)
	at(committedListeners)
	s.swapSockets(c)
	if changed {
		s.refreshView()
	}
	s.rules.Store(&rules{now: s.rules.Load().next})
	for _, u := range c.upstreams {
		if u.now != u.old {
			u.now.snapshot.Enforce()
		}
	}
}

// swapUpstreams has waiting clients find the endpoints of the change. From before that on, until the sockets
// serve by its listeners too, clients have to be admitted by these as well as by those in force.
func (s *Server) swapUpstreams(c *change) {
	next := &rules{next: c.generation()}
	if before := s.rules.Load(); before != nil {
		next.now = before.now
	}
	s.rules.Store(next)
	s.cfg, s.live = c.cfg, c.lives.set
	s.connectRate.Set(float64(c.cfg.Limits.PerSecond), 0)
	most := s.maxConnections(c.cfg)
	s.group.SetMaxConnections(most)
	s.tracked.Set(int64(max(most/holdShare, 1)))
	for _, u := range c.upstreams {
		s.swapUpstream(u)
	}
}

// settle follows the swap: removed parts are released, and new ones are monitored.
func (s *Server) settle(c *change) {
	if most := s.options.MaxConnections; c.cfg.Limits.Connections > int64(most) {
		s.log.Warn("limits.connections is more than RLIMIT_NOFILE allows", "connections", c.cfg.Limits.Connections, "allowed", most)
	}
	s.logLasting()
	s.settleLane(c)
	for _, l := range c.listeners {
		if l.old != nil && l.old != l.listener {
			l.old.close(l.listener)
		}
	}
	var gone []*member
	for _, u := range c.upstreams {
		s.settleUpstream(u)
		if u.update != nil {
			gone = append(gone, u.update.gone...)
		}
	}
	for name, u := range s.upstreams {
		if c.upstreams[name] == nil {
			s.dropUpstream(u)
		}
	}
	s.forget(gone)
	s.reconsider()
	for _, u := range c.upstreams {
		c.lives.ended = append(c.lives.ended, s.endDiscovered(u.now)...)
	}
}

// viewChanges reports whether a change changes the view. It is asked before the listeners are committed.
func (s *Server) viewChanges(c *change) bool {
	if len(c.listeners) != len(s.listeners) {
		return true
	}
	for _, l := range c.listeners {
		if l.listener != l.old {
			return true
		}
	}
	return false
}

func (s *Server) commitListeners(c *change) {
	for _, cfg := range c.cfg.Listeners {
		s.commitListener(cfg.Name, c.listeners[cfg.Name])
	}
}

// swapSockets makes every socket serve the new configuration.
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
			s.serveSocket(key, c.binds[key])
		}
	}
	for _, change := range c.commits {
		change()
	}
	s.clearReusePort(c) // while all sockets are open
	for _, key := range slices.Sorted(maps.Keys(gone)) {
		if successors := c.successorsOf(gone[key]); len(successors) > 0 {
			s.replaceSocket(key, gone[key], successors, c.closedFor(gone[key]))
		} else {
			s.closeSocket(key, gone[key], c.closedFor(gone[key]))
		}
	}
	for _, successor := range c.successors {
		successor.overlapping = nil
	}
	for name, l := range s.listeners {
		if c.listeners[name] == nil {
			delete(s.listeners, name)
			counts := l.listenerCounts // a copy, which does not keep the listener
			s.unnamed[name] = &counts
			l.close(nil)
		}
	}
	maps.DeleteFunc(s.unnamed, func(name string, of *listenerCounts) bool { return s.listeners[name] != nil || !of.busy() })
}

// serveSocket makes a new or existing socket serve its configuration.
func (s *Server) serveSocket(key string, socket *listenSocket) {
	if s.binds[key] == socket {
		if socket.adapts {
			s.adapt(socket)
		}
		socket.listening.Replace(socket.service)
		return
	}
	listening, err := s.group.Listen(worker.Listener{
		Name: socket.owner, FD: socket.fd, TCP: socket.listener.TCP(), Backlog: 0, // a later change may make it longer
		Local: localOf(socket), Service: socket.service, Of: socket,
	})
	if err != nil { // everything is about to end
		s.logUnclosed(socket, socket.listener.Close())
		return
	}
	s.binds[key], socket.listening = socket, listening
	s.rejoin(key, socket)
	s.log.Info("listening", "listener", socket.owner, "address", socket.listener.Addr())
	s.logOpaque(socket)
	s.adaptCongestion(socket)
}

// localOf returns the address that all clients of a socket have connected to; invalid if there
// are several, as where TPROXY brings them.
func localOf(socket *listenSocket) netip.AddrPort {
	if socket.cfg.Transparent {
		return netip.AddrPort{}
	}
	return socket.listener.Local()
}
