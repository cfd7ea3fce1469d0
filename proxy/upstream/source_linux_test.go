package upstream_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/proxy/upstream"
)

func from(source string) *upstream.Config {
	return &upstream.Config{Source: netip.MustParseAddr(source)}
}

func TestConnectsFromTheSource(t *testing.T) {
	ln := serve(t, "tcp", "127.0.0.1:0")
	for _, source := range []string{"127.0.0.2", "::ffff:127.0.0.3"} {
		g := group(t, from(source), ln.Addr().String())
		conn, err := g.Dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got, want := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr(), g.Source(); got != want {
			t.Errorf("connected from %v, want %v", got, want)
		}
		for _, o := range [][3]int{{sys.IPPROTO_IP, sys.IP_BIND_ADDRESS_NO_PORT, 1}, {sys.SOL_SOCKET, sys.SO_OOBINLINE, 1}} {
			if n, err := sys.GetsockoptInt(sockets.FD(t, conn.(*net.TCPConn)), o[0], o[1]); n != o[2] || err != nil {
				t.Errorf("option %d is %d, %v, want %d", o[1], n, err, o[2])
			}
		}
	}
}

func TestUnixTargetsHaveNoSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, "unix", path)
	conn, err := group(t, from("127.0.0.2"), "unix:"+path).Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestSourceThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		source, target, says string
		is                   error
	}{
		{"192.0.2.1", "127.0.0.1:80", "source address 192.0.2.1: this machine does not have", upstream.ErrSource},
		{"0.0.0.0", "127.0.0.1:80", "source address 0.0.0.0: give one that this machine has", nil},
		{"224.0.0.1", "127.0.0.1:80", "give one that this machine has", nil},
		{"fe80::1%lo", "127.0.0.1:80", "without a zone", nil},
		{"127.0.0.1", "[::1]:80", `"[::1]:80": the source address, 127.0.0.1, is of the other family`, socket.ErrAddress},
	} {
		addr, err := socket.Parse(c.target)
		if err != nil {
			t.Fatal(err)
		}
		_, err = upstream.New([]socket.Address{addr}, from(c.source))
		if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("from %s to %s: %v, want %q", c.source, c.target, err, c.says)
		}
	}
}

// Of a name's addresses those of the other family are not tried.
func TestNameWithAddressesOfBothFamilies(t *testing.T) {
	ln := serve(t, "tcp", "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	g := group(t, from("127.0.0.2"), "both.test:"+port)
	six, four := netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.1")
	g.SetLookup(func(context.Context, string, string) ([]netip.Addr, error) { return []netip.Addr{six, four}, nil })
	conn, err := g.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	g.SetLookup(func(context.Context, string, string) ([]netip.Addr, error) { return []netip.Addr{six}, nil })
	if _, err = g.Dial(context.Background()); !errors.Is(err, upstream.ErrSourceFamily) || !errors.Is(err, syscall.EAFNOSUPPORT) {
		t.Errorf("error is %v, want ErrSourceFamily", err)
	}
}
