package config

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// source warns of an address that endpoints cannot be connected to from, now. It may be given to
// this machine later.
func (k *checker) source(u *Upstream) {
	if u.SourceAddress.IsValid() && !k.isLocal(u.SourceAddress) {
		k.doubtAt(k.at(&u.SourceAddress, u), "write an address of this machine, or leave it out: while it has not this one, no endpoint can be connected to",
			"%v is no address of this machine now", u.SourceAddress)
	}
}

// isLocal reports whether a socket can be bound to an address; an address of which that cannot
// be found out is taken for one. Binding sends nothing.
func isLocal(addr netip.Addr) bool {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		return !errors.Is(err, syscall.EADDRNOTAVAIL)
	}
	_ = c.Close()
	return true
}
