package config

import "net/netip"

// loops complains of listeners that send every client to an endpoint where they listen
// themselves: it would take one to use up all connections. What goes in a circle by way of
// others, or comes to by discovery, is not found.
func (k *checker) loops(c *Config) {
	upstreams := make(map[string]*Upstream, len(c.Upstreams))
	for _, u := range c.Upstreams {
		upstreams[u.Name] = u
	}
	known := make(map[*Upstream]targets)
	for _, ln := range c.Listeners {
		u := upstreams[ln.Upstream]
		if u == nil || len(ln.Routes) > 0 {
			continue
		}
		if known[u] == nil {
			known[u] = targetsOf(u)
		}
		for _, b := range ln.Bind {
			at := arrival(b.Address)
			if to, ok := known[u][at]; ok && at != "" {
				k.complainAt(k.at(&ln.Upstream, ln), "write another upstream, or another bind", "clients would go round in a circle: %s is an endpoint of %s, and an address of this listener", to, u.Name)
			}
		}
	}
}

// targets are an upstream's endpoints, by which arrival has a connection to them.
type targets map[string]Address

func targetsOf(u *Upstream) targets {
	t := make(targets, len(u.Endpoints))
	for i := range u.Endpoints {
		to := u.Endpoints[i].Address
		t[arrival(to)] = to
		if to.Network != "tcp" { // a unix socket's, or it could not be read
			continue
		}
		host, port := splitHostPort(to.Name)
		if addr, err := netip.ParseAddr(host); host == "localhost" || err == nil && addr.Unmap().IsLoopback() {
			t[arrival(Address{Network: "tcp", Name: ":" + port})] = to
		}
	}
	return t
}

// arrival is the same for the same address of a socket, and for all forms of every address;
// "" if that is not known before.
func arrival(a Address) string {
	switch a.Network {
	case "unix":
		return socketKey(a)
	case "": // it is systemd's, or could not be read
		return ""
	}
	host, port := splitHostPort(a.Name)
	if port == "0" {
		return ""
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if host = addr.Unmap().String(); addr.Unmap().IsUnspecified() {
			host = ""
		}
	}
	return host + " " + port
}
