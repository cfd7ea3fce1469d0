package config

import (
	"maps"
	"slices"
)

// disguised warns of endpoints that serve clients of routes by host and path, and clients of TLS or PostgreSQL as well: one that takes a
// ClientHello or a StartupMessage for a method of HTTP, as lenient servers do, would serve a request behind it that no such route has looked at.
func (k *checker) disguised(c *Config) {
	byName := make(map[string]*Upstream, len(c.Upstreams))
	for _, u := range c.Upstreams {
		byName[u.Name] = u
	}
	for _, ln := range c.Listeners {
		guard := slices.IndexFunc(ln.Routes, func(r Route) bool { return len(r.Match.Host)+len(r.Match.Path) > 0 })
		if guard < 0 || ln.TLS != nil || ln.SpeaksPostgres() || k.bad[&ln.Routes] {
			continue
		}
		served := destinationsOf(ln.gettingTo("http1", guard), byName)
		for _, p := range []string{"tls", "postgres"} { // others are refused where a host or path counts
			if !slices.ContainsFunc(ln.Routes, func(r Route) bool { return slices.Contains(r.Match.spoken(), p) }) {
				continue
			}
			to := destinationsOf(ln.gettingTo(p, 0), byName)
			for _, at := range slices.Sorted(maps.Keys(to)) {
				if served[at] == "" {
					continue
				}
				r := &ln.Routes[guard]
				k.warnAt(k.at(&r.Match, r), "write a route with protocol: ["+p+"] to an upstream with other endpoints",
					"clients of %s get to the upstream %s, as those of HTTP do: an endpoint that takes their first message for a method of HTTP serves requests that this route has not looked at", p, to[at])
				break
			}
		}
	}
}

// gettingTo returns the upstreams that clients of a protocol may get to, but for those of routes by bytes, and of routes for every protocol before
// the one with the index from.
func (ln *Listener) gettingTo(protocol string, from int) map[string]bool {
	names := make(map[string]bool)
	for i := range ln.Routes {
		r := &ln.Routes[i]
		m, spoken := &r.Match, r.Match.spoken()
		if len(m.Bytes) > 0 || len(spoken) == 0 && i < from || len(spoken) > 0 && !slices.Contains(spoken, protocol) {
			continue
		}
		names[r.Upstream] = true
		for j := range r.Split {
			names[r.Split[j].Upstream] = true
		}
		if m.only(protocol) {
			return names
		}
	}
	names[ln.Upstream] = true
	return names
}

// only reports whether every client of a protocol matches.
func (m *Match) only(protocol string) bool {
	return (len(m.Protocol) == 0 || slices.Contains(m.Protocol, protocol)) &&
		len(m.SNI)+len(m.ALPN)+len(m.Source)+len(m.Host)+len(m.Path)+len(m.User)+len(m.Database)+len(m.Bytes)+len(m.TLV) == 0 && m.Port == 0
}

// destinationsOf returns the names of upstreams, with their fallbacks, by the destinations of their endpoints, and by the names themselves.
func destinationsOf(names map[string]bool, byName map[string]*Upstream) map[string]string {
	list := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		for u := byName[name]; u != nil && list["upstream "+u.Name] == ""; {
			list["upstream "+u.Name] = u.Name
			for i := range u.Endpoints {
				if a := u.Endpoints[i].Address; a.Network != "" {
					list[destination(a)] = u.Name
				}
			}
			if u.Fallback == nil {
				break
			}
			u = byName[u.Fallback.Upstream]
		}
	}
	return list
}
