package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ListenDrops returns how many connections and segments a listening TCP socket has
// dropped, most of them because its accept queue was full (net/ipv4/tcp_input.c,
// tcp_conn_request; net/ipv4/tcp_ipv4.c, tcp_v4_syn_recv_sock: tcp_listendrop). The client
// tries again. It is SK_MEMINFO_DROPS of getsockopt(2) SO_MEMINFO (net/core/sock.c,
// sk_get_meminfo), and wraps at 2^32. EOPNOTSUPP: nobody counts them, as of Multipath TCP,
// whose subflows have sockets of their own.
func ListenDrops(fd int) (uint32, error) {
	switch protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); {
	case err != nil:
		return 0, err
	case protocol != unix.IPPROTO_TCP:
		return 0, syscall.EOPNOTSUPP
	}
	var info [9]uint32 // SK_MEMINFO_VARS (include/uapi/linux/sock_diag.h)
	size := uint32(unsafe.Sizeof(info))
	_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	switch {
	case e != 0:
		return 0, e
	case size < uint32(unsafe.Sizeof(info)):
		return 0, syscall.EOPNOTSUPP
	}
	return info[8], nil
}
