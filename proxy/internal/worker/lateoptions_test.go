package worker_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// connectedTo returns the sockets of this process that are connected to an address.
func connectedTo(addr netip.AddrPort) (fds []int) {
	for fd := range leak.Take() {
		if peer, err := sys.PeerName(fd); err == nil && peer.AddrPort == addr {
			fds = append(fds, fd)
		}
	}
	return fds
}

// The options that matter to lasting connections are set on those, and cost the others
// nothing.
func TestLastingConnectionsGetTheirOptions(t *testing.T) {
	target := echo(t)
	r := newRig(t, func(c *worker.Config) {
		c.Listeners[0].Service = to(t, target)
		c.Listeners[0].Service.Options = sockopt.Options{KeepAlive: 41 * time.Second, UserTimeout: 43 * time.Second}
	})
	r.serve(t)
	const sessions = 5
	var conns []net.Conn
	for range sessions {
		conns = append(conns, r.dial(t))
	}
	for _, c := range conns {
		talk(t, c)
	}
	fds := connectedTo(netip.MustParseAddrPort(target))
	if len(fds) != sessions {
		t.Fatalf("%d sockets are connected to the target, want %d", len(fds), sessions)
	}
	has := func(fd, level, option int) int {
		n, err := sys.GetsockoptInt(fd, level, option)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if has(fds[0], sys.SOL_SOCKET, sys.SO_KEEPALIVE) != 0 {
		t.Log("a second has gone by already")
	}
	for _, fd := range fds {
		eventually(t, func() bool { return has(fd, sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT) == 43_000 })
		if has(fd, sys.SOL_SOCKET, sys.SO_KEEPALIVE) != 1 || has(fd, sys.IPPROTO_TCP, sys.TCP_KEEPIDLE) != 41 {
			t.Errorf("socket %d has not all of its options", fd)
		}
	}
}
