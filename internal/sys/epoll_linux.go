package sys

import "golang.org/x/sys/unix"

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

// EpollEvent is struct epoll_event. Its 64 bits of data are two words here: Fd,
// and Pad, which the kernel keeps as faithfully as the first.
type EpollEvent = unix.EpollEvent

// EpollCreate1 makes an epoll instance with epoll_create1(2) and EPOLL_CLOEXEC.
// The caller owns the descriptor.
func EpollCreate1() (int, error) { return unix.EpollCreate1(unix.EPOLL_CLOEXEC) }

// EpollCtl adds, changes or removes fd (epoll_ctl(2)).
func EpollCtl(epfd, op, fd int, event *EpollEvent) error {
	return unix.EpollCtl(epfd, op, fd, event)
}

// EpollWait waits with epoll_wait(2) for so many milliseconds, forever if
// negative, and returns how many events it stored. EINTR: a signal came first.
// It tells the scheduler that it waits.
func EpollWait(epfd int, events []EpollEvent, msec int) (int, error) {
	return atLeast0(unix.EpollWait(epfd, events, msec))
}

// Eventfd makes a counter with eventfd(2), non-blocking. Eight bytes written add
// to it, and as long as it is not 0 it can be read, which makes it 0. The caller
// owns the descriptor.
func Eventfd() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }
