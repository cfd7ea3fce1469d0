package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/socket"
)

// loops complains of listeners that send clients round in a circle, by endpoints where they
// themselves or others listen: it would take one client to use up all connections. The client
// is one that meets no condition of a route. What only others would do, what depends on where
// they come from, and what discovery finds is not found.
func (k *checker) loops(c *Config) {
	g := graph{checker: k, upstreams: make(map[string]*Upstream, len(c.Upstreams)), listeners: make(map[string]*Listener), state: make(map[any]int)}
	for _, u := range c.Upstreams {
		if g.upstreams[u.Name] == nil {
			g.upstreams[u.Name] = u
		}
	}
	for _, ln := range c.Listeners {
		for i := range ln.Bind {
			for _, at := range arrivals(ln.Bind[i].Address) {
				if g.listeners[at] == nil {
					g.listeners[at] = ln
				}
			}
		}
	}
	for _, ln := range c.Listeners {
		if g.state[ln] == 0 {
			g.walk(ln)
		}
	}
	k.adminEndpoints(c)
}

// adminEndpoints complains of endpoints that are the admin interface: every client would be an
// operator.
func (k *checker) adminEndpoints(c *Config) {
	if c.Admin == nil {
		return
	}
	own := arrivals(c.Admin.Bind.Address)
	for _, u := range c.Upstreams {
		for i := range u.Endpoints {
			e := &u.Endpoints[i]
			if slices.ContainsFunc(k.departures(e.Address), func(at string) bool { return slices.Contains(own, at) }) {
				k.complainAt(k.at(&e.Address, e), "write another address", "%s is the admin interface: every client could steer this process", e.Address)
			}
		}
	}
}

// A graph is how clients get from listeners to upstreams, and from these to others or back.
type graph struct {
	*checker
	upstreams map[string]*Upstream
	listeners map[string]*Listener // by arrival
	state     map[any]int          // of listeners and upstreams: 0 before it is seen, its place in the path, from 1, or done
	path      []step
}

// done is the state of who leads nowhere new.
const done = -1

// A step is from a listener to an upstream, or from an upstream to its fallback or to the
// listener that an endpoint is.
type step struct {
	from any
	at   place   // of the listener's or route's upstream
	by   Address // the endpoint
}

// walk follows every step from a listener or an upstream.
func (g *graph) walk(from any) {
	g.state[from] = len(g.path) + 1
	switch from := from.(type) {
	case *Listener:
		g.leave(from)
	case *Upstream:
		for i := range from.Endpoints {
			by := from.Endpoints[i].Address
			for _, at := range g.departures(by) {
				if ln := g.listeners[at]; ln != nil {
					g.follow(step{from: from, by: by}, ln)
					break
				}
			}
		}
		if from.Fallback != nil {
			g.followName(step{from: from}, from.Fallback.Upstream)
		}
	}
	g.state[from] = done
}

// leave follows where a listener sends who meets no condition.
func (g *graph) leave(ln *Listener) {
	for i := range ln.Routes {
		r := &ln.Routes[i]
		switch m := &r.Match; {
		case len(m.Source) > 0 || m.Port != 0 || g.vague(m):
			return // it may be met by who comes back
		case !m.everybody():
			continue
		}
		g.followName(step{from: ln, at: g.at(&r.Upstream, r)}, r.Upstream)
		for j := range r.Split {
			if s := &r.Split[j]; s.Percent > 0 {
				g.followName(step{from: ln, at: g.at(&s.Upstream, s)}, s.Upstream)
			}
		}
		return
	}
	g.followName(step{from: ln, at: g.at(&ln.Upstream, ln)}, ln.Upstream)
}

func (g *graph) followName(s step, upstream string) {
	if u := g.upstreams[upstream]; u != nil {
		g.follow(s, u)
	}
}

func (g *graph) follow(s step, to any) {
	g.path = append(g.path, s)
	switch depth := g.state[to]; depth {
	case done:
	case 0:
		g.walk(to)
	default:
		g.circle(g.path[depth-1:])
	}
	g.path = g.path[:len(g.path)-1]
}

// circle complains of a circle of steps. That of fallbacks alone is found elsewhere.
func (g *graph) circle(steps []step) {
	first := -1
	for i := range steps {
		if _, ok := steps[i].from.(*Listener); ok {
			first = i
			break
		}
	}
	if first < 0 {
		return
	}
	steps = append(append([]step(nil), steps[first:]...), steps[:first]...)
	fix := "write another upstream, or another bind"
	if len(steps) == 2 {
		g.complainAt(steps[0].at, fix, "clients would go round in a circle: %s is an endpoint of %s, and an address of this listener", steps[1].by, steps[1].from.(*Upstream).Name)
		return
	}
	g.complainAt(steps[0].at, fix, "clients would go round in a circle: %s", words(steps))
}

// words names who a circle goes by, up to a bound.
func words(steps []step) string {
	var w []string
	for i, s := range steps {
		if i == 8 && len(steps) > 9 {
			w = append(w, "…")
			break
		}
		switch from := s.from.(type) {
		case *Listener:
			w = append(w, "listener "+from.Name)
		case *Upstream:
			if s.by.Network == "" {
				w = append(w, "upstream "+from.Name)
			} else {
				w = append(w, fmt.Sprintf("upstream %s (%s)", from.Name, s.by))
			}
		}
	}
	return strings.Join(append(w, "listener "+steps[0].from.(*Listener).Name), " → ")
}

// arrivals are where a listener is found by who connects to one of the departures: all
// addresses of a family are one. It is nothing if that is not known before.
func arrivals(a Address) []string {
	if a.Network == "unix" {
		return []string{socketKey(a)}
	}
	if a.Network != "tcp" { // it is systemd's, or could not be read
		return nil
	}
	host, port := splitHostPort(a.Name)
	switch {
	case port == "0":
		return nil
	case host == "":
		return []string{"0.0.0.0 " + port, ":: " + port}
	}
	return []string{plain(host) + " " + port}
}

// departures are what a connection to an endpoint gets to, the likeliest first.
func (d *decoder) departures(a Address) []string {
	if a.Network != "tcp" {
		return arrivals(a)
	}
	host, port := splitHostPort(a.Name)
	if socket.Localhost(host) {
		return []string{"127.0.0.1 " + port, "0.0.0.0 " + port, "::1 " + port, ":: " + port}
	}
	list := []string{plain(host) + " " + port}
	if ip, err := netip.ParseAddr(host); err == nil {
		switch ip = ip.Unmap(); {
		case ip == netip.IPv4Unspecified(): // which is the loopback to who connects, see ip(7)
			list = append(list, "127.0.0.1 "+port)
		case ip == netip.IPv6Unspecified():
			list = append(list, "::1 "+port)
		case ip.IsLoopback() && ip.Is4():
			list = append(list, "0.0.0.0 "+port)
		case ip.IsLoopback():
			list = append(list, ":: "+port)
		case ip.Is4() && d.reaches(ip):
			list = append(list, "0.0.0.0 "+port)
		case d.reaches(ip):
			list = append(list, ":: "+port)
		}
	}
	return list
}

// plain is the same for the same address.
func plain(host string) string {
	if socket.Localhost(host) {
		return "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return host
}
