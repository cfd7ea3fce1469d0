package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flags of recv(2) and send(2).
const (
	MSG_DONTWAIT = unix.MSG_DONTWAIT
	MSG_NOSIGNAL = unix.MSG_NOSIGNAL
	MSG_OOB      = unix.MSG_OOB
	MSG_PEEK     = unix.MSG_PEEK
	MSG_TRUNC    = unix.MSG_TRUNC
)

// Some states of a TCP socket in tcp_info.tcpi_state (include/net/tcp_states.h).
const (
	TCP_ESTABLISHED = unix.BPF_TCP_ESTABLISHED
	TCP_CLOSE       = unix.BPF_TCP_CLOSE
	TCP_CLOSE_WAIT  = unix.BPF_TCP_CLOSE_WAIT
	TCP_FIN_WAIT1   = unix.BPF_TCP_FIN_WAIT1
	TCP_FIN_WAIT2   = unix.BPF_TCP_FIN_WAIT2
	TCP_LAST_ACK    = unix.BPF_TCP_LAST_ACK
	TCP_CLOSING     = unix.BPF_TCP_CLOSING
)

// Recv receives with recvfrom(2) and no address. It returns 0 and no error at
// the end of the stream (and for an empty p on a stream that has data). With
// MSG_DONTWAIT it is a raw call, see the package's documentation.
func Recv(fd int, p []byte, flags int) (int, error) {
	var n uintptr
	var e syscall.Errno
	if flags&MSG_DONTWAIT != 0 {
		n, _, e = syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(flags), 0, 0)
	} else {
		n, _, e = syscall.Syscall6(unix.SYS_RECVFROM, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(flags), 0, 0)
	}
	return count(n, e)
}

// Send sends with sendto(2) and no address. Pass MSG_NOSIGNAL to get EPIPE
// without a SIGPIPE. With MSG_DONTWAIT it is a raw call.
func Send(fd int, p []byte, flags int) (int, error) {
	var n uintptr
	var e syscall.Errno
	if flags&MSG_DONTWAIT != 0 {
		n, _, e = syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(flags), 0, 0)
	} else {
		n, _, e = syscall.Syscall6(unix.SYS_SENDTO, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(flags), 0, 0)
	}
	return count(n, e)
}

// count is the answer of a call that moves bytes.
func count(n uintptr, e syscall.Errno) (int, error) {
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// SIOCOUTQ returns how many bytes of the send queue the peer has not
// acknowledged, sent or not (tcp(7)).
func SIOCOUTQ(fd int) (int, error) { return ioctlInt(fd, unix.SIOCOUTQ) }

// SIOCOUTQNSD returns how many bytes of the send queue have not been sent yet
// (include/uapi/linux/sockios.h; TCP only).
func SIOCOUTQNSD(fd int) (int, error) { return ioctlInt(fd, unix.SIOCOUTQNSD) }

// TCPState returns tcpi_state of getsockopt(2) TCP_INFO, such as
// TCP_CLOSE.
func TCPState(fd int) (uint8, error) {
	// tcpi_state is the first byte of struct tcp_info, and the kernel copies out
	// no more than was asked for.
	var state [4]uint8
	n := uint32(len(state))
	_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(&state)), uintptr(unsafe.Pointer(&n)), 0)
	return state[0], errnoErr(e)
}

// SocketPair makes two connected, non-blocking stream sockets of the unix domain
// with socketpair(2). The caller owns both.
func SocketPair() (a, b int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, -1, err
	}
	return fds[0], fds[1], nil
}

// HasError reports whether a socket has an error that nobody has been told of yet, and leaves
// it there. EINTR is tried again; what cannot be found out is an error.
func HasError(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd)}}
	for {
		_, err := unix.Poll(p, 0)
		if err != unix.EINTR {
			return err != nil || p[0].Revents&(unix.POLLERR|unix.POLLNVAL) != 0
		}
	}
}
