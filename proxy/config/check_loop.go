package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/sockopt"
)

// loops complains of listeners that send clients round in a circle: an endpoint is an address
// of the same or another listener. One client would then use up all connections. The client
// considered is one that meets no condition of a route. Circles that depend on such a
// condition, on the source of the client or on discovery are not found.
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

// adminEndpoints complains of endpoints that are the admin API. Each of their clients would be
// an operator.
func (k *checker) adminEndpoints(c *Config) {
	if c.Admin != nil {
		k.noEndpoint(c, arrivals(c.Admin.Bind.Address), "the admin interface: every client could steer this process")
	}
	if c.Metrics != nil {
		k.noEndpoint(c, arrivals(c.Metrics.Bind.Address), "the address of the metrics: every client would scrape as this machine")
	}
}

// noEndpoint complains of endpoints that are an address of this process.
func (k *checker) noEndpoint(c *Config, own []string, what string) {
	for _, u := range c.Upstreams {
		for i := range u.Endpoints {
			e := &u.Endpoints[i]
			if slices.ContainsFunc(k.outgoing(e.Address), func(at string) bool { return slices.Contains(own, at) }) {
				k.complainAt(k.at(&e.Address, e), "write another address", "%s is %s", e.Address, what)
			}
		}
	}
}

// A graph is the ways of clients from listeners to upstreams, and from these to others or
// back.
type graph struct {
	*checker
	upstreams map[string]*Upstream
	listeners map[string]*Listener // by arrival
	state     map[any]int          // of a listener or upstream: 0 before the first visit, then its place in the path, from 1, or done
	path      []step
}

// done is the state of a listener or upstream after all of its steps have been followed.
const done = -1

// A step is from a listener to an upstream, or from an upstream to its fallback or to the
// listener at an endpoint's address.
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
			for _, at := range g.outgoing(by) {
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

// leave follows the steps of a client that meets no condition of a listener.
func (g *graph) leave(ln *Listener) {
	for i := range ln.Routes {
		r := &ln.Routes[i]
		switch m := &r.Match; {
		case len(m.Source) > 0 || m.Port != 0 || g.checkVague(m):
			return // a returning client may meet it
		case !m.everybody():
			continue
		}
		g.followName(step{from: ln, at: g.at(&r.Upstream, r)}, r.Upstream)
		for j := range r.Split {
			if s := &r.Split[j]; s.Percent > 0 {
				g.followName(step{from: ln, at: g.at(&s.Upstream, s)}, s.Upstream)
			}
		}
		g.followMirror(ln, r)
		return
	}
	g.followName(step{from: ln, at: g.at(&ln.Upstream, ln)}, ln.Upstream)
	g.followMirror(ln, nil)
}

// followMirror follows the mirror of a route, of the default route if that is nil.
func (g *graph) followMirror(ln *Listener, r *Route) {
	if m := ln.MirrorOf(r); m != nil && m.Percent > 0 {
		g.followName(step{from: ln, at: g.at(&m.Upstream, m)}, m.Upstream)
	}
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

// circle complains of a circle of steps. A circle of fallbacks alone is reported by cycles.
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

// words names the listeners and upstreams of a circle, up to a bound.
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

// arrivals returns the keys under which a listener is found from the keys of outgoing. All
// addresses of a family share one key. It returns nil if they are not known in advance.
func arrivals(a Address) []string {
	if a.Network == "unix" {
		return []string{a.Place()}
	}
	if a.Network != "tcp" { // a socket of systemd, or it could not be read
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

// outgoing returns the keys of the listeners that a connection to an endpoint may reach, the
// likeliest first.
func (d *decoder) outgoing(a Address) []string {
	if a.Network != "tcp" {
		return arrivals(a)
	}
	host, port := splitHostPort(a.Name)
	if sockopt.Localhost(host) {
		return []string{"127.0.0.1 " + port, "0.0.0.0 " + port, "::1 " + port, ":: " + port}
	}
	list := []string{plain(host) + " " + port}
	if ip, err := netip.ParseAddr(host); err == nil {
		switch ip = sockopt.Canonical(ip); {
		case ip == netip.IPv4Unspecified(): // a connection to it goes to the loopback, see ip(7)
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

// plain returns the same text for the same address.
func plain(host string) string {
	if sockopt.Localhost(host) {
		return "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return sockopt.Canonical(ip).String()
	}
	return host
}
