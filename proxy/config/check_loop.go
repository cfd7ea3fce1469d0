package config

import (
	"net/netip"
	"slices"
)

// loops complains of listeners that send every client to an endpoint where they listen
// themselves: it would take one to use up all connections. What goes in a circle by way of
// others, or comes to by discovery, is not found.
func (k *checker) loops(c *Config) {
	for _, ln := range c.Listeners {
		if len(ln.Routes) > 0 {
			continue
		}
		for _, u := range c.Upstreams {
			if u.Name != ln.Upstream {
				continue
			}
			for i := range u.Endpoints {
				if to := u.Endpoints[i].Address; slices.ContainsFunc(ln.Bind, func(b Bind) bool { return takes(b.Address, to) }) {
					k.complainAt(k.at(&ln.Upstream, ln), "write another upstream, or another bind", "clients would go round in a circle: %s is an endpoint of %s, and an address of this listener", to, u.Name)
				}
			}
		}
	}
}

// takes reports whether a connection to an address arrives where somebody listens.
func takes(bind, to Address) bool {
	if bind.Network != to.Network || bind.Network != "tcp" {
		return bind.Network == "unix" && to.Network == "unix" && socketKey(bind) == socketKey(to)
	}
	host, port := splitHostPort(bind.Name)
	toHost, toPort := splitHostPort(to.Name)
	if port != toPort || port == "0" {
		return false
	}
	at, err := netip.ParseAddr(host)
	there, notAddr := netip.ParseAddr(toHost)
	everywhere := host == "" || err == nil && at.IsUnspecified()
	here := toHost == "localhost" || notAddr == nil && there.Unmap().IsLoopback()
	return everywhere && here || err == nil && notAddr == nil && at.Unmap() == there.Unmap()
}
