package server

import (
	"net/netip"
	"time"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// An adoptedOf is the parts of the configuration that an adopted session is of. They are found by its tag, and its endpoint by
// its address. One that is found stays; the limits are those of the listener in the configuration in force, or were the last that it had.
type adoptedOf struct {
	tag                worker.LaneTag
	listener, upstream string                // "": not known
	counts             *router.ListenerState // of the listener; nil: not known
	to                 *router.Endpoint      // nil: not known
	limits             adoptedLimits
	sourced            bool     // its source counts it, by the limits of the listener
	share              float64  // of the jitter of its lifetime, from 0 to 1
	release            []func() // the places that it takes, of limits
}

// adoptedLimits are those of a listener that bind its sessions in the lane. 0 is no bound.
type adoptedLimits struct {
	idle, halfClose, lifetime, userTimeout time.Duration
	jitter                                 float64
}

func adoptedLimitsOf(l *config.Listener) adoptedLimits {
	t := &l.Timeouts
	return adoptedLimits{
		idle: t.Idle, halfClose: t.HalfClose, lifetime: t.Lifetime, userTimeout: socketOptions(l).SetUserTimeout(), jitter: t.LifetimeJitter,
	}
}

// names returns those of the session's listener, upstream and endpoint; "": not known.
func (o *adoptedOf) names() (listener, upstream, endpoint string) {
	if o.to != nil {
		endpoint = o.to.Name()
	}
	return o.listener, o.upstream, endpoint
}

// overdue returns why a session is to end now; nil: it goes on. longest is the idle time of one whose listener is not known.
func (s *adoptedSession) overdue(now time.Time, longest time.Duration) error {
	l := s.limits
	if s.listener == "" {
		l = adoptedLimits{idle: longest}
	}
	return s.overdueBy(&l, now)
}

// overdueBy is overdue by given limits.
func (s *adoptedSession) overdueBy(l *adoptedLimits, now time.Time) error {
	if l.lifetime > 0 && s.session.Age() > l.lifetime-time.Duration(float64(l.lifetime)*l.jitter*s.share) {
		return errAdoptedLifetime
	}
	idle, bound, why := now.Sub(s.active), l.idle, errAdoptedIdle
	if l.halfClose > 0 && idle > l.halfClose || l.idle > 0 && idle > l.idle { // seldom: a look costs more than the rest
		if l.halfClose > 0 && s.endedBy() >= 0 {
			bound, why = l.halfClose, errAdoptedHalf
		}
	}
	if bound > 0 && idle > bound {
		return why
	}
	return nil
}

// endedBy is the side of which an end of file was carried, 0 or 1; -1: of none.
func (s *adoptedSession) endedBy() int {
	v, _ := s.session.Look()
	return v.EndedBy
}

// adoptedNames are the names of the configuration in force, by their hashes. A hash of two names is of none.
type adoptedNames struct {
	server    *Server
	listeners map[uint64]*listener
	upstreams map[uint64]*upstream
	endpoints map[*upstream]map[netip.AddrPort]*router.Endpoint // that were asked for
}

// adoptedNames returns them. The server's mu is held, also as they are used.
func (s *Server) adoptedNames() *adoptedNames {
	n := &adoptedNames{
		server: s, listeners: make(map[uint64]*listener), upstreams: make(map[uint64]*upstream), endpoints: make(map[*upstream]map[netip.AddrPort]*router.Endpoint),
	}
	for _, l := range s.cfg.Listeners {
		addName(n.listeners, l.Name, s.listeners[l.Name])
	}
	for _, u := range s.cfg.Upstreams {
		addName(n.upstreams, u.Name, s.upstreams[u.Name])
	}
	return n
}

// addName adds a part by its name, or has the hash be of none.
func addName[T any](to map[uint64]*T, name string, of *T) {
	hash := worker.LaneHash(name)
	if _, twice := to[hash]; twice {
		of = nil
	}
	to[hash] = of
}

// resolve finds the parts of a session. The lock of the list is held.
func (n *adoptedNames) resolve(one *adoptedSession) {
	if l := n.listeners[one.tag.Listener]; l != nil {
		if one.listener == "" {
			one.listener, one.counts = l.cfg.Name, l.state
			one.release = append(one.release, l.state.Adopt(n.server.sockets.wakerOf(l.cfg.Name)))
		}
		if l.sources != nil && !one.sourced {
			entry := l.sources.Adopt(one.source, n.server.now())
			one.sourced, one.release = true, append(one.release, func() { l.sources.Leave(entry) })
		}
		one.limits = adoptedLimitsOf(l.cfg)
		_ = one.session.SetUserTimeout(one.limits.userTimeout) // or it has ended
	}
	if u := n.upstreams[one.tag.Upstream]; u != nil {
		one.upstream = u.cfg.Name
		n.bind(one, u)
	}
}

// bind finds the endpoint of a session by its address, unless it is known. The lock of the list is held.
func (n *adoptedNames) bind(one *adoptedSession, u *upstream) {
	if one.to != nil {
		return
	}
	all := n.endpoints[u]
	if all == nil {
		all = u.byAddress()
		n.endpoints[u] = all
	}
	e := all[one.at]
	if e == nil {
		return
	}
	one.to = e
	one.release = append(one.release, e.Adopt())
	if st := e.State(); st.Down || st.Ejected { // it was so before: nothing would come
		n.server.upstreamManager.markDown(e)
	}
}

// byAddress returns the endpoints whose addresses are numbers, by these. An address of two endpoints is of none.
func (u *upstream) byAddress() map[netip.AddrPort]*router.Endpoint {
	all := make(map[netip.AddrPort]*router.Endpoint, len(u.order))
	for _, m := range u.order {
		at, err := netip.ParseAddrPort(m.endpoint.Address.Name)
		if err != nil {
			continue
		}
		at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		e := m.endpoint
		if _, twice := all[at]; twice {
			e = nil
		}
		all[at] = e
	}
	return all
}

// know has the sessions follow the configuration in force. The timeout of those whose listener is not known is the longest of the listeners that
// have sessions leave user space, or of all if none has. The server's mu is held.
func (a *adopted) know(s *Server) {
	longest, bounded := time.Duration(0), true
	for _, l := range s.cfg.Listeners {
		if l.Lane != config.LaneOff || !s.cfg.WantsLane() {
			longest = max(longest, l.Timeouts.Idle)
			bounded = bounded && l.Timeouts.Idle > 0
		}
	}
	if !bounded {
		longest = 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.idle = longest
	if len(a.list) == 0 {
		return
	}
	names := s.adoptedNames()
	for _, one := range a.list {
		names.resolve(one)
	}
}

// bind finds the endpoints of sessions of an upstream that has got others. The server's mu is held.
func (a *adopted) bind(s *Server, u *upstream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names *adoptedNames
	for _, one := range a.list {
		if one.to != nil || one.upstream != u.cfg.Name {
			continue
		}
		if names == nil {
			names = s.adoptedNames()
		}
		names.bind(one, u)
	}
}
