package sys

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AcceptSocket is Accept4 with SOCK_NONBLOCK and SOCK_CLOEXEC, and returns the address of a
// TCP connection's other end, IPv4 addresses mapped into IPv6 as IPv4. It is not valid for a
// unix socket. The kernel knows it of a connection that was reset in the queue too
// (net/socket.c, do_accept, asks inet_getname in net/ipv4/af_inet.c with peer 2), of which
// getpeername(2) says ENOTCONN. It allocates nothing.
//
// It tells the scheduler, although a non-blocking listener does not make it wait: the flag
// belongs to the open file, which other processes may share and make blocking (os.File's Fd
// does so).
func AcceptSocket(fd int) (int, netip.AddrPort, error) {
	var raw unix.RawSockaddrInet6 // a longer address is cut off
	size := uint32(unsafe.Sizeof(raw))
	nfd, _, e := syscall.Syscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&raw)), uintptr(unsafe.Pointer(&size)),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return -1, netip.AddrPort{}, e
	}
	at, err := addressOf(&raw)
	if err != nil {
		return int(nfd), netip.AddrPort{}, nil
	}
	return int(nfd), netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}
