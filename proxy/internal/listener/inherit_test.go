package listener_test

import (
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/sockopt"
)

// The values are none that package net sets on accepted sockets.
func TestAcceptedSocketsInheritTheOptions(t *testing.T) {
	for _, spec := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		s := start(t, listen(t, spec, &listener.Config{
			Options: sockopt.Options{KeepAlive: 41 * time.Second, UserTimeout: 43 * time.Second},
		}))
		dial(t, s.Listener)
		fd := sockets.FD(t, (<-s.conns).(*net.TCPConn))
		for _, o := range []struct{ level, option, want int }{
			{sys.SOL_SOCKET, sys.SO_PROTOCOL, sys.IPPROTO_TCP}, // not MPTCP
			{sys.SOL_SOCKET, sys.SO_OOBINLINE, 1},
			{sys.SOL_SOCKET, sys.SO_KEEPALIVE, 1},
			{sys.IPPROTO_TCP, sys.TCP_NODELAY, 1},
			{sys.IPPROTO_TCP, sys.TCP_KEEPIDLE, 41},
			{sys.IPPROTO_TCP, sys.TCP_KEEPINTVL, 10},
			{sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, 43_000},
		} {
			got, err := sys.GetsockoptInt(fd, o.level, o.option)
			if err != nil || got != o.want {
				t.Errorf("accepted on %s: option %d of level %d is %d, %v, want %d", spec, o.option, o.level, got, err, o.want)
			}
		}
		s.end(t)
	}
}
