package sys

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// Socket options of connections (socket(7)).
const (
	SO_ERROR  = unix.SO_ERROR
	SO_RCVBUF = unix.SO_RCVBUF
)

// StreamSocket makes a non-blocking TCP socket for the family of address with
// socket(2). The caller owns it.
func StreamSocket(address netip.Addr) (int, error) {
	return streamSocket(address, unix.IPPROTO_TCP)
}

func streamSocket(address netip.Addr, protocol int) (int, error) {
	family := unix.AF_INET6
	if address.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	return max(fd, -1), err
}

// Connect begins to connect with connect(2). On a non-blocking socket the error
// is EINPROGRESS; EPOLLOUT follows, and SO_ERROR then says how it went. On
// loopback the handshake is over before connect returns, but it says EINPROGRESS
// all the same (net/ipv4/af_inet.c, __inet_stream_connect). The zone of an IPv6
// address is ignored.
func Connect(fd int, to netip.AddrPort) error {
	if to.Addr().Is4() {
		return unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}
	return unix.Connect(fd, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
}

// AbortOnClose makes close(2) send a reset in place of what is queued and a FIN:
// SO_LINGER with a time of 0 (socket(7)).
func AbortOnClose(fd int) error {
	return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// Dup returns a second descriptor for what fd refers to, with fcntl(2)
// F_DUPFD_CLOEXEC. The caller owns it.
func Dup(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }
