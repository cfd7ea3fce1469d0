package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// AcceptSocket is Accept4 with SOCK_NONBLOCK and SOCK_CLOEXEC, that does not ask
// for the peer's address. It tells the scheduler, although a non-blocking listener
// does not make it wait: the flag belongs to the open file, which other processes
// may share and make blocking (os.File's Fd does so).
func AcceptSocket(fd int) (int, error) {
	nfd, _, e := syscall.Syscall6(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return -1, e
	}
	return int(nfd), nil
}
