package balancer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/core"
)

// errClosing is the error of a change while the process is about to end.
var errClosing = errors.New("the process is draining: nothing is changed any more")

// next is a configuration that is being prepared: nothing of what runs depends on it
// yet.
type next struct {
	cfg       *config.Config
	upstreams map[string]*nextUpstream
	listeners map[string]*nextListener
	binds     map[string]*bound
	undo      []func() // what was made for it
	then      []func() // what is changed of what stays, once nothing can fail
}

// Apply brings a configuration into force: all of it, or nothing and an error.
func (s *Server) Apply(ctx context.Context, cfg *config.Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return errClosing
	}
	began := time.Now()
	n := &next{
		cfg: cfg, upstreams: make(map[string]*nextUpstream), listeners: make(map[string]*nextListener),
		binds: make(map[string]*bound),
	}
	if err := s.prepare(ctx, n); err != nil {
		for i := len(n.undo) - 1; i >= 0; i-- {
			n.undo[i]()
		}
		return err
	}
	prepared := time.Now()
	if first := s.commit(n); !first {
		s.changes = admin.Changes{
			Made: s.changes.Made + 1, PreparedUs: prepared.Sub(began).Microseconds(), SwappedUs: time.Since(prepared).Microseconds(),
		}
	}
	return nil
}

// prepare makes everything that can fail.
func (s *Server) prepare(ctx context.Context, n *next) error {
	var errs []error
	for _, u := range n.cfg.Upstreams {
		if err := s.prepareUpstream(n, u); err != nil {
			errs = append(errs, fmt.Errorf("upstream %s: %w", u.Name, err))
		}
	}
	for _, u := range n.upstreams {
		if f := u.cfg.Fallback; f != nil && f.Upstream != "" && n.upstreams[f.Upstream] != nil {
			u.view.SetFallback(n.upstreams[f.Upstream].view)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, l := range n.cfg.Listeners {
		if err := s.prepareListener(ctx, n, l); err != nil {
			errs = append(errs, fmt.Errorf("listener %s: %w", l.Name, err))
		}
	}
	return errors.Join(errs...)
}

// commit brings what was prepared into force, and returns whether it is the first. Nothing
// of it fails.
func (s *Server) commit(n *next) (first bool) {
	first = s.cfg == nil
	s.cfg = n.cfg
	s.process.Set(float64(n.cfg.Limits.PerSecond), 0)
	s.group.SetMaxConnections(s.mostConnections(n.cfg))
	if most := s.options.MaxConnections; n.cfg.Limits.Connections > int64(most) {
		s.log.Warn("limits.connections is more than RLIMIT_NOFILE allows", "connections", n.cfg.Limits.Connections, "allowed", most)
	}
	for _, u := range n.upstreams {
		s.commitUpstream(u)
	}
	s.swapListeners(n)
	for name, u := range s.upstreams {
		if n.upstreams[name] == nil {
			s.dropUpstream(u)
		}
	}
	for _, u := range n.upstreams {
		s.startDiscovery(u.upstream)
	}
	s.look()
	return first
}

// swapListeners has every socket serve by the new configuration.
func (s *Server) swapListeners(n *next) {
	for name, l := range n.listeners {
		s.commitListener(name, l)
		for _, key := range l.keys {
			b := n.binds[key]
			b.adapts = b.cfg == nil || optionsOf(b.cfg) != optionsOf(l.cfg)
			b.owner, b.cfg, b.service = name, l.cfg, l.service
			b.door.Store(l.door)
		}
	}
	for key, b := range n.binds {
		if s.binds[key] == b {
			if b.adapts {
				s.adapt(b)
			}
			b.listening.Replace(b.service)
			continue
		}
		s.binds[key] = b
		listening, err := s.group.Listen(core.Listener{
			Name: b.owner, FD: b.fd, TCP: b.listener.TCP(), Backlog: b.listener.Backlog(), Service: b.service, Of: b,
		})
		if err != nil { // everything is about to end
			s.tellUnclosed(b, b.listener.Close())
			delete(s.binds, key)
			continue
		}
		b.listening = listening
		s.log.Info("listening", "listener", b.owner, "address", b.listener.Addr())
		s.tellOpaque(b)
	}
	for _, change := range n.then {
		change()
	}
	for key, b := range s.binds {
		if n.binds[key] == nil {
			s.closeBound(key, b)
		}
	}
	for name, l := range s.listeners {
		if n.listeners[name] == nil {
			delete(s.listeners, name)
			l.close()
		}
	}
}
