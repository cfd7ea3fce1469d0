package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/penstock/penstock/proxy/socket"
)

// checkTargets refuses a target that is the proxy itself: each connection would
// make another, until the limit. A name is looked at when it was resolved.
func (s *Server) checkTargets() error {
	for _, to := range s.cfg.To {
		if s.listensOn(to.Network, to.Name) {
			return fmt.Errorf("%w %q: the proxy itself listens there: write where the server does", socket.ErrAddress, to)
		}
	}
	return nil
}

// listensOn reports whether a connection to addr, which package net takes, would
// reach one of the server's listeners.
func (s *Server) listensOn(network, addr string) bool {
	to, err := netip.ParseAddrPort(addr)
	for _, l := range s.listeners {
		if network == "unix" {
			if l.Addr() == "unix:"+addr {
				return true
			}
			continue
		}
		at, atErr := netip.ParseAddrPort(l.Addr())
		if err == nil && atErr == nil && at.Port() == to.Port() && s.covers(at.Addr().Unmap(), to.Addr().Unmap()) {
			return true
		}
	}
	return false
}

// covers reports whether a listener at one IP address gets what is sent to
// another. An unspecified target is loopback (ip(7)); an unspecified listener has
// every address of this machine, and if it is an IPv6 one those of IPv4 too.
func (s *Server) covers(at, to netip.Addr) bool {
	switch {
	case at == to:
		return true
	case to == netip.IPv4Unspecified():
		to = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case to == netip.IPv6Unspecified():
		to = netip.IPv6Loopback()
	}
	if at.IsUnspecified() && (at.Is6() || to.Is4()) {
		return to.IsLoopback() || slices.Contains(s.local, to)
	}
	return at == to
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
