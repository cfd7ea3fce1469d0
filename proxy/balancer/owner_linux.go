package balancer

import (
	"net/netip"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/dispatch"
	socketlistener "github.com/penstock/penstock/proxy/listener"
)

// doorOf returns the door of the listener whose rules are for the client for as long as it has no
// endpoint; nil: there is none.
func (s *Server) doorOf(c *core.Client) *dispatch.Door {
	at := c.Listening()
	if at == nil {
		return nil
	}
	return s.doorAt(at.Of.(*bound), c)
}

// doorAt is doorOf by the socket at which a client came in, and by the connection's own address if
// the client, which may be nil, has not left: the door of the listener that has the address, or else of
// the one that has the name of the listener that had it last, or else of that itself, which is gone.
func (s *Server) doorAt(b *bound, c *core.Client) *dispatch.Door {
	last := b.door.Load()
	if !b.former.Load() {
		return last
	}
	var local netip.AddrPort
	if c != nil {
		local = c.Local()
	}
	v := s.view.Load()
	if d := v.doorAt(b, local); d != nil {
		return d
	}
	if last != nil && v.doors[last.Name] != nil {
		return v.doors[last.Name]
	}
	return last
}

// doorAt returns the door of the listener that has the address of a socket that was given up. Where
// several have a part of it each, it is the one to which a connection to the local address would
// come; nil: none, or that is not known.
func (v *view) doorAt(former *bound, local netip.AddrPort) *dispatch.Door {
	local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	var some, of, all *dispatch.Door
	several := false
	for _, b := range v.bounds {
		if b == former || !b.hasPartOf(former) {
			continue
		}
		d := b.door.Load()
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
func (b *bound) hasPartOf(o *bound) bool {
	if b.listener.TCP() {
		return socketlistener.Overlap(b.own, o.own)
	}
	return !o.listener.TCP() && b.listener.Addr() == o.listener.Addr()
}
