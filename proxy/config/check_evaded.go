package config

import (
	"maps"
	"slices"
)

// evaded warns of routes by name that keep some clients out, where others get to the same endpoints by a route without a name, or by the
// listener's upstream: whatever such clients say to the endpoint later, a Host within TLS for instance, no route looks at.
func (k *checker) evaded(c *Config) {
	byName := make(map[string]*Upstream, len(c.Upstreams))
	for _, u := range c.Upstreams {
		byName[u.Name] = u
	}
	for _, ln := range c.Listeners {
		if k.bad[&ln.Routes] {
			continue
		}
		for i := range ln.Routes {
			r := &ln.Routes[i]
			if !r.Match.names() || len(r.Match.Source)+len(r.Match.TLV) == 0 && r.Match.Port == 0 && r.Filter == nil {
				continue
			}
			named := destinationsOf(r.leadsTo(), byName)
			others := destinationsOf(ln.withoutName(), byName)
			for _, at := range slices.Sorted(maps.Keys(others)) {
				if named[at] != "" {
					k.warnAt(k.at(&r.Match, r), "give these clients an upstream with endpoints of their own",
						"clients that this route keeps out get to its endpoints all the same, without that name: a route that names nobody, or upstream, leads to the upstream %s", others[at])
					break
				}
			}
		}
	}
}

// names reports whether the route is for names of servers, and not for any.
func (m *Match) names() bool {
	return len(m.SNI)+len(m.Host) > 0 && !slices.Contains(m.SNI, "*") && !slices.Contains(m.Host, "*")
}

// leadsTo returns the route's upstreams.
func (r *Route) leadsTo() map[string]bool {
	to := map[string]bool{r.Upstream: true}
	for j := range r.Split {
		to[r.Split[j].Upstream] = true
	}
	return to
}

// withoutName returns the upstreams of clients whatever they are named: the listener's, and those of routes without conditions on clients.
func (ln *Listener) withoutName() map[string]bool {
	all := map[string]bool{ln.Upstream: true}
	for i := range ln.Routes {
		if m := &ln.Routes[i].Match; !m.names() && len(m.Source)+len(m.TLV) == 0 && m.Port == 0 {
			maps.Copy(all, ln.Routes[i].leadsTo())
		}
	}
	return all
}

// readsFirst reports whether some of the listener's clients have to say something before they have a route.
func (ln *Listener) readsFirst() bool {
	return ln.TLS == nil && !ln.RequireTLS && !ln.SpeaksPostgres() && slices.ContainsFunc(ln.Routes, func(r Route) bool {
		return len(r.Match.SNI)+len(r.Match.ALPN) > 0 || r.Match.FirstBytes()
	})
}

// speakingFirst are the ports of protocols in which the server speaks first.
var speakingFirst = map[string]string{
	"21": "FTP", "25": "SMTP", "110": "POP3", "119": "NNTP", "143": "IMAP", "587": "SMTP", "2525": "SMTP", "3306": "MySQL", "4190": "ManageSieve", "5900": "VNC",
}

// waitsInVain warns of servers that speak first behind routes by first bytes: their clients say nothing, and are refused.
func (k *checker) waitsInVain(c *Config) {
	byName := make(map[string]*Upstream, len(c.Upstreams))
	for _, u := range c.Upstreams {
		byName[u.Name] = u
	}
	for _, ln := range c.Listeners {
		if k.bad[&ln.Routes] || k.given(&ln.Silence) || !ln.readsFirst() {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(ln.withoutName())) {
			u := byName[name]
			if u == nil {
				continue
			}
			if protocol := u.speaksFirst(); protocol != "" {
				k.warnAt(k.at(&ln.Routes, ln), "write preread_silence: 200ms at the listener; 0s if its clients speak first",
					"clients that wait for the server to speak are refused after %v: routes depend on what a client says first, and the upstream %s seems to speak %s", ln.Timeouts.Preread, u.Name, protocol)
				break
			}
		}
	}
}

// speaksFirst returns the protocol of a server that speaks first, by its port, or by a check that expects an answer to nothing; empty: there is no sign of that.
func (u *Upstream) speaksFirst() string {
	if h := u.HealthCheck; h != nil && h.Expect.Value != "" && h.Send.Value == "" && h.Type == "tcp" {
		return "first, as its check expects"
	}
	for i := range u.Endpoints {
		if a := u.Endpoints[i].Address; a.Network == "tcp" {
			_, port := splitHostPort(a.Name)
			if protocol := speakingFirst[port]; protocol != "" {
				return protocol
			}
		}
	}
	return ""
}
