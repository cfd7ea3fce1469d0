package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket options of when TCP sends what it has (tcp(7)).
const (
	// TCP_CORK keeps what does not fill a segment, for 200 ms at most. It outranks
	// TCP_NODELAY, and setting it to 0 sends at once.
	TCP_CORK = unix.TCP_CORK

	// TCP_MAXSEG is the largest segment to send and to offer, in bytes.
	TCP_MAXSEG = unix.TCP_MAXSEG

	// TCP_QUICKACK set to 0 has acknowledgements wait for data to go along, for up
	// to 40 ms and more. The kernel changes it on its own.
	TCP_QUICKACK = unix.TCP_QUICKACK
)

// TCPInfo is struct tcp_info (include/uapi/linux/tcp.h). A kernel that knows
// fewer fields leaves the others as they were.
type TCPInfo = unix.TCPInfo

// GetTCPInfo fills info by getsockopt(2) TCP_INFO. EOPNOTSUPP or ENOPROTOOPT:
// that is no TCP socket.
func GetTCPInfo(fd int, info *TCPInfo) error {
	n := uint32(unsafe.Sizeof(*info))
	_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&n)), 0)
	return errnoErr(e)
}
