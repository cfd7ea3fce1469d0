package sys

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PeerAddress returns the address of the other end of a TCP socket, with getpeername(2),
// and allocates nothing. That of a unix socket is EAFNOSUPPORT. It is a raw system call,
// as [LocalName] is.
func PeerAddress(fd int) (netip.AddrPort, error) {
	var raw unix.RawSockaddrAny
	size := uint32(unsafe.Sizeof(raw))
	_, _, e := syscall.RawSyscall(unix.SYS_GETPEERNAME, uintptr(fd), uintptr(unsafe.Pointer(&raw)), uintptr(unsafe.Pointer(&size)))
	if e != 0 {
		return netip.AddrPort{}, e
	}
	return addressOf(&raw)
}

// OriginalDestination returns where a TCP connection went before netfilter redirected
// it to this socket, with getsockopt(2) SO_ORIGINAL_DST
// (include/uapi/linux/netfilter_ipv4.h), which IPv6 has under the same number
// (netfilter_ipv6/ip6_tables.h). The error is ENOENT, or ENOPROTOOPT where connections
// are not tracked, for one that was not redirected.
func OriginalDestination(fd int) (netip.AddrPort, error) {
	at, err := originalDestination(fd, unix.IPPROTO_IP)
	if err != nil {
		return originalDestination(fd, unix.IPPROTO_IPV6)
	}
	return at, nil
}

func originalDestination(fd, level int) (netip.AddrPort, error) {
	const originalDst = 80 // SO_ORIGINAL_DST, IP6T_SO_ORIGINAL_DST
	var raw unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrInet6)
	if level == unix.IPPROTO_IP {
		size = unix.SizeofSockaddrInet4
	}
	_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), originalDst,
		uintptr(unsafe.Pointer(&raw)), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return netip.AddrPort{}, e
	}
	return addressOf(&raw)
}

func addressOf(raw *unix.RawSockaddrAny) (netip.AddrPort, error) {
	switch raw.Addr.Family {
	case unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(raw))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), hostOrder(in.Port)), nil
	case unix.AF_INET6:
		in := (*unix.RawSockaddrInet6)(unsafe.Pointer(raw))
		return netip.AddrPortFrom(netip.AddrFrom16(in.Addr), hostOrder(in.Port)), nil
	}
	return netip.AddrPort{}, syscall.EAFNOSUPPORT
}
