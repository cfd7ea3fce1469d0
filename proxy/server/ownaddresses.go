package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/offload"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// An ownAddresses has the addresses at which this process listens, and where its listeners and upstreams lead. It is
// immutable.
type ownAddresses struct {
	ports     map[uint16][]arrival
	paths     map[string]arrival // unix sockets by [sockopt.Address.Place]
	bound     map[string]arrival // unix sockets by the name that the kernel has for them
	passed    bool               // systemd has passed some of the unix sockets
	listeners map[string][]string
	upstreams map[string]way
}

// An arrival is an address of a listener. An unspecified IP stands for every address of its family.
type arrival struct {
	ip       netip.Addr
	listener string // "": the admin interface, or the address of the metrics
	passed   bool   // by systemd: the loader of the configuration does not know the address
}

// A way is where an upstream's clients go.
type way struct {
	router   *router.Upstream
	fallback string // "": none
}

func (r *registry) newOwnAddresses() *ownAddresses {
	in := &ownAddresses{
		ports: make(map[uint16][]arrival), paths: make(map[string]arrival), bound: make(map[string]arrival),
		listeners: make(map[string][]string, len(r.listeners)), upstreams: make(map[string]way, len(r.cfg.Upstreams)),
	}
	for _, socket := range r.binds {
		ln := socket.listener
		of := arrival{listener: socket.owner, passed: ln.Passed()}
		if !ln.TCP() {
			in.addPath(ln.Addr(), of)
		}
		for _, at := range ln.Own() {
			of.ip = sockopt.Canonical(at.Addr())
			in.ports[at.Port()] = append(in.ports[at.Port()], of)
		}
	}
	for _, at := range r.ownBinds() {
		in.addOwn(at)
	}
	for name, l := range r.listeners {
		in.listeners[name] = destinations(l.cfg)
	}
	for _, cfg := range r.cfg.Upstreams {
		to := way{router: r.upstreams[cfg.Name].router}
		if cfg.Fallback != nil {
			to.fallback = cfg.Fallback.Upstream
		}
		in.upstreams[cfg.Name] = to
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

func (in *ownAddresses) addPath(address string, of arrival) {
	in.paths[place(address)] = of
	in.bound[strings.TrimPrefix(address, "unix:")] = of
	in.passed = in.passed || of.passed
}

func (in *ownAddresses) addOwn(at sockopt.Address) {
	if at.Network == "unix" {
		in.addPath("unix:"+at.Name, arrival{})
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
		in.ports[port] = append(in.ports[port], arrival{ip: ip})
	}
}

// hostPort splits a TCP address. It does not accept service names as ports.
func hostPort(name string) (host string, port uint16, ok bool) {
	host, text, err := net.SplitHostPort(name)
	n, bad := strconv.ParseUint(text, 10, 16)
	return host, uint16(n), err == nil && bad == nil
}

// place returns [sockopt.Address.Place] of a listener's address in the configuration.
func place(address string) string {
	at, err := sockopt.Parse(address)
	if err != nil {
		return address
	}
	return at.Place()
}

// circles finds endpoints that send clients in a circle through this process: a single client in a circle uses up all
// connections. It is safe for concurrent use, and does not wait for a change of the configuration.
type circles struct {
	now func() int64
	own atomic.Pointer[ownAddresses] // nil before the first configuration

	mu    sync.Mutex
	edges map[string]map[string]*edge // from an upstream to a listener
	known map[netip.Addr]int          // how often the kernel's answer still counts; ofMachine: the address is of this machine
	since int64                       // when the first of known was asked
	redirections
}

// An edge was met by a client who connected. It counts for edgeTime: edges to which names, links or routes lead are known
// only then, and several of them form a circle together.
type edge struct {
	met, judged int64
	in          *ownAddresses // under which it was judged
}

const (
	edgeTime  = 10 * time.Second
	judgeTime = time.Second // for which an edge, or the kernel's answer about an address, is not asked again
	mostKnown = 1024
	ofMachine = -1
	// otherUses is how many connects believe that an address is of another machine: if it has just become this machine's, a
	// client in a circle becomes no more clients than that.
	otherUses = 16
)

// local reports whether a connection to an address ends on this machine. c.mu is held.
func (c *circles) local(ip netip.Addr) bool {
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	if now := c.now(); c.known == nil || now-c.since > int64(judgeTime) || len(c.known) >= mostKnown {
		c.known, c.since = make(map[netip.Addr]int), now
	}
	left := c.known[ip]
	if left == 0 {
		left = otherUses
		if is, err := sys.LocalRoute(ip); is && err == nil {
			left = ofMachine
		}
	}
	c.known[ip] = max(left-1, ofMachine)
	return left == ofMachine
}

// listens returns where a connection to an address arrives in this process. Links are not followed. c.mu is held.
func (c *circles) listens(in *ownAddresses, at loop.Address) (to arrival, ok bool) {
	if at.Path != "" {
		to, ok = in.bound[at.Path]
		return to, ok
	}
	list := in.ports[at.AddrPort.Port()]
	if len(list) == 0 {
		return arrival{}, false
	}
	ip := sockopt.Canonical(at.AddrPort.Addr())
	i := slices.IndexFunc(list, func(a arrival) bool { return a.ip == ip })
	if i < 0 {
		i = slices.IndexFunc(list, func(a arrival) bool {
			return a.ip.Is4() == ip.Is4() && (a.ip.IsUnspecified() && c.local(ip) || ip.IsUnspecified() && a.ip.IsLoopback())
		})
	}
	if i < 0 {
		return arrival{}, false
	}
	return list[i], true
}

// refuse returns why an address cannot be an endpoint of an upstream; "": it can. Other listeners
// may be endpoints if none of their routes leads back to the upstream. Names other than localhost are
// resolved when a client comes.
func (c *circles) refuse(upstream, address string) string {
	in := c.own.Load()
	at, err := sockopt.Parse(address)
	if err != nil || in == nil {
		return ""
	}
	var to arrival
	var ok bool
	if at.Network == "unix" {
		to, ok = in.paths[at.Place()]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if host, port, tcp := hostPort(at.Name); at.Network != "unix" && tcp {
		if sockopt.Localhost(host) {
			host = "127.0.0.1"
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			to, ok = c.listens(in, loop.Address{AddrPort: netip.AddrPortFrom(ip, port)})
		}
	}
	if !ok {
		return ""
	}
	return c.why(in, upstream, address, to.listener)
}

// why returns why an upstream cannot have an address at which a listener listens, or "". c.mu is held.
func (c *circles) why(in *ownAddresses, upstream, address, listener string) string {
	switch {
	case listener == "":
		return address + " is the address of the admin API or of the metrics"
	case upstream == outside:
		return fmt.Sprintf("%s is the listener %s: this process would be its own client", address, listener)
	case c.leads(in, listener, upstream, make(map[string]bool)):
		to := "to this upstream"
		if upstream == original {
			to = "there again"
		}
		return fmt.Sprintf("%s is the listener %s, which leads %s: connections would go in a circle", address, listener, to)
	}
	return ""
}

// of returns the function [router.ListenerConfig].Circle of a listener. An address that the file names as a listener's is not
// refused: the loader has looked for circles, and knows the conditions of routes. It is part of the circles that other
// addresses close.
func (c *circles) of(listener string) func(*worker.Client, string, loop.Address, bool, int, bool) error {
	return func(by *worker.Client, upstream string, at loop.Address, name bool, fd int, connected bool) error {
		in := c.own.Load()
		if in == nil {
			return nil
		}
		if !connected || at.Path != "" {
			c.meet(in, listener, by, upstream, at)
		}
		return c.circle(in, upstream, at, name, fd, connected)
	}
}

// outside stands for an upstream whose connections may not come to any listener.
const outside = "/"

// connect returns the function [health.ProbeConfig].Connect of an upstream, or [traces.Settings].Connect: a check that came back would count as a client, of which
// nothing becomes. It may wait.
func (c *circles) connect(upstream string) func(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	return func(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(address)
		_, err := netip.ParseAddr(host)
		return offload.Connect(ctx, d, network, address, func(text string, fd int, connected bool) error {
			in := c.own.Load()
			var at loop.Address
			switch {
			case in == nil:
				return nil
			case network != "unix":
				at.AddrPort, _ = netip.ParseAddrPort(text)
			case !connected:
				if to, ok := in.bound[address]; ok && to.listener != "" {
					return nil // the loader has looked for circles
				}
				if why := c.refuse(upstream, "unix:"+address); why != "" {
					return errors.New(why)
				}
				return nil
			default:
				at.Path = address
			}
			return c.circle(in, upstream, at, err != nil, fd, connected)
		})
	}
}

func (c *circles) circle(in *ownAddresses, upstream string, at loop.Address, name bool, fd int, connected bool) error {
	tcp := at.Path == ""
	if tcp && !c.any.Load() && (upstream == original || in.ports[at.AddrPort.Port()] == nil) {
		return nil
	}
	reached, text := at, at.AddrPort.String()
	if !tcp {
		text = "unix:" + at.Path
		peer, err := sys.PeerCredentials(fd)
		if err != nil || int(peer.PID) != os.Getpid() && !in.passed {
			return nil
		}
		is, err := sys.PeerName(fd)
		if err != nil {
			return nil
		}
		reached.Path = is.Path
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	to, ok := c.listens(in, reached)
	var nat *redirection
	if !ok {
		if nat = c.redirected[plain(at.AddrPort)]; nat == nil {
			return nil
		}
		if to.listener = nat.reaches(upstream, c.now()); to.listener == "" {
			nat.dials(fd, connected, upstream, c.now())
			return nil
		}
		text += " after NAT"
	}
	ip := at.AddrPort.Addr()
	written := nat == nil && !name && (ip.IsLoopback() || ip.IsUnspecified() || sockopt.Canonical(ip) == to.ip)
	if !tcp {
		written = at.Path == reached.Path
	}
	if written && !to.passed && to.listener != "" && upstream != outside {
		return nil
	}
	now, before := c.now(), c.edges[upstream][to.listener]
	if before != nil && before.in == in && now-before.judged < int64(judgeTime) {
		before.met = now
		return nil
	}
	why := c.why(in, upstream, text, to.listener)
	if nat != nil {
		why = nat.ends(upstream, why)
	}
	if why != "" {
		delete(c.edges[upstream], to.listener)
		return errors.New(why)
	}
	c.keep(upstream, to.listener, &edge{met: now, judged: now, in: in})
	return nil
}

// keep stores an edge, and deletes the edges that no longer count. c.mu is held.
func (c *circles) keep(upstream, listener string, e *edge) {
	for from, edges := range c.edges {
		maps.DeleteFunc(edges, func(_ string, old *edge) bool { return !old.counts(e.met) })
		if len(edges) == 0 {
			delete(c.edges, from)
		}
	}
	if c.edges == nil {
		c.edges = make(map[string]map[string]*edge)
	}
	if c.edges[upstream] == nil {
		c.edges[upstream] = make(map[string]*edge)
	}
	c.edges[upstream][listener] = e
}

func (e *edge) counts(now int64) bool { return now-e.met < int64(edgeTime) }

// leads reports whether a client of a listener may get to an upstream. seen holds the listeners and upstreams seen so far.
// c.mu is held.
func (c *circles) leads(in *ownAddresses, listener, upstream string, seen map[string]bool) bool {
	if seen["listener "+listener] {
		return false
	}
	seen["listener "+listener] = true
	return slices.ContainsFunc(in.listeners[listener], func(name string) bool { return c.passes(in, name, upstream, seen) })
}

// passes reports whether a client of the upstream name may get to upstream. c.mu is held.
func (c *circles) passes(in *ownAddresses, name, upstream string, seen map[string]bool) bool {
	if name == upstream {
		return true
	}
	u := in.upstreams[name]
	if u.router == nil || seen["upstream "+name] {
		return false
	}
	seen["upstream "+name] = true
	if u.fallback != "" && c.passes(in, u.fallback, upstream, seen) {
		return true
	}
	for listener, e := range c.edges[name] {
		if e.counts(c.now()) && c.leads(in, listener, upstream, seen) {
			return true
		}
	}
	for at := range u.router.Addresses() {
		if to, ok := c.listens(in, at); ok && c.leads(in, to.listener, upstream, seen) {
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
	list = slices.DeleteFunc(list, func(name string) bool { return name == "" })
	if l.Transparent {
		list = append(list, original)
	}
	return list
}

// fit returns the endpoints in found that an upstream may have, and why it may not have the others.
func (c *circles) fit(u *config.Upstream, found []discovery.Endpoint) (fit []discovery.Endpoint, refused []string) {
	for i := range found {
		why := cmp.Or(found[i].Refused, otherFamily(u.SourceAddress, &found[i]), c.refuse(u.Name, found[i].Address))
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

// otherFamily says that source and an endpoint are of different families, or returns "".
func otherFamily(source netip.Addr, of *discovery.Endpoint) string {
	if to, err := netip.ParseAddrPort(of.Address); err == nil && source.IsValid() && to.Addr().Unmap().Is4() != source.Is4() {
		return fmt.Sprintf("source_address %v cannot connect to the endpoint %s", source, of.Identity())
	}
	return ""
}

// reconsider looks again at the endpoints that sources have found, because listeners have changed:
// an endpoint may lead back into the process now, or no longer.
func (um *upstreamManager) reconsider() {
	for _, u := range um.upstreams {
		if u.source == nil || !u.answered {
			continue
		}
		if _, refused := um.circles.fit(u.cfg, u.found); !slices.Equal(refused, u.refused) {
			um.takeFound(u)
		}
	}
}
