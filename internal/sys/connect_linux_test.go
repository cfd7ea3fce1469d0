package sys_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// connecting begins a connection to address; the socket lives as long as the
// test unless it is closed before.
func connecting(t *testing.T, address string) (fd int, err error) {
	t.Helper()
	to := netip.MustParseAddrPort(address)
	fd, err = sys.StreamSocket(to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return fd, sys.Connect(fd, to)
}

// settled waits until a connection is made, or is not, and says which.
func settled(t *testing.T, fd int) error {
	t.Helper()
	epfd, events := newEpoll(t), make([]sys.EpollEvent, 1)
	if err := sys.EpollCtl(epfd, sys.EPOLL_CTL_ADD, fd, &sys.EpollEvent{Events: sys.EPOLLOUT}); err != nil {
		t.Fatal(err)
	}
	if n, err := sys.EpollWait(epfd, events, 60_000); n != 1 || err != nil {
		t.Fatalf("%d events, %v", n, err)
	}
	e, err := sys.GetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_ERROR)
	if err != nil {
		t.Fatal(err)
	}
	if e != 0 {
		return syscall.Errno(e)
	}
	return nil
}

func TestConnectAndAbort(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Log("left out:", err) // a machine without IPv6
			continue
		}
		defer l.Close()
		fd, err := connecting(t, l.Addr().String())
		if err != syscall.EINPROGRESS {
			t.Fatalf("connect: %v, want EINPROGRESS", err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := settled(t, fd); err != nil {
			t.Fatal(err)
		}
		if err := sys.AbortOnClose(fd); err != nil {
			t.Error(err)
		}
		if err := sys.Close(fd); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after the abort: %v, want ECONNRESET", err)
		}
	}
}

func TestConnectToNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	fd, err := connecting(t, l.Addr().String())
	defer sys.Close(fd)
	if err == syscall.EINPROGRESS {
		err = settled(t, fd)
	}
	if err != syscall.ECONNREFUSED {
		t.Errorf("got %v, want ECONNREFUSED", err)
	}
}

func TestDupOutlivesTheOriginal(t *testing.T) {
	r, w := newPipe(t)
	fd, err := sys.Dup(r)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	if _, err := sys.Write(w, []byte("hi")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	n, err := sys.Read(fd, b)
	want(t, "read", string(b[:n]), err, "hi", nil)
	if _, err := sys.Dup(-1); err != syscall.EBADF {
		t.Errorf("dup of nothing: %v", err)
	}
}

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

func TestNamesOfTCPSockets(t *testing.T) {
	client, server := sockets.TCPPair(t)
	at := func(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
	local, err := sys.LocalName(sockets.FD(t, client))
	if err != nil || local.AddrPort != at(server.RemoteAddr()) || local.Path != "" {
		t.Errorf("the client's own name is %v, %v", local, err)
	}
	peer, err := sys.PeerName(sockets.FD(t, client))
	if err != nil || peer.AddrPort != at(server.LocalAddr()) {
		t.Errorf("the client's peer is %v, %v", peer, err)
	}
}

func TestNamesOfUnixSockets(t *testing.T) {
	client, server := sockets.UnixPair(t)
	peer, err := sys.PeerName(sockets.FD(t, client))
	if want := server.LocalAddr().String(); err != nil || peer.Path != want {
		t.Errorf("the client's peer is %v, %v, want %s", peer, err, want)
	}
	if peer, err := sys.PeerName(sockets.FD(t, server)); err != nil || peer.Path != "@" {
		t.Errorf("a client without a name is %q, %v", peer.Path, err)
	}
}

func TestNameOfWhatHasNone(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if _, err := sys.PeerName(fd); err != syscall.ENOTCONN {
		t.Errorf("the peer of a socket that is not connected: %v", err)
	}
}
