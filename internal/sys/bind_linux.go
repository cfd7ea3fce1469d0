package sys

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// Bind gives a socket its local address with bind(2); port 0 lets the kernel choose
// one. The zone of an IPv6 address is ignored.
func Bind(fd int, to netip.AddrPort) error {
	if to.Addr().Is4() {
		return unix.Bind(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}
	return unix.Bind(fd, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
}

// LocalPort returns the port of a TCP socket's local address with getsockname(2), 0
// if it has none yet.
func LocalPort(fd int) (int, error) {
	sa, err := unix.Getsockname(fd)
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return sa.Port, err
	case *unix.SockaddrInet6:
		return sa.Port, err
	}
	return 0, err
}
