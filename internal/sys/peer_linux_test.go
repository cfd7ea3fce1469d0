package sys_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// TestPeerAddress: it is the address of the other end, and costs no garbage.
func TestPeerAddress(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Logf("%s: %v", addr, err) // a machine without IPv6
			continue
		}
		defer ln.Close()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		want := ln.Addr().(*net.TCPAddr).AddrPort()
		err = raw.Control(func(fd uintptr) {
			got, err := sys.PeerAddress(int(fd))
			if err != nil || got != want {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
			if n := testing.AllocsPerRun(100, func() { _, _ = sys.PeerAddress(int(fd)) }); n > 0 {
				t.Errorf("%v allocations", n)
			}
			if at, err := sys.OriginalDestination(int(fd)); err == nil && at != want {
				t.Errorf("a connection that nobody has redirected went to %v", at)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPeerAddressOfOthers: a unix socket has none, nor has one that is not connected.
func TestPeerAddressOfOthers(t *testing.T) {
	a, b, err := sys.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(a)
	defer sys.Close(b)
	if at, err := sys.PeerAddress(a); err != syscall.EAFNOSUPPORT {
		t.Errorf("that of a unix socket is %v, %v", at, err)
	}
	if at, err := sys.OriginalDestination(a); err == nil {
		t.Errorf("a unix socket went to %v", at)
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if at, err := sys.PeerAddress(fd); err != syscall.ENOTCONN {
		t.Errorf("that of a socket that is not connected is %v, %v", at, err)
	}
}
