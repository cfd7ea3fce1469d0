package sys

import "golang.org/x/sys/unix"

// SocketCookie returns SO_COOKIE, a number that no other socket of this network
// namespace has or will have (socket(7); Linux 4.12).
func SocketCookie(fd int) (uint64, error) {
	return unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
}
