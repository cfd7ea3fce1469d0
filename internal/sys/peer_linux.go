package sys

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Credentials are those of a process. IDs that have none in the caller's user namespace are
// the overflow ID, 65534 as a rule (user_namespaces(7)); PID is 0 for a process that the
// caller's PID namespace does not show.
type Credentials struct {
	UID, GID uint32
	PID      int32
}

// PeerCredentials returns the credentials that the peer of a unix stream socket had when it
// called connect(2), or when it made the pair, with SO_PEERCRED (unix(7)): the kernel keeps
// them until the socket is closed, also when the peer has closed its own. A socket that has
// none is ENOTCONN. It allocates nothing.
func PeerCredentials(fd int) (Credentials, error) {
	var c unix.Ucred
	size := uint32(unix.SizeofUcred)
	_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERCRED,
		uintptr(unsafe.Pointer(&c)), uintptr(unsafe.Pointer(&size)), 0)
	switch {
	case e != 0:
		return Credentials{}, e
	case c.Uid == ^uint32(0): // no ID of anybody (net/core/sock.c, cred_to_ucred)
		return Credentials{}, syscall.ENOTCONN
	}
	return Credentials{UID: c.Uid, GID: c.Gid, PID: c.Pid}, nil
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
	var raw unix.RawSockaddrInet6
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

// addressOf reads an address of either family, which IPv6's has room for.
func addressOf(raw *unix.RawSockaddrInet6) (netip.AddrPort, error) {
	switch raw.Family {
	case unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(raw))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), hostOrder(in.Port)), nil
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16(raw.Addr), hostOrder(raw.Port)), nil
	}
	return netip.AddrPort{}, syscall.EAFNOSUPPORT
}
