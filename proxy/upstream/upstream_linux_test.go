package upstream_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/proxy/upstream"
)

// fromPort makes g's sockets choose the one local port.
func fromPort(t *testing.T, g *upstream.Group, port uint16) {
	t.Helper()
	g.AddControl(func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			only := int(port)<<16 | int(port)
			err := sys.SetsockoptInt(int(fd), sys.IPPROTO_IP, sys.IP_LOCAL_PORT_RANGE, only)
			if errors.Is(err, syscall.ENOPROTOOPT) {
				t.Skip("needs IP_LOCAL_PORT_RANGE, which this kernel lacks (Linux 6.3 has it)")
			}
			if err != nil {
				t.Errorf("IP_LOCAL_PORT_RANGE: %v", err)
			}
		})
	})
}

// freePort returns a port of the ephemeral range on which nobody listens at a loopback
// address.
func freePort(t *testing.T, at string) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", at+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// Package net tries again, twice, when the kernel has chosen the port on which
// nobody listens as the source; with a source that is given it does not.
func TestConnectToItselfIsRefused(t *testing.T) {
	addr := freePort(t, "127.0.6.1") // where no other socket gets it meanwhile
	g := group(t, nil, addr.String())
	g.SetSource(addr)
	conn, err := g.Dial(context.Background())
	if err == nil {
		t.Fatalf("connected %s to %s", conn.LocalAddr(), conn.RemoteAddr())
	}
	if !errors.Is(err, upstream.ErrSelfConnect) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error is %v, want ErrSelfConnect, an ECONNREFUSED", err)
	}
}

func TestPortExhaustionIsNamed(t *testing.T) {
	ln := serve(t, "tcp", "127.0.0.1:0")
	var g *upstream.Group
	var conn net.Conn
	err := error(syscall.EADDRNOTAVAIL)
	for try := 0; try < 20 && errors.Is(err, syscall.EADDRNOTAVAIL); try++ { // somebody may take it first
		g = group(t, nil, ln.Addr().String())
		fromPort(t, g, freePort(t, "127.0.0.1").Port())
		conn, err = g.Dial(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = g.Dial(context.Background())
	if !errors.Is(err, upstream.ErrPortsExhausted) || !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("error is %v, want ErrPortsExhausted, an EADDRNOTAVAIL", err)
	}
}

func TestDialedSocketHasTheOptions(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln := serve(t, "tcp", addr)
		g := group(t, &upstream.Config{
			Options: socket.Options{KeepAlive: 41 * time.Second, UserTimeout: 43 * time.Second},
		}, ln.Addr().String())
		conn, err := g.Dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, o := range []struct{ level, option, want int }{
			{sys.SOL_SOCKET, sys.SO_PROTOCOL, sys.IPPROTO_TCP}, // not MPTCP
			{sys.SOL_SOCKET, sys.SO_OOBINLINE, 1},
			{sys.SOL_SOCKET, sys.SO_KEEPALIVE, 1},
			{sys.IPPROTO_TCP, sys.TCP_NODELAY, 1},
			{sys.IPPROTO_TCP, sys.TCP_KEEPIDLE, 41},
			{sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, 43_000},
		} {
			got, err := sys.GetsockoptInt(sockets.FD(t, conn.(*net.TCPConn)), o.level, o.option)
			if err != nil || got != o.want {
				t.Errorf("to %s: option %d of level %d is %d, %v, want %d", addr, o.option, o.level, got, err, o.want)
			}
		}
	}
}
