package sys_test

import (
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestListenQueue(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd := sockets.FD(t, l.(syscall.Conn))
	if err := sys.Listen(fd, 7); err != nil {
		t.Fatal(err)
	}
	queued, backlog, err := sys.ListenQueue(fd)
	want(t, "backlog", backlog, err, 7, nil)
	want(t, "queued", queued, err, 0, nil)
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The client is connected as soon as the kernel has answered; the queue is
	// filled by its acknowledgement, a moment later.
	for start := time.Now(); queued != 1 && time.Since(start) < 10*time.Second; {
		queued, _, err = sys.ListenQueue(fd)
	}
	want(t, "queued", queued, err, 1, nil)
}

// TestUnixListenQueue: of a unix socket sock_diag knows the same.
func TestUnixListenQueue(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd := sockets.FD(t, l.(syscall.Conn))
	if err := sys.Listen(fd, 3); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		queued, backlog, err := sys.UnixListenQueue(fd)
		want(t, "backlog", backlog, err, 3, nil)
		want(t, "queued", queued, err, n, nil)
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	if _, _, err := sys.UnixListenQueue(sockets.FD(t, tcp.(syscall.Conn))); err == nil {
		t.Error("the queue of a TCP socket")
	}
	if _, _, err := sys.UnixListenQueue(-1); !errors.Is(err, syscall.EBADF) {
		t.Errorf("of no socket: %v", err)
	}
}

// TestListenDrops: what a full accept queue drops is counted by the socket itself.
func TestListenDrops(t *testing.T) {
	var single, multi net.ListenConfig
	single.SetMultipathTCP(false)
	multi.SetMultipathTCP(true)
	l, err := single.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd := sockets.FD(t, l.(syscall.Conn))
	if err := sys.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	if n, err := sys.ListenDrops(fd); n != 0 || err != nil {
		t.Fatalf("%d, %v before anybody came", n, err)
	}
	for end := time.Now().Add(10 * time.Second); ; {
		c, err := net.DialTimeout("tcp4", l.Addr().String(), 10*time.Millisecond)
		if err == nil {
			defer c.Close()
		}
		n, err := sys.ListenDrops(fd)
		if err != nil || time.Now().After(end) {
			t.Fatalf("%d, %v when the queue was full", n, err)
		}
		if n > 0 {
			break
		}
	}
	if _, err := sys.ListenDrops(-1); err != syscall.EBADF {
		t.Errorf("of no socket: %v", err)
	}
	m, err := multi.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	fd = sockets.FD(t, m.(syscall.Conn))
	if protocol, err := sys.GetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_PROTOCOL); err != nil || protocol == sys.IPPROTO_TCP {
		t.Skip("this kernel has no Multipath TCP")
	}
	if n, err := sys.ListenDrops(fd); err != syscall.EOPNOTSUPP {
		t.Errorf("of Multipath TCP: %d, %v", n, err)
	}
}
