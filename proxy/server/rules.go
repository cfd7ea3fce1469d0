package server

import (
	"net/netip"
	"slices"

	"github.com/penstock/penstock/internal/sys"
	socketlistener "github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// listenerStateOf returns the state of the listener that rules over the client while the client has
// no endpoint, or nil if there is none.
func (s *sockets) listenerStateOf(c *worker.Client) *router.ListenerState {
	at := c.Listening()
	if at == nil {
		return nil
	}
	return s.listenerStateAt(at.Of.(*listenSocket), c)
}

// listenerStateAt is listenerStateOf for a client that came in at a socket; the client may be nil. If the socket was given
// up, it is the state of the listener that rules now, or else of the last listener that had the address.
func (s *sockets) listenerStateAt(socket *listenSocket, c *worker.Client) *router.ListenerState {
	if !socket.former.Load() {
		return socket.state.Load()
	}
	if now, _ := s.rulesAt(socket, c); now != nil {
		return now.Config().State
	}
	return socket.lastState(localAddress(c))
}

// localAddress returns the address that a client has connected to; invalid: the client is nil, or has left.
func localAddress(c *worker.Client) netip.AddrPort {
	if c == nil {
		return netip.AddrPort{}
	}
	return c.Local()
}

// A generation is the listeners of a configuration, by the sockets at which they serve. It is immutable.
type generation struct {
	sockets   []*listenSocket
	at        map[*listenSocket]*router.Listener
	listeners map[string]*router.Listener // by name
}

// rules are the generation in force, and the generation that is being brought into force, or nil.
// Endpoints of either generation may serve clients meanwhile, so the rules of both apply to a
// client. During the change listeners and sockets change one after the other, so their own states
// belong to neither generation: only these two decide about a client.
type rules struct{ now, next *generation }

func (c *change) generation() *generation {
	g := &generation{at: make(map[*listenSocket]*router.Listener, len(c.binds)), listeners: make(map[string]*router.Listener, len(c.listeners))}
	for name, l := range c.listeners {
		g.listeners[name] = l.now
		for _, key := range l.keys {
			g.sockets = append(g.sockets, c.binds[key])
			g.at[c.binds[key]] = l.now
		}
	}
	return g
}

// rulesFor returns the listeners that rule over a client: the listener that has the address at which it came in, and
// the listener that is about to have it. Each is nil if its generation has no such listener.
func (s *sockets) rulesFor(c *worker.Client) (now, next *router.Listener) {
	at := c.Listening()
	if at == nil {
		return nil, nil
	}
	return s.rulesAt(at.Of.(*listenSocket), c)
}

// rulesAt is rulesFor for a client, which may be nil, that came in at a socket.
func (s *sockets) rulesAt(socket *listenSocket, c *worker.Client) (now, next *router.Listener) {
	r := s.rules.Load()
	if r == nil {
		return nil, nil
	}
	return r.now.listenerAt(socket, c), r.next.listenerAt(socket, c)
}

// listenerAt prefers the listener that has the client's local address (any address of the socket if the client has left).
// Next comes the listener with the same name as the last listener that had this address.
func (g *generation) listenerAt(socket *listenSocket, c *worker.Client) *router.Listener {
	if g == nil {
		return nil
	}
	if l := g.at[socket]; l != nil {
		return l
	}
	local := localAddress(c)
	if l := g.ownerAt(socket, local); l != nil {
		return l
	}
	if last := socket.lastState(local); last != nil {
		return g.listeners[last.Name]
	}
	return nil
}

// lastState returns the last state of the listener that was the last to use the local address of
// a client. This is the socket's own listener, or a later listener that took over the address and
// gave it up too. If the address is not valid, any address of the socket counts.
func (socket *listenSocket) lastState(local netip.AddrPort) *router.ListenerState {
	if later := socket.later.Load(); later != nil {
		for _, o := range slices.Backward(*later) {
			if !local.IsValid() || o.covers(local) {
				return o.state.Load()
			}
		}
	}
	return socket.state.Load()
}

// covers reports whether clients could reach a socket at an address. Clients of a unix socket have one path.
func (socket *listenSocket) covers(at netip.AddrPort) bool {
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	return !socket.listener.TCP() || socketlistener.Overlap(socket.own, []netip.AddrPort{at})
}

// ownerAt returns the listener that has the address that former had until it was given up. If
// several have a part of it, it is the one for connections to local; nil if there is none, or if it
// is not known.
func (g *generation) ownerAt(former *listenSocket, local netip.AddrPort) *router.Listener {
	local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	var some, of, all *router.Listener
	several, known := false, local.IsValid() && former.covers(local)
	for _, socket := range g.sockets {
		if socket == former || !socket.hasPartOf(former) || known && !socket.covers(local) {
			continue
		}
		d := g.at[socket]
		several = several || some != nil && some != d
		some = d
		for _, own := range socket.own {
			switch {
			case own == local:
				of = d
			case own.Port() == local.Port() && own.Addr().IsUnspecified() && own.Addr().Is4() == local.Addr().Is4():
				all = d
			}
		}
	}
	switch {
	case !several:
		return some
	case of != nil:
		return of
	}
	return all
}

// hasPartOf reports whether a client could reach either of two sockets by the same address.
func (socket *listenSocket) hasPartOf(o *listenSocket) bool {
	if socket.listener.TCP() {
		return socketlistener.Overlap(socket.own, o.own)
	}
	return !o.listener.TCP() && socket.listener.Addr() == o.listener.Addr()
}

// A view is the present state, for readers that must not wait.
type view struct {
	listenings map[string][]*worker.Listening // by listener
}

func (s *sockets) refreshView() {
	v := &view{listenings: make(map[string][]*worker.Listening)}
	for name, l := range s.listeners {
		for _, key := range l.keys {
			socket := s.binds[key]
			if socket == nil || socket.listening == nil {
				continue
			}
			v.listenings[name] = append(v.listenings[name], socket.listening)
		}
	}
	for _, socket := range s.removed.replaced() {
		v.listenings[socket.owner] = append(v.listenings[socket.owner], socket.listening)
	}
	s.view.Store(v)
	s.circles.own.Store(s.newOwnAddresses())
}

// listensOn reports whether this process listens on an address, its admin API and metrics included, so that a connection to
// the address would come back. A socket without an address listens on all of this machine's own addresses of a family; the
// kernel is asked for these only if the port matches.
func (s *sockets) listensOn(at netip.AddrPort) bool {
	ip := sockopt.Canonical(at.Addr())
	return slices.ContainsFunc(s.circles.own.Load().ports[at.Port()], func(own arrival) bool {
		if own.ip == ip || !own.ip.IsUnspecified() || own.ip.Is4() != ip.Is4() {
			return own.ip == ip
		}
		local, err := sys.LocalRoute(at.Addr())
		return local || err != nil
	})
}

func (s *sockets) wakerOf(name string) func() {
	return func() {
		for _, listening := range s.view.Load().listenings[name] {
			listening.Wake()
		}
	}
}
