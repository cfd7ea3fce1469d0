package listener

import "net/netip"

// Local returns the address that every client has connected to, as far as this host is
// asked; invalid if the socket is a unix one, or takes those of several addresses.
func (l *Listener) Local() netip.AddrPort {
	at, err := netip.ParseAddrPort(l.Addr())
	if err != nil || at.Addr().IsUnspecified() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
