package relay_test

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// awaitQueued waits until a connection has bytes in its receive queue.
func awaitQueued(t testing.TB, c net.Conn) {
	t.Helper()
	if over, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = over.NetConn()
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
			return !errors.Is(err, syscall.EAGAIN)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}
