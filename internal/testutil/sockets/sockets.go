// Package sockets makes connected pairs of real sockets for tests.
package sockets

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TCPPair returns the two ends of a TCP connection over loopback (plain TCP,
// not MPTCP). They are closed when the test ends, which does no harm to a test
// that has closed them itself.
func TCPPair(t testing.TB) (client, server *net.TCPConn) {
	t.Helper()
	c, s := pair(t, "tcp4", "127.0.0.1:0")
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// UnixPair is TCPPair for a stream socket of the unix domain.
func UnixPair(t testing.TB) (client, server *net.UnixConn) {
	t.Helper()
	// Not t.TempDir: the test's name would make the path longer than sun_path.
	dir, err := os.MkdirTemp("", "pair")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	c, s := pair(t, "unix", filepath.Join(dir, "s"))
	return c.(*net.UnixConn), s.(*net.UnixConn)
}

func pair(t testing.TB, network, address string) (client, server net.Conn) {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// The kernel completes the connection before it is accepted.
	client, err = net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	if got, want := server.RemoteAddr().String(), client.LocalAddr().String(); got != want && network != "unix" {
		t.Fatalf("accepted a connection from %s, not from %s", got, want)
	}
	return client, server
}

// FD returns the descriptor of c, which keeps owning it: use it only while c is
// open and reachable.
func FD(t testing.TB, c syscall.Conn) int {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	if err := raw.Control(func(u uintptr) { fd = int(u) }); err != nil {
		t.Fatal(err)
	}
	return fd
}
