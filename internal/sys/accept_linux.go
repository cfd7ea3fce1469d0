package sys

import "golang.org/x/sys/unix"

// Flags of accept4(2).
const (
	SOCK_CLOEXEC  = unix.SOCK_CLOEXEC
	SOCK_NONBLOCK = unix.SOCK_NONBLOCK
)

// Accept4 takes a connection out of the queue of a listening socket (accept4(2)).
// The caller owns the new descriptor. Unlike on other systems it does not
// inherit O_NONBLOCK from the listener: without SOCK_NONBLOCK it blocks.
func Accept4(fd, flags int) (int, error) {
	nfd, _, err := unix.Accept4(fd, flags)
	if err != nil {
		return -1, err
	}
	return nfd, nil
}

// ShutdownBoth ends both directions with shutdown(2) SHUT_RDWR; whoever is
// blocked in a receive on the socket gets an end of file.
func ShutdownBoth(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) }
