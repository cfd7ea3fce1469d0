package sockopt_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/proxy/sockopt"
)

// TestDialWaitsForAPlace: while the accept queue of a unix socket is full, a dial waits, until there is room or its time is over.
func TestDialWaitsForAPlace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	first, err := net.Dial("unix", path) // fills the queue
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := sockopt.Dial(t.Context(), &net.Dialer{Timeout: time.Second / 10}, "unix", path); !os.IsTimeout(err) {
		t.Errorf("with a full queue: %v", err)
	}
	ends := make(chan error)
	ctx, cancel := context.WithTimeout(t.Context(), condition.Patience)
	defer cancel()
	go func() {
		c, err := sockopt.Dial(ctx, new(net.Dialer), "unix", path)
		if err == nil {
			c.Close()
		}
		ends <- err
	}()
	taken, _, err := syscall.Accept(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(taken)
	if err := condition.Receive(t, "the end of the dial", ends); err != nil {
		t.Errorf("with room: %v", err)
	}
}

// TestDialAnInterfaceMadeAgain: the zone of an address is the interface that has this name now.
func TestDialAnInterfaceMadeAgain(t *testing.T) {
	t.Parallel()
	if !netns.Alone(t) {
		return
	}
	h := netns.Here(t)
	l, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := netip.AddrPortFrom(netip.MustParseAddr("fe80::1%again"), netip.MustParseAddrPort(l.Addr().String()).Port())
	for range 2 {
		h.IP("link add again type veth peer name other")
		h.IP("link set other up")
		h.IP("link set again up")
		h.IP("-6 address add fe80::1/64 dev again nodad")
		for name, d := range map[string]*net.Dialer{"to it": {}, "from it": {LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(at.Addr(), 0))}} {
			d.Timeout = condition.Patience
			c, err := sockopt.Dial(t.Context(), d, "tcp", at.String())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			c.Close()
		}
		h.IP("link delete again")
	}
}
