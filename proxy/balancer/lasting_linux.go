package balancer

import "github.com/penstock/penstock/proxy/config"

// lasting says of the upstreams of a configuration which of them stay what they are, but
// for their endpoints: these keep their view, and whatever leads to it need not be made
// anew.
type lasting struct {
	now   map[string]*upstream // those in force
	next  map[string]*config.Upstream
	known map[string]bool
}

func newLasting(now map[string]*upstream, cfg *config.Config) *lasting {
	l := &lasting{now: now, next: make(map[string]*config.Upstream, len(cfg.Upstreams)), known: make(map[string]bool, len(cfg.Upstreams))}
	for _, u := range cfg.Upstreams {
		l.next[u.Name] = u
	}
	return l
}

// has reports whether the upstream of that name lasts: its configuration says what it said,
// its certificates are what was read, and so it is with the one that it falls back to.
// (Fallbacks go in no circle, which the loader sees to.)
func (l *lasting) has(name string) bool {
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

// leadTo reports whether a listener has clients sent to upstreams that last, and to no
// others.
func (l *lasting) leadTo(cfg *config.Listener) bool {
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

// stays reports whether a listener of the next configuration is the one that there is: it
// says what that says, leads where that leads, its certificates are what was read, and
// nobody has drained it.
func (s *Server) stays(n *next, old *listener, cfg *config.Listener) bool {
	if old == nil || old.drained || !old.cfg.Same(cfg) || !n.lasting.leadTo(cfg) || old.tls != nil && !old.tls.Current() {
		return false
	}
	for _, key := range old.keys {
		if b := s.binds[key]; b == nil || b.listening == nil {
			return false
		}
	}
	return true
}
