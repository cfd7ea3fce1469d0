package sys_test

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// TestBind: bind chooses a port, unless IP_BIND_ADDRESS_NO_PORT leaves it to connect.
func TestBind(t *testing.T) {
	loopback := netip.MustParseAddrPort("127.0.0.1:0")
	for _, late := range []bool{false, true} {
		lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) {
				if late {
					if err := sys.SetsockoptInt(int(fd), sys.IPPROTO_IP, sys.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
						t.Error(err)
					}
				}
				port, err := sys.LocalPort(int(fd))
				want(t, "port before", port, err, 0, nil)
				want(t, "bind", 0, sys.Bind(int(fd), loopback), 0, nil)
				port, err = sys.LocalPort(int(fd))
				if (port == 0) != late || err != nil {
					t.Errorf("late %v: port %d, %v", late, port, err)
				}
			})
		}}
		l, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
		if err == nil {
			l.Close()
		}
		if (err == nil) != late { // a socket with a port cannot be bound again
			t.Errorf("late %v: %v", late, err)
		}
	}
}
