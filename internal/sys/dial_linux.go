package sys

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// UnixStreamSocket makes a non-blocking stream socket of the unix domain with
// socket(2). The caller owns it.
func UnixStreamSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	return max(fd, -1), err
}

// ConnectUnix connects to a path, or for a name that begins with @ to a name of
// the abstract namespace, with connect(2). On a non-blocking socket the error is
// EAGAIN while the listener's queue is full. It tells the scheduler: looking up a
// path may wait for a file system.
func ConnectUnix(fd int, path string) error {
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
}

// ConnectNow is Connect for a TCP socket that is surely non-blocking, for which
// connect(2) does not wait: so it is a raw call, see the package's documentation.
// On loopback the handshake is made within the call, which takes longer than the
// 20 µs after which sysmon would take the P away. scope is the index of the
// interface for an IPv6 address that needs one, else 0.
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
