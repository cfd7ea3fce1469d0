package core

import (
	"net/netip"

	"github.com/penstock/penstock/internal/sys"
)

// aim makes c that of a socket.
func (c *Client) aim(l *Listening, fd int) { c.listening, c.fd, c.tcp = l, fd, l.TCP }

func peerOf(fd int) netip.AddrPort {
	at, _ := sys.PeerAddress(fd) // one that has gone has none
	return unmapped(at)
}

func localOf(fd int) netip.AddrPort {
	name, err := sys.LocalName(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return unmapped(name.AddrPort)
}

// originalOf asks netfilter, which knows no connection that it has not redirected.
func originalOf(fd int) netip.AddrPort {
	at, err := sys.OriginalDestination(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return unmapped(at)
}

// unmapped turns an address of IPv4 that a socket of IPv6 has into what it is.
func unmapped(at netip.AddrPort) netip.AddrPort {
	if !at.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
