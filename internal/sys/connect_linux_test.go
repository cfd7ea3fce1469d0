package sys_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
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
