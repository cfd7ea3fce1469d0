package sockets

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
)

// Refusing returns a loopback address on which nothing listens, and which no other process gets until the test
// ends.
func Refusing(t testing.TB) string {
	t.Helper()
	_, addr := bound(t)
	return addr
}

// Silent returns the address of a listener with a full accept queue, so that the kernel drops connects, until
// the test ends.
func Silent(t testing.TB) string {
	t.Helper()
	fd, addr := bound(t)
	must.Do(t, syscall.Listen(fd, 0))
	c, err := net.Dial("tcp", addr) // the only one that fits into the queue
	must.Do(t, err)
	t.Cleanup(func() { c.Close() })
	// It enters the queue a moment after it is connected, with the last packet of the handshake.
	for queued := 0; queued == 0; {
		if queued, _, err = sys.ListenQueue(fd); err != nil {
			t.Fatal(err)
		}
	}
	return addr
}

// bound returns a socket that is bound to a loopback port until the test ends.
func bound(t testing.TB) (fd int, addr string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	loopback := [4]byte{127, 0, 0, 1}
	err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: loopback})
	name, unnamed := syscall.Getsockname(fd)
	must.Do(t, errors.Join(err, unnamed))
	return fd, netip.AddrPortFrom(netip.AddrFrom4(loopback), uint16(name.(*syscall.SockaddrInet4).Port)).String()
}
