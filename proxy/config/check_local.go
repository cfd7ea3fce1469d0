package config

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// source warns of a source address that no socket can be bound to now. This machine may get it
// later.
func (k *checker) source(u *Upstream) {
	if u.SourceAddress.IsValid() && !k.isLocal(u.SourceAddress) {
		k.warnAt(k.at(&u.SourceAddress, u), "write an address of this machine, or leave it out: while it has not this one, no endpoint can be connected to",
			"%v is no address of this machine now", u.SourceAddress)
	}
}

// isLocal reports whether a socket can be bound to an address. If that cannot be found out, it
// returns true. Binding sends nothing.
func isLocal(addr netip.Addr) bool {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		return !errors.Is(err, syscall.EADDRNOTAVAIL)
	}
	_ = c.Close()
	return true
}
