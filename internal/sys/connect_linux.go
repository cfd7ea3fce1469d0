package sys

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket options of connections (socket(7)).
const (
	SO_ERROR = unix.SO_ERROR
)

// StreamSocket makes a non-blocking TCP socket for the address's family by socket(2). The caller owns it.
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

// Connect begins to connect by connect(2). On a non-blocking socket the error is EINPROGRESS; EPOLLOUT follows,
// and SO_ERROR then says how it went. On loopback the handshake is over before connect returns, but the error
// is EINPROGRESS anyway (net/ipv4/af_inet.c, __inet_stream_connect). The zone of an IPv6 address is ignored.
func Connect(fd int, to netip.AddrPort) error {
	if to.Addr().Is4() {
		return unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}
	return unix.Connect(fd, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
}

// AbortOnClose makes close(2) send a reset instead of queued bytes and a FIN: SO_LINGER with a time of 0
// (socket(7)).
func AbortOnClose(fd int) error {
	return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// Dup returns a second descriptor of fd's open file by fcntl(2) F_DUPFD_CLOEXEC. The caller owns it.
func Dup(fd int) (int, error) { return DupFrom(fd, 0) }

// DupFrom is Dup with the lowest free descriptor that is not below least.
func DupFrom(fd, least int) (int, error) {
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, least)
}

// UnixStreamSocket makes a non-blocking unix stream socket by socket(2). The caller owns it.
func UnixStreamSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	return max(fd, -1), err
}

// ConnectUnix connects by connect(2) to a path as [AtFile] finds it, or to a name of the abstract namespace that begins with
// @. On a non-blocking socket the error is EAGAIN while the listener's queue is full. It goes through the scheduler,
// because looking up a path may wait for a file system.
func ConnectUnix(fd int, path string) error {
	return AtFile(path, func(name string) error { return unix.Connect(fd, &unix.SockaddrUnix{Name: name}) })
}

// ConnectNow is Connect for a TCP socket that is certainly non-blocking, so that connect(2) does not wait. It
// is a raw call, see the package's documentation. On loopback the call also makes the handshake, which takes
// longer than the 20 µs after which sysmon would take the P away. scope is the index of the interface for an
// IPv6 address that needs one, otherwise 0.
func ConnectNow(fd int, to netip.AddrPort, scope uint32) error {
	if to.Addr().Is4() {
		sa := unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: to.Addr().As4()}
		networkOrder(&sa.Port, to.Port())
		return connectNow(fd, unsafe.Pointer(&sa), unsafe.Sizeof(sa))
	}
	sa := unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: to.Addr().As16(), Scope_id: scope}
	networkOrder(&sa.Port, to.Port())
	return connectNow(fd, unsafe.Pointer(&sa), unsafe.Sizeof(sa))
}

func networkOrder(to *uint16, port uint16) {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], port)
	*to = binary.NativeEndian.Uint16(b[:])
}

func connectNow(fd int, sa unsafe.Pointer, size uintptr) error {
	_, _, e := syscall.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(sa), size)
	return errnoErr(e)
}

// A Name is the address of a socket: an IP address and a port for TCP, a path for a unix socket. The path
// begins with @ for an abstract socket, and is only @ for one without a name.
type Name struct {
	AddrPort netip.AddrPort
	Path     string
}

// LocalName returns the address of a socket's own end by getsockname(2). For TCP it allocates nothing. It waits
// only for another call on the same socket (net/ipv4/af_inet.c, inet_getname), so it is a raw system call.
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

// hostOrder converts a port from network byte order.
func hostOrder(port uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}

// PeerName returns the address of a socket's other end by getpeername(2).
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
