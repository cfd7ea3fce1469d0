package config

import (
	"net/netip"

	"github.com/penstock/penstock/proxy/sockopt"
)

// bindOwners is a bind and its owner.
type bindOwners struct {
	whose string
	at    place
}

// A port maps the addresses of one port number to their owners.
type port struct {
	hosts    map[string]bindOwners
	first    bindOwners // any of the owners
	wild     bindOwners // owner of all addresses of both families
	families [2]family
}

// A family holds the owners of the addresses of IPv4 or of IPv6.
type family struct{ first, wild bindOwners }

// give makes to the owner if there is none.
func (t *bindOwners) give(to bindOwners) {
	if t.whose == "" {
		*t = to
	}
}

// binds finds addresses that the kernel would not bind beside each other.
func (k *checker) binds(c *Config) {
	ports, names := make(map[string]*port), make(map[string]bindOwners)
	if c.Admin != nil {
		k.admin(c.Admin)
		k.bind(ports, names, &c.Admin.Bind, "admin")
	}
	if c.Metrics != nil {
		k.bind(ports, names, &c.Metrics.Bind, "metrics")
	}
	for _, ln := range c.Listeners {
		for i := range ln.Bind {
			k.bind(ports, names, &ln.Bind[i], "listener "+ln.Name)
		}
	}
}

func (k *checker) bind(ports map[string]*port, names map[string]bindOwners, b *Bind, whose string) {
	t := bindOwners{whose, k.at(b, b)}
	var before bindOwners
	switch {
	case b.Systemd != "":
		before = claim(names, b.String(), t)
	case b.Address.Network == "unix":
		before = claim(names, b.Address.Place(), t)
	case b.Address.Network == "":
		return // it could not be read
	default:
		host, number := splitHostPort(b.Address.Name)
		if number == "0" {
			return // the kernel chooses another one each time
		}
		if ports[number] == nil {
			ports[number] = &port{hosts: make(map[string]bindOwners)}
		}
		before = ports[number].claim(host, t)
	}
	if before.whose != "" {
		k.complainAt(t.at, "write another address or port, or leave one out", "%s overlaps with that of %s in %v", b, before.whose, before.at.pos())
	}
}

// claim returns the earlier owner of the name. If there is none, t becomes the owner.
func claim(names map[string]bindOwners, name string, t bindOwners) (before bindOwners) {
	before, ok := names[name]
	if !ok {
		names[name] = t
	}
	return before
}

// claim returns the owner that t, bound to a host, conflicts with. 0.0.0.0 and [::] are each
// all addresses of one family.
func (p *port) claim(host string, t bindOwners) (before bindOwners) {
	defer p.first.give(t)
	addr, err := netip.ParseAddr(host)
	addr = sockopt.Canonical(addr)
	switch {
	case host == "":
		if p.first.whose == "" {
			p.wild = t
		}
		return p.first
	case p.wild.whose != "":
		return p.wild
	case err != nil: // it could not be read
		return bindOwners{}
	}
	f := &p.families[0]
	if addr.Is6() {
		f = &p.families[1]
	}
	defer f.first.give(t)
	switch {
	case addr.IsUnspecified() && f.first.whose != "":
		return f.first
	case addr.IsUnspecified():
		f.wild = t
		return bindOwners{}
	case f.wild.whose != "":
		return f.wild
	}
	return claim(p.hosts, addr.String(), t)
}
