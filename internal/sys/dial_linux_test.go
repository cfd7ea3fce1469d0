package sys_test

import (
	"net"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

func TestConnectNow(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			ln, err := net.Listen("tcp", address)
			if err != nil {
				t.Skipf("this machine has no %s: %v", address, err)
			}
			defer ln.Close()
			to := ln.Addr().(*net.TCPAddr).AddrPort()
			fd, err := sys.StreamSocket(to.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer sys.Close(fd)
			if err := sys.ConnectNow(fd, to, 0); err != syscall.EINPROGRESS {
				t.Fatalf("got %v, want EINPROGRESS", err)
			}
			c, err := ln.Accept() // the port was in the right order of bytes
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			if err := sys.ConnectNow(-1, netip.AddrPortFrom(to.Addr(), 1), 0); err != syscall.EBADF {
				t.Fatalf("got %v, want EBADF", err)
			}
		})
	}
}

func TestUnixStreamSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := sys.UnixStreamSocket()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(listener)
	if err := syscall.Bind(listener, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := sys.Listen(listener, 0); err != nil {
		t.Fatal(err)
	}
	connect := func() error {
		fd, err := sys.UnixStreamSocket()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sys.Close(fd) })
		return sys.ConnectUnix(fd, path)
	}
	if err := connect(); err != nil {
		t.Fatal(err)
	}
	if err := connect(); err != syscall.EAGAIN {
		t.Fatalf("with a full queue: %v, want EAGAIN", err)
	}
	fd, _, err := sys.AcceptSocket(listener)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	flags, err := sys.GetFl(fd)
	if err != nil || flags&sys.O_NONBLOCK == 0 {
		t.Fatalf("accepted with flags %#x, %v", flags, err)
	}
	if _, _, err := sys.AcceptSocket(listener); err != syscall.EAGAIN {
		t.Fatalf("from an empty queue: %v, want EAGAIN", err)
	}
}
