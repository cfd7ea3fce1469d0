package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Events and operations of epoll_ctl(2).
const (
	EPOLLIN        = unix.EPOLLIN
	EPOLLOUT       = unix.EPOLLOUT
	EPOLLERR       = unix.EPOLLERR
	EPOLLHUP       = unix.EPOLLHUP
	EPOLLPRI       = unix.EPOLLPRI
	EPOLLET        = unix.EPOLLET
	EPOLLRDHUP     = unix.EPOLLRDHUP
	EPOLLEXCLUSIVE = unix.EPOLLEXCLUSIVE // Linux 4.5

	EPOLL_CTL_ADD = unix.EPOLL_CTL_ADD
	EPOLL_CTL_MOD = unix.EPOLL_CTL_MOD
	EPOLL_CTL_DEL = unix.EPOLL_CTL_DEL
)

// EpollEvent is struct epoll_event. Its 64 bits of data are two words here, Fd and Pad. The kernel returns both
// unchanged.
type EpollEvent = unix.EpollEvent

// EpollCreate1 makes an epoll instance by epoll_create1(2) with EPOLL_CLOEXEC. The caller owns the descriptor.
func EpollCreate1() (int, error) { return unix.EpollCreate1(unix.EPOLL_CLOEXEC) }

// EpollCtl adds, changes or removes fd (epoll_ctl(2)).
func EpollCtl(epfd, op, fd int, event *EpollEvent) error {
	return unix.EpollCtl(epfd, op, fd, event)
}

// EpollWait waits by epoll_wait(2) for msec milliseconds, forever if negative, and returns how many events it
// stored. EINTR: a signal came first. It goes through the scheduler.
func EpollWait(epfd int, events []EpollEvent, msec int) (int, error) {
	return atLeast0(unix.EpollWait(epfd, events, msec))
}

// Eventfd makes a non-blocking counter by eventfd(2). Eight bytes written add to it. While it is not 0 it can
// be read, which sets it to 0. The caller owns the descriptor.
func Eventfd() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }

// EpollPoll collects the events that are there now, by epoll_wait(2) with a timeout of 0. That does not wait,
// so it is a raw call, see the package's documentation.
func EpollPoll(epfd int, events []EpollEvent) (int, error) {
	n, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	return count(n, e)
}

// EpollPwait2 is EpollWait with a timeout in nanoseconds, by epoll_pwait2(2). ENOSYS: Linux before 5.11. It
// goes through the scheduler.
func EpollPwait2(epfd int, events []EpollEvent, nsec int64) (int, error) {
	// struct __kernel_timespec has fields of 64 bits on every system.
	timeout := [2]int64{nsec / 1e9, nsec % 1e9}
	n, _, e := syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epfd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	return count(n, e)
}

// WaitExited waits for the end of a child of this process without reaping it (waitid(2), WEXITED|WNOWAIT): no
// other process gets its id until it is reaped.
func WaitExited(pid int) error {
	return unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
}
