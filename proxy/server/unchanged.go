package server

import "github.com/penstock/penstock/proxy/config"

// unchanged is the upstreams of a configuration that stay the same, except for their
// endpoints: these keep their snapshot, and listeners that use them need not be made anew.
type unchanged struct {
	now   map[string]*upstream // those in force
	next  map[string]*config.Upstream
	known map[string]bool
}

func newUnchanged(now map[string]*upstream, cfg *config.Config) *unchanged {
	l := &unchanged{now: now, next: make(map[string]*config.Upstream, len(cfg.Upstreams)), known: make(map[string]bool, len(cfg.Upstreams))}
	for _, u := range cfg.Upstreams {
		l.next[u.Name] = u
	}
	return l
}

// has reports whether the upstream of that name stays: its configuration and the contents of
// its certificates are the same, and likewise for its fallback. (Fallbacks go in no circle,
// which the loader ensures.)
func (l *unchanged) has(name string) bool {
	if lasts, known := l.known[name]; known {
		return lasts
	}
	now, next := l.now[name], l.next[name]
	lasts := now != nil && next != nil && now.cfg.SameButEndpoints(next) && (now.tls == nil || now.tls.Current())
	if lasts && next.Fallback != nil && next.Fallback.Upstream != "" {
		lasts = l.has(next.Fallback.Upstream)
	}
	l.known[name] = lasts
	return lasts
}

// routesUnchanged reports whether a listener has clients sent to upstreams that last, and to no
// others.
func (l *unchanged) routesUnchanged(cfg *config.Listener) bool {
	if cfg.Upstream != "" && !l.has(cfg.Upstream) {
		return false
	}
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		if r.Upstream != "" && !l.has(r.Upstream) {
			return false
		}
		for j := range r.Split {
			if !l.has(r.Split[j].Upstream) {
				return false
			}
		}
	}
	return true
}

// listenerUnchanged reports whether a listener of the next configuration is the same as the
// present one: by its configuration, its upstreams and the contents of its certificates; and
// it was not drained.
func (s *Server) listenerUnchanged(n *change, old *listener, cfg *config.Listener) bool {
	if old == nil || old.drained || !old.cfg.Same(cfg) || !n.unchanged.routesUnchanged(cfg) || old.tls != nil && !old.tls.Current() {
		return false
	}
	for _, key := range old.keys {
		if b := s.binds[key]; b == nil || b.listening == nil {
			return false
		}
	}
	return true
}
