package config

import (
	"net/netip"
	"path/filepath"
)

// A taken is a bind and whose it is.
type taken struct {
	whose string
	at    place
}

// A port is who is bound to which addresses of it.
type port struct {
	hosts    map[string]taken
	first    taken // any of them
	wild     taken // who is bound to all addresses of both families
	families [2]family
}

// A family is who is bound to which addresses of IPv4 or of IPv6.
type family struct{ first, wild taken }

// give gives it to another if it is nobody's.
func (t *taken) give(to taken) {
	if t.whose == "" {
		*t = to
	}
}

// binds finds those that the kernel would not let stand beside each other.
func (k *checker) binds(c *Config) {
	ports, names := make(map[string]*port), make(map[string]taken)
	if c.Admin != nil {
		k.private(&c.Admin.Bind)
		k.bind(ports, names, &c.Admin.Bind, "admin")
	}
	for _, ln := range c.Listeners {
		for i := range ln.Bind {
			k.bind(ports, names, &ln.Bind[i], "listener "+ln.Name)
		}
	}
}

// private complains of an address for the admin API that is open to others.
func (k *checker) private(b *Bind) {
	switch {
	case b.Systemd != "":
		k.complainAt(k.at(b, b), "write unix:/path", "the admin API does not take a socket of systemd")
	case b.Address.Network == "": // it could not be read
	case b.Address.Abstract():
		k.complainAt(k.at(b, b), "write unix:/path", "an abstract socket is open to everybody on this machine")
	case b.Address.Private() != nil:
		k.complainAt(k.at(b, b), "write unix:/path or 127.0.0.1:PORT", "%s is open to other machines", b)
	}
}

func (k *checker) bind(ports map[string]*port, names map[string]taken, b *Bind, whose string) {
	t := taken{whose, k.at(b, b)}
	var before taken
	switch {
	case b.Systemd != "":
		before = claim(names, b.String(), t)
	case b.Address.Network == "unix":
		before = claim(names, socketKey(b.Address), t)
	case b.Address.Network == "":
		return // it could not be read
	default:
		host, number := splitHostPort(b.Address.Name)
		if number == "0" {
			return // the kernel chooses another one each time
		}
		if ports[number] == nil {
			ports[number] = &port{hosts: make(map[string]taken)}
		}
		before = ports[number].claim(host, t)
	}
	if before.whose != "" {
		k.complainAt(t.at, "write another address or port, or leave one out", "%s overlaps with that of %s in %v", b, before.whose, before.at.pos())
	}
}

// claim returns who had the name before, and gives it to t if nobody had.
func claim(names map[string]taken, name string, t taken) (before taken) {
	before, ok := names[name]
	if !ok {
		names[name] = t
	}
	return before
}

// claim returns with whom t, bound to a host, is in conflict. 0.0.0.0 and [::] are each all
// addresses of one family.
func (p *port) claim(host string, t taken) (before taken) {
	defer p.first.give(t)
	addr, err := netip.ParseAddr(host)
	addr = addr.Unmap()
	switch {
	case host == "":
		if p.first.whose == "" {
			p.wild = t
		}
		return p.first
	case p.wild.whose != "":
		return p.wild
	case err != nil: // it could not be read
		return taken{}
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
		return taken{}
	case f.wild.whose != "":
		return f.wild
	}
	return claim(p.hosts, addr.String(), t)
}

// socketKey is the same for paths of the same file, links aside.
func socketKey(a Address) string {
	if a.Abstract() {
		return "unix:" + a.Name
	}
	if path, err := filepath.Abs(a.Name); err == nil {
		return "unix:" + path
	}
	return "unix:" + filepath.Clean(a.Name)
}
