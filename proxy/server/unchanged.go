package server

import (
	"slices"

	"github.com/penstock/penstock/proxy/config"
)

// unchanged is the upstreams of a configuration that stay the same, except for their
// endpoints: these keep their snapshot, and listeners that use them need not be made anew.
type unchanged struct {
	now   map[string]*upstream // those in force
	next  map[string]*config.Upstream
	known map[string]bool
}

func newUnchanged(now map[string]*upstream, cfg *config.Config) *unchanged {
	same := &unchanged{now: now, next: make(map[string]*config.Upstream, len(cfg.Upstreams)), known: make(map[string]bool, len(cfg.Upstreams))}
	for _, u := range cfg.Upstreams {
		same.next[u.Name] = u
	}
	return same
}

// has reports whether the upstream of that name stays: its configuration and the contents of
// its certificates are the same, and likewise for its fallback. (Fallbacks go in no circle,
// which the loader ensures.)
func (same *unchanged) has(name string) bool {
	if lasts, known := same.known[name]; known {
		return lasts
	}
	now, next := same.now[name], same.next[name]
	lasts := now != nil && next != nil && now.cfg.SameButEndpoints(next) && (now.tls == nil || now.tls.Current())
	if lasts && next.Fallback != nil && next.Fallback.Upstream != "" {
		lasts = same.has(next.Fallback.Upstream)
	}
	same.known[name] = lasts
	return lasts
}

// routesUnchanged reports whether a listener has clients sent to upstreams that last, and to no
// others.
func (same *unchanged) routesUnchanged(cfg *config.Listener) bool {
	if cfg.Upstream != "" && !same.has(cfg.Upstream) {
		return false
	}
	for _, name := range slices.Concat(cfg.Mirrors(), cfg.FilteredTo()) {
		if !same.has(name) {
			return false
		}
	}
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		if r.Upstream != "" && !same.has(r.Upstream) {
			return false
		}
		for j := range r.Split {
			if !same.has(r.Split[j].Upstream) {
				return false
			}
		}
	}
	return true
}

// listenerUnchanged reports whether a listener of the next configuration is the same as the
// present one: by its configuration, its upstreams and the contents of its certificates; and
// it was not drained.
func (s *Server) listenerUnchanged(c *change, old *listener, cfg *config.Listener, drained bool) bool {
	if old == nil || old.drained || drained || !old.cfg.Same(cfg) || !c.unchanged.routesUnchanged(cfg) || old.tls != nil && !old.tls.Current() {
		return false
	}
	for _, key := range old.keys {
		if socket := s.binds[key]; socket == nil || socket.listening == nil {
			return false
		}
	}
	return true
}
