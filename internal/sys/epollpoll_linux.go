package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// EpollPoll collects the events that are there now, as epoll_wait(2) with a timeout
// of 0, which does not wait: so it is a raw call, see the package's documentation.
func EpollPoll(epfd int, events []EpollEvent) (int, error) {
	n, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	return count(n, e)
}
