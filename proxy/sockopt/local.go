package sockopt

import (
	"net"
	"net/netip"
	"strconv"
	"sync"
)

// Local returns a function that reports whether a connection to an address ends on this machine. Such an address is a
// loopback address, an unspecified address (a connection to it goes to the loopback, see ip(7)), or an address of an
// interface. The interfaces are read once, when they are first needed. If they cannot be read, only addresses of the
// first two kinds are local.
func Local() func(netip.Addr) bool {
	machine := sync.OnceValue(addresses)
	return func(ip netip.Addr) bool {
		ip = ip.Unmap().WithZone("")
		if ip.IsLoopback() || ip.IsUnspecified() {
			return true
		}
		return machine()[ip]
	}
}

func addresses() map[netip.Addr]bool {
	found := make(map[netip.Addr]bool)
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			found[p.Addr().Unmap().WithZone("")] = true
		}
	}
	return found
}

// Canonical returns one form for all forms of an address. An address of IPv4 is not mapped into IPv6. The zone of a
// link-local address is the number of its interface, if there is an interface with this name. Other addresses have no
// zone, because the kernel ignores it (net/ipv6/af_inet6.c, __inet6_bind; net/ipv6/tcp_ipv6.c, tcp_v6_connect).
func Canonical(ip netip.Addr) netip.Addr {
	ip = ip.Unmap()
	if !ip.IsLinkLocalUnicast() || ip.Zone() == "" {
		return ip.WithZone("")
	}
	if i, err := net.InterfaceByName(ip.Zone()); err == nil {
		return ip.WithZone(strconv.Itoa(i.Index))
	}
	return ip
}
