package server

import (
	"net/netip"

	socketlistener "github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// listenerStateOf returns the state of the listener whose rules apply to the client for as
// long as it has no endpoint; nil: there is none.
func (s *Server) listenerStateOf(c *worker.Client) *router.ListenerState {
	at := c.Listening()
	if at == nil {
		return nil
	}
	return s.listenerStateAt(at.Of.(*listenSocket), c)
}

// listenerStateAt is listenerStateOf by the socket at which a client came in, and by the connection's own address if
// the client, which may be nil, has not left. It prefers the listener that has the address now, then the one
// with the name of the listener that had it last, then the last state itself.
func (s *Server) listenerStateAt(b *listenSocket, c *worker.Client) *router.ListenerState {
	last := b.state.Load()
	if !b.former.Load() {
		return last
	}
	var local netip.AddrPort
	if c != nil {
		local = c.Local()
	}
	v := s.view.Load()
	if d := v.listenerStateAt(b, local); d != nil {
		return d
	}
	if last != nil && v.states[last.Name] != nil {
		return v.states[last.Name]
	}
	return last
}

// listenerStateAt returns the state of the listener that has the address of a socket that was given up. Where
// several have a part of it each, it is the one to which a connection to the local address would
// come; nil: none, or that is not known.
func (v *view) listenerStateAt(former *listenSocket, local netip.AddrPort) *router.ListenerState {
	local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	var some, of, all *router.ListenerState
	several := false
	for _, b := range v.sockets {
		if b == former || !b.hasPartOf(former) {
			continue
		}
		d := b.state.Load()
		several = several || some != nil && some != d
		some = d
		for _, own := range b.own {
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
func (b *listenSocket) hasPartOf(o *listenSocket) bool {
	if b.listener.TCP() {
		return socketlistener.Overlap(b.own, o.own)
	}
	return !o.listener.TCP() && b.listener.Addr() == o.listener.Addr()
}
