package sys

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Name is the address of a socket: of TCP an IP address and a port, of a unix
// socket a path, which begins with @ for an abstract one, and is @ alone for one
// without a name.
type Name struct {
	AddrPort netip.AddrPort
	Path     string
}

// LocalName returns the address of a socket's own end, with getsockname(2). For TCP
// it allocates nothing. It waits for nobody but who is inside another call on the same
// socket (net/ipv4/af_inet.c, inet_getname), so it is a raw system call.
func LocalName(fd int) (Name, error) {
	var raw unix.RawSockaddrAny
	size := uint32(unsafe.Sizeof(raw))
	_, _, e := syscall.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&raw)), uintptr(unsafe.Pointer(&size)))
	switch {
	case e != 0:
		return Name{}, e
	case raw.Addr.Family == unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(&raw))
		return Name{AddrPort: netip.AddrPortFrom(netip.AddrFrom4(in.Addr), hostOrder(in.Port))}, nil
	case raw.Addr.Family == unix.AF_INET6:
		in := (*unix.RawSockaddrInet6)(unsafe.Pointer(&raw))
		return Name{AddrPort: netip.AddrPortFrom(netip.AddrFrom16(in.Addr), hostOrder(in.Port))}, nil
	}
	return name(unix.Getsockname(fd))
}

// hostOrder turns the bytes of a port, which are in network order, around.
func hostOrder(port uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}

// PeerName returns the address of a socket's other end, with getpeername(2).
func PeerName(fd int) (Name, error) { return name(unix.Getpeername(fd)) }

func name(sa unix.Sockaddr, err error) (Name, error) {
	if err != nil {
		return Name{}, err
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return Name{AddrPort: netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))}, nil
	case *unix.SockaddrInet6:
		return Name{AddrPort: netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))}, nil
	case *unix.SockaddrUnix:
		return Name{Path: sa.Name}, nil
	}
	return Name{}, syscall.EAFNOSUPPORT
}
