package upstream

import (
	"net/netip"
)

// An Address is what one attempt to reach a target connects to: an IP address and
// a port, or the path of a unix socket, which begins with @ for an abstract one.
type Address struct {
	AddrPort netip.AddrPort
	Path     string
}

func (a Address) network() string {
	if a.Path != "" {
		return "unix"
	}
	return "tcp"
}

// String returns the address as package net takes it.
func (a Address) String() string {
	if a.Path != "" {
		return a.Path
	}
	return a.AddrPort.String()
}
