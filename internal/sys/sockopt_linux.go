package sys

import "golang.org/x/sys/unix"

// Socket options (socket(7), ip(7), tcp(7)).
const (
	SOL_SOCKET    = unix.SOL_SOCKET
	SO_KEEPALIVE  = unix.SO_KEEPALIVE
	SO_OOBINLINE  = unix.SO_OOBINLINE
	SO_PROTOCOL   = unix.SO_PROTOCOL
	IPPROTO_IP    = unix.IPPROTO_IP
	IPPROTO_TCP   = unix.IPPROTO_TCP
	TCP_NODELAY   = unix.TCP_NODELAY
	TCP_KEEPIDLE  = unix.TCP_KEEPIDLE
	TCP_KEEPINTVL = unix.TCP_KEEPINTVL

	// TCP_USER_TIMEOUT is in milliseconds.
	TCP_USER_TIMEOUT = unix.TCP_USER_TIMEOUT

	// IP_LOCAL_PORT_RANGE has the lowest port in the low half and the highest in
	// the high half (Linux 6.3).
	IP_LOCAL_PORT_RANGE = unix.IP_LOCAL_PORT_RANGE
)

// Events of poll(2). POLLERR and POLLHUP are told of without being asked for.
const (
	POLLIN  = unix.POLLIN
	POLLERR = unix.POLLERR
	POLLHUP = unix.POLLHUP
)

// SetsockoptInt sets an integer option with setsockopt(2).
func SetsockoptInt(fd, level, option, value int) error {
	return unix.SetsockoptInt(fd, level, option, value)
}

// GetsockoptInt reads an integer option with getsockopt(2).
func GetsockoptInt(fd, level, option int) (int, error) {
	return unix.GetsockoptInt(fd, level, option)
}

// Poll returns which of the events stand for fd now, with a poll(2) that does not
// wait. On a listening socket POLLIN means that its accept queue is not empty
// (include/net/inet_connection_sock.h, inet_csk_listen_poll).
func Poll(fd int, events int16) (int16, error) {
	set := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
	_, err := unix.Poll(set[:], 0)
	return set[0].Revents, err
}

// Fchmod sets the mode of what fd refers to with fchmod(2). For a unix socket
// that is not bound yet it is the mode that bind(2) gives the path, less the
// umask (net/unix/af_unix.c, unix_bind_bsd).
func Fchmod(fd int, mode uint32) error { return unix.Fchmod(fd, mode) }

// LOCK_EX asks Flock for the exclusive lock.
const LOCK_EX = unix.LOCK_EX

// Flock applies flock(2) to fd, and waits for the lock unless told otherwise. The
// lock goes with the last descriptor of the open file.
func Flock(fd, how int) error { return unix.Flock(fd, how) }
