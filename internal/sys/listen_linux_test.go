package sys_test

import (
	"encoding/binary"
	"errors"
	"math"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
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

// TestListenOverflows: the namespace counts them as well.
func TestListenOverflows(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := sys.Listen(sockets.FD(t, l.(syscall.Conn)), 0); err != nil {
		t.Fatal(err)
	}
	before, err := sys.ListenOverflows()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; {
		c, err := net.DialTimeout("tcp4", l.Addr().String(), 10*time.Millisecond)
		if err == nil {
			defer c.Close()
		}
		switch n, err := sys.ListenOverflows(); {
		case err != nil || time.Now().After(end):
			t.Fatalf("%d, %v when the queue was full, %d before", n, err, before)
		case n > before:
			return
		}
	}
}

// TestNetstatCounter: a counter is found by its name, wherever it stands.
func TestNetstatCounter(t *testing.T) {
	const names = "MPTcpExt: ListenOverflows\nMPTcpExt: 5\nTcpExt: A ListenOverflows B\n"
	for text, want := range map[string]uint64{names + "TcpExt: 1 2 3\n": 2, names + "TcpExt: 1 18446744073709551615": math.MaxUint64} {
		if n, err := sys.NetstatCounter(text, "TcpExt:", "ListenOverflows"); n != want || err != nil {
			t.Errorf("%q: %d, %v, want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", "\n", names, names + "TcpExt: 1\n", "TcpExt: 1 2\nTcpExt: 1 2\n"} {
		if n, err := sys.NetstatCounter(text, "TcpExt:", "ListenOverflows"); !errors.Is(err, sys.ErrNoListenOverflows) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	if n, err := sys.NetstatCounter(names+"TcpExt: 1 x 3\n", "TcpExt:", "ListenOverflows"); !errors.Is(err, strconv.ErrSyntax) {
		t.Errorf("no number: %d, %v", n, err)
	}
}

// TestListenDropsHaveStrays: a segment that is part of no connection is dropped by the listening
// socket, and counted there.
func TestListenDropsHaveStrays(t *testing.T) {
	raw, err := net.ListenPacket("ip4:tcp", "127.0.0.1")
	switch {
	case errors.Is(err, syscall.EPERM):
		t.Skip("raw(7): only with CAP_NET_RAW, which this user has not")
	case err != nil:
		t.Fatal(err)
	}
	defer raw.Close()
	var single net.ListenConfig
	single.SetMultipathTCP(false)
	l, err := single.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr)
	fin := make([]byte, 20) // tcp(7): from port 1, without ACK
	binary.BigEndian.PutUint16(fin, 1)
	binary.BigEndian.PutUint16(fin[2:], uint16(at.Port))
	fin[12], fin[13] = 5<<4, 1
	pseudo := append([]byte{127, 0, 0, 1, 127, 0, 0, 1, 0, 6, 0, 20}, fin...)
	sum := uint32(0)
	for i := 0; i < len(pseudo); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(pseudo[i:]))
	}
	binary.BigEndian.PutUint16(fin[16:], ^uint16(sum+sum>>16))
	for range 3 {
		if _, err := raw.WriteTo(fin, &net.IPAddr{IP: at.IP}); err != nil {
			t.Fatal(err)
		}
	}
	fd := sockets.FD(t, l.(syscall.Conn))
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		switch n, err := sys.ListenDrops(fd); {
		case err != nil || time.Now().After(end):
			t.Fatalf("%d, %v, want 3", n, err)
		case n == 3:
			return
		}
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
