package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// EpollPwait2 is EpollWait with nanoseconds, epoll_pwait2(2). ENOSYS: Linux before
// 5.11. It tells the scheduler that it waits.
func EpollPwait2(epfd int, events []EpollEvent, nsec int64) (int, error) {
	// struct __kernel_timespec has 64 bits in each field on every system.
	timeout := [2]int64{nsec / 1e9, nsec % 1e9}
	n, _, e := syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epfd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	return count(n, e)
}
