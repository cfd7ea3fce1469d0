package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/listener"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/proxy/upstream"
)

// checkTargets refuses a target that is the proxy itself: each connection would
// make another, until the limit. A name is looked at when it was resolved.
func (s *Server) checkTargets() error {
	for _, to := range s.cfg.To {
		addr := upstream.Address{Path: to.Name}
		if to.Network != "unix" {
			at, err := netip.ParseAddrPort(to.Name)
			if err != nil {
				continue // a name
			}
			addr = upstream.Address{AddrPort: at}
		}
		if s.listensOn(addr) {
			return fmt.Errorf("%w %q: the proxy itself listens there: write where the server does", socket.ErrAddress, to)
		}
	}
	return nil
}

// listensOn reports whether a connection to addr would reach one of the server's
// listeners.
func (s *Server) listensOn(addr upstream.Address) bool {
	for _, at := range s.own {
		switch {
		case at.Path != addr.Path:
		case addr.Path != "":
			return true
		case at.AddrPort.Port() == addr.AddrPort.Port() && s.covers(at.AddrPort.Addr(), addr.AddrPort.Addr().Unmap()):
			return true
		}
	}
	return false
}

// isLocal reports whether an IP address is this machine's.
func (s *Server) isLocal(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsLoopback() || a.IsUnspecified() || slices.Contains(s.local, a.WithZone(""))
}

// covers reports whether a listener at one IP address gets what is sent to
// another. An unspecified target is loopback (ip(7)); an unspecified listener has
// every address of this machine that is of its family.
func (s *Server) covers(at, to netip.Addr) bool {
	switch {
	case at == to:
		return true
	case to == netip.IPv4Unspecified():
		to = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case to == netip.IPv6Unspecified():
		to = netip.IPv6Loopback()
	}
	if at.IsUnspecified() && at.Is4() == to.Is4() {
		return to.IsLoopback() || slices.Contains(s.local, to)
	}
	return at == to
}

// ownAddresses are where a listener is reached.
func ownAddresses(l *listener.Listener) []upstream.Address {
	if path, ok := strings.CutPrefix(l.Addr(), "unix:"); ok {
		return []upstream.Address{{Path: path}}
	}
	var own []upstream.Address
	for _, at := range l.Own() {
		own = append(own, upstream.Address{AddrPort: at})
	}
	return own
}

// localAddresses are the addresses that this machine has now.
func localAddresses() []netip.Addr {
	addrs, _ := net.InterfaceAddrs() // without them loopback is still known
	var local []netip.Addr
	for _, a := range addrs {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			local = append(local, prefix.Addr())
		}
	}
	return local
}
