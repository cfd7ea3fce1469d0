package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/sockopt"
)

// An ownAddresses holds the addresses at which this process listens at a moment. An endpoint at
// such an address may send clients in a circle, and a single client in a circle uses up all
// connections of the process.
type ownAddresses struct {
	of    *registry // the server's mu is held
	ports map[uint16][]arrival
	paths map[string]string // listeners by unix socket
	local func(netip.Addr) bool
}

// An arrival is an address of a listener. An unspecified IP stands for every address of its family.
type arrival struct {
	ip       netip.Addr
	listener string // "": the admin interface, or the address of the metrics
}

func (r *registry) newOwnAddresses() *ownAddresses {
	in := &ownAddresses{of: r, ports: make(map[uint16][]arrival), paths: make(map[string]string), local: sockopt.Local()}
	for _, socket := range r.binds {
		if !socket.listener.TCP() {
			in.paths[place(socket.listener.Addr())] = socket.owner
		}
		for _, at := range socket.listener.Own() {
			in.ports[at.Port()] = append(in.ports[at.Port()], arrival{sockopt.Canonical(at.Addr()), socket.owner})
		}
	}
	for _, at := range r.ownBinds() {
		in.addOwn(at)
	}
	return in
}

// ownBinds returns the addresses of the admin API and of the metrics.
func (r *registry) ownBinds() (list []sockopt.Address) {
	if a := r.cfg.Admin; a != nil {
		list = append(list, a.Bind.Address)
	}
	if m := r.cfg.Metrics; m != nil {
		list = append(list, m.Bind.Address)
	}
	return list
}

func (in *ownAddresses) addOwn(at sockopt.Address) {
	if at.Network == "unix" {
		in.paths[at.Place()] = ""
		return
	}
	host, port, ok := hostPort(at.Name)
	if !ok {
		return
	}
	ips := []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} // without a host, or with a name for the loopback address of either family
	if ip, err := netip.ParseAddr(host); err == nil {
		ips = []netip.Addr{sockopt.Canonical(ip)}
	}
	for _, ip := range ips {
		in.ports[port] = append(in.ports[port], arrival{ip, ""})
	}
}

// hostPort splits a TCP address. It does not accept service names as ports.
func hostPort(name string) (host string, port uint16, ok bool) {
	host, text, err := net.SplitHostPort(name)
	n, bad := strconv.ParseUint(text, 10, 16)
	return host, uint16(n), err == nil && bad == nil
}

// listens returns the listener at an address. Names other than localhost have none: they are
// resolved when a client comes.
func (in *ownAddresses) listens(address string) (listener string, ok bool) {
	at, err := sockopt.Parse(address)
	if err != nil {
		return "", false
	}
	if at.Network == "unix" {
		listener, ok = in.paths[at.Place()]
		return listener, ok
	}
	host, port, ok := hostPort(at.Name)
	if !ok {
		return "", false
	}
	ip, err := netip.ParseAddr(host)
	if sockopt.Localhost(host) {
		ip, err = netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	if err != nil {
		return "", false
	}
	ip = sockopt.Canonical(ip)
	for _, a := range in.ports[port] {
		if a.ip == ip || a.ip.Is4() == ip.Is4() && (a.ip.IsUnspecified() && in.local(ip) || ip.IsUnspecified() && a.ip.IsLoopback()) {
			return a.listener, true
		}
	}
	return "", false
}

// place returns [sockopt.Address.Place] of a listener's address in the configuration.
func place(address string) string {
	at, err := sockopt.Parse(address)
	if err != nil {
		return address
	}
	return at.Place()
}

// refuse returns why an address cannot be an endpoint of an upstream; "": it can. Other listeners
// may be endpoints if none of their routes leads back to the upstream.
func (in *ownAddresses) refuse(upstream, address string) string {
	listener, ok := in.listens(address)
	switch {
	case !ok:
		return ""
	case listener == "":
		return address + " is the address of the admin API or of the metrics"
	case in.leads(listener, upstream, make(map[string]bool)):
		return fmt.Sprintf("%s is the listener %s, which leads to this upstream: connections would go in a circle", address, listener)
	}
	return ""
}

// circle implements [router.ListenerConfig].Circle. Only addresses of this machine with a port at which this process listens
// take the lock, which a change may hold for seconds.
func (lm *listenerManager) circle(upstream string, at netip.AddrPort) error {
	if !lm.view.Load().ports[at.Port()] || !at.Addr().IsLoopback() && !sockopt.Local()(at.Addr()) {
		return nil
	}
	lm.mu.Lock()
	defer lm.mu.Unlock()
	if why := lm.newOwnAddresses().refuse(upstream, at.String()); why != "" {
		return errors.New(why)
	}
	return nil
}

// leads reports whether a client of a listener may get to an upstream. seen holds the listeners and upstreams seen so far.
func (in *ownAddresses) leads(listener, upstream string, seen map[string]bool) bool {
	l := in.of.listeners[listener]
	if l == nil || seen["listener "+listener] {
		return false
	}
	seen["listener "+listener] = true
	for _, name := range destinations(l.cfg) {
		if in.passes(name, upstream, seen) {
			return true
		}
	}
	return false
}

// passes reports whether a client of the upstream name may get to upstream.
func (in *ownAddresses) passes(name, upstream string, seen map[string]bool) bool {
	if name == upstream {
		return true
	}
	u := in.of.upstreams[name]
	if u == nil || seen["upstream "+name] {
		return false
	}
	seen["upstream "+name] = true
	if f := u.cfg.Fallback; f != nil && f.Upstream != "" && in.passes(f.Upstream, upstream, seen) {
		return true
	}
	for _, m := range u.order {
		if l, ok := in.listens(m.spec.Address); ok && in.leads(l, upstream, seen) {
			return true
		}
	}
	return false
}

func destinations(l *config.Listener) []string {
	list := slices.Concat([]string{l.Upstream}, l.Mirrors(), l.FilteredTo())
	for i := range l.Routes {
		list = append(list, l.Routes[i].Upstream)
		for j := range l.Routes[i].Split {
			list = append(list, l.Routes[i].Split[j].Upstream)
		}
	}
	return slices.DeleteFunc(list, func(name string) bool { return name == "" })
}

// fit returns the endpoints in found that an upstream may have, and why it may not have the others.
func (in *ownAddresses) fit(upstream string, found []discovery.Endpoint) (fit []discovery.Endpoint, refused []string) {
	for i := range found {
		why := in.refuse(upstream, found[i].Address)
		if why == "" {
			fit = append(fit, found[i])
			continue
		}
		refused = append(refused, why)
	}
	if len(refused) == 0 {
		return found, nil
	}
	return fit, refused
}

// reconsider looks again at the endpoints that sources have found, because listeners have changed:
// an endpoint may lead back into the process now, or no longer.
func (um *upstreamManager) reconsider() {
	var in *ownAddresses
	for _, u := range um.upstreams {
		if u.source == nil || !u.answered {
			continue
		}
		if in == nil {
			in = um.newOwnAddresses()
		}
		if _, refused := in.fit(u.cfg.Name, u.found); !slices.Equal(refused, u.refused) {
			um.takeFound(u, in)
		}
	}
}
