// Package sockets makes connected pairs of real sockets for tests.
package sockets

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
)

// TCPPair returns the two ends of a TCP connection over loopback (plain TCP, not MPTCP). They are closed when
// the test ends; the test may close them before.
func TCPPair(t testing.TB) (client, server *net.TCPConn) {
	t.Helper()
	c, s := pair(t, "tcp4", "127.0.0.1:0", false)
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// MultipathPair is TCPPair for Multipath TCP. It skips the test if the kernel has none.
func MultipathPair(t testing.TB) (client, server *net.TCPConn) {
	t.Helper()
	c, s := pair(t, "tcp4", "127.0.0.1:0", true)
	if is, err := s.(*net.TCPConn).MultipathTCP(); !is || err != nil {
		t.Skipf("this kernel has no Multipath TCP, or it is off: %v", err)
	}
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// UnixPair is TCPPair for a unix stream socket.
func UnixPair(t testing.TB) (client, server *net.UnixConn) {
	t.Helper()
	// Not t.TempDir: with the test's name the path may exceed sun_path.
	dir := must.Get(os.MkdirTemp("", "pair"))(t)
	defer os.RemoveAll(dir)
	c, s := pair(t, "unix", filepath.Join(dir, "s"), false)
	return c.(*net.UnixConn), s.(*net.UnixConn)
}

func pair(t testing.TB, network, address string, multipath bool) (client, server net.Conn) {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(multipath)
	l := must.Get(lc.Listen(context.Background(), network, address))(t)
	defer l.Close()
	// The kernel completes the connection before it is accepted.
	var d net.Dialer
	d.SetMultipathTCP(multipath)
	client = must.Get(d.Dial(network, l.Addr().String()))(t)
	t.Cleanup(func() { client.Close() })
	server = must.Get(l.Accept())(t)
	t.Cleanup(func() { server.Close() })
	if got, want := server.RemoteAddr().String(), client.LocalAddr().String(); got != want && network != "unix" {
		t.Fatalf("accepted a connection from %s, not from %s", got, want)
	}
	return client, server
}

// FD returns the descriptor of c, which still owns it: use it only while c is open and reachable.
func FD(t testing.TB, c syscall.Conn) int {
	t.Helper()
	raw := must.Get(c.SyscallConn())(t)
	fd := -1
	must.Do(t, raw.Control(func(u uintptr) { fd = int(u) }))
	return fd
}
