package core

import (
	"net/netip"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/source"
)

// aim makes c that of a connection.
func (c *Client) aim(l *Listening, fd int, peer netip.AddrPort) {
	c.listening, c.fd, c.tcp, c.peer = l, fd, l.TCP, source.TCP(peer)
}

func unixPeerOf(fd int) source.Source {
	peer, err := sys.PeerCredentials(fd)
	if err != nil {
		return source.Source{}
	}
	return source.Unix(source.Credentials(peer))
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
