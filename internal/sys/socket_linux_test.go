package sys_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestCork: what is written under a cork stays in the socket, is told of by
// TCP_INFO, and leaves in one segment when the cork is drawn.
func TestCork(t *testing.T) {
	client, server := sockets.TCPPair(t)
	fd := sockets.FD(t, client)
	var before, corked, after sys.TCPInfo
	info := func(i *sys.TCPInfo) {
		t.Helper()
		if err := sys.GetTCPInfo(fd, i); err != nil {
			t.Fatal(err)
		}
	}
	cork := func(on int) {
		t.Helper()
		if err := sys.SetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_CORK, on); err != nil {
			t.Fatal(err)
		}
	}
	info(&before)
	cork(1)
	for _, part := range []string{"he", "llo"} {
		if _, err := client.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	info(&corked)
	cork(0)
	info(&after)
	if corked.Data_segs_out == before.Data_segs_out {
		want(t, "not sent", corked.Notsent_bytes, nil, 5, nil)
	} else {
		t.Log("the cork's timer was faster than this test")
	}
	want(t, "segments", after.Data_segs_out-before.Data_segs_out, nil, 1, nil)
	if before.Snd_mss == 0 {
		t.Error("no size of segments")
	}
	b := make([]byte, 5)
	_, err := io.ReadFull(server, b)
	want(t, "read", string(b), err, "hello", nil)
}

func TestGetTCPInfoOfWhatIsNoTCPSocket(t *testing.T) {
	client, _ := sockets.UnixPair(t)
	if err := sys.GetTCPInfo(sockets.FD(t, client), new(sys.TCPInfo)); err != syscall.EOPNOTSUPP {
		t.Errorf("got %v, want EOPNOTSUPP", err)
	}
	if err := sys.GetTCPInfo(-1, new(sys.TCPInfo)); err != syscall.EBADF {
		t.Errorf("got %v, want EBADF", err)
	}
}

func TestGetTCPInfoAllocatesNothing(t *testing.T) {
	client, _ := sockets.TCPPair(t)
	fd := sockets.FD(t, client)
	if n := testing.AllocsPerRun(100, func() {
		var info sys.TCPInfo
		_ = sys.GetTCPInfo(fd, &info)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSetInterfaceMTUInANamespaceOfItsOwn(t *testing.T) {
	apart(t, func() {
		if err := sys.SetInterfaceMTU("lo", 1500); err != nil {
			t.Error(err)
		}
		lo, err := net.InterfaceByName("lo")
		if err != nil || lo.MTU != 1500 {
			t.Errorf("got %+v, %v; want an MTU of 1500", lo, err)
		}
		for name, want := range map[string]error{
			"no-such-one": syscall.ENODEV, strings.Repeat("x", 16): syscall.EINVAL,
		} {
			if err := sys.SetInterfaceMTU(name, 1500); err != want {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
		}
	})
}

// listeningSocket listens, and returns a descriptor of its own.
func listeningSocket(t testing.TB, network, addr string) (ln net.Listener, fd int) {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(context.Background(), network, addr)
	if err != nil {
		t.Skipf("%s %s: %v", network, addr, err) // a machine without IPv6
	}
	t.Cleanup(func() { ln.Close() })
	f, err := ln.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return ln, int(f.Fd())
}

// TestAcceptSocketSaysFromWhere: whatever has become of the connection meanwhile.
func TestAcceptSocketSaysFromWhere(t *testing.T) {
	for name, x := range map[string]struct{ listen, dial string }{
		"IPv4":         {"127.0.0.1:0", "127.0.0.1"},
		"IPv6":         {"[::1]:0", "::1"},
		"IPv4 on IPv6": {":0", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			ln, fd := listeningSocket(t, "tcp", x.listen)
			port := ln.Addr().(*net.TCPAddr).AddrPort().Port()
			for end, f := range map[string]func(c *net.TCPConn){
				"there":         func(*net.TCPConn) {},
				"ended":         func(c *net.TCPConn) { c.CloseWrite() },
				"closed":        func(c *net.TCPConn) { c.Close() },
				"reset":         func(c *net.TCPConn) { c.SetLinger(0); c.Close() },
				"sent and gone": func(c *net.TCPConn) { c.Write([]byte("x")); c.SetLinger(0); c.Close() },
			} {
				c, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(x.dial), port).String())
				if err != nil {
					t.Fatal(err)
				}
				want := c.LocalAddr().(*net.TCPAddr).AddrPort()
				f(c.(*net.TCPConn))
				got, at, err := sys.AcceptSocket(fd)
				c.Close()
				if err != nil {
					t.Fatalf("%s: %v", end, err)
				}
				sys.Close(got)
				if at != want {
					t.Errorf("%s: from %v, want %v", end, at, want)
				}
			}
		})
	}
}

// TestAcceptSocketOfUnix: whatever the peer is bound to, there is no address, but there are
// its credentials, also when it has gone.
func TestAcceptSocketOfUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s") // longer than an address of IPv6, like the peer's
	_, fd := listeningSocket(t, "unix", path)
	for _, local := range []string{"", filepath.Join(t.TempDir(), "peer")} {
		d := net.Dialer{}
		if local != "" {
			d.LocalAddr = &net.UnixAddr{Net: "unix", Name: local}
		}
		c, err := d.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		got, at, err := sys.AcceptSocket(fd)
		if err != nil {
			t.Fatal(err)
		}
		if at.IsValid() {
			t.Errorf("it comes from %v", at)
		}
		want := sys.Credentials{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), PID: int32(os.Getpid())}
		if who, err := sys.PeerCredentials(got); who != want || err != nil {
			t.Errorf("%+v, %v, want %+v", who, err, want)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = sys.PeerCredentials(got) }); n > 0 {
			t.Errorf("%v allocations", n)
		}
		sys.Close(got)
	}
}

// TestPeerGroups: those of this process, as the kernel lists them. A TCP socket has none.
func TestPeerGroups(t *testing.T) {
	near, far := sockets.UnixPair(t)
	want, err := syscall.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []syscall.Conn{near, far} {
		got, err := sys.PeerGroups(sockets.FD(t, c))
		if err != nil || !slices.EqualFunc(got, want, func(a uint32, b int) bool { return int(a) == b }) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	tcp, _ := sockets.TCPPair(t)
	if got, err := sys.PeerGroups(sockets.FD(t, tcp)); err == nil {
		t.Errorf("of a TCP socket: %v", got)
	}
}

// TestPeerCredentialsOfOthers: who has none is an error, and not a user.
func TestPeerCredentialsOfOthers(t *testing.T) {
	near, _ := sockets.TCPPair(t)
	if who, err := sys.PeerCredentials(sockets.FD(t, near)); err != syscall.ENOTCONN {
		t.Errorf("those of a TCP socket are %+v, %v", who, err)
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if who, err := sys.PeerCredentials(fd); err != syscall.ENOTCONN {
		t.Errorf("those of a socket that is not connected are %+v, %v", who, err)
	}
	if _, err := sys.PeerCredentials(-1); err != syscall.EBADF {
		t.Errorf("%v, want EBADF", err)
	}
}

// TestAcceptSocketAllocatesNothing: on a queue of connections.
func TestAcceptSocketAllocatesNothing(t *testing.T) {
	ln, fd := listeningSocket(t, "tcp", "127.0.0.1:0")
	var fds []int
	const n = 20
	for range n + 1 {
		sockets.Dial(t, ln.Addr().String())
	}
	fds = make([]int, 0, n+1)
	allocs := testing.AllocsPerRun(n, func() {
		if got, _, err := sys.AcceptSocket(fd); err == nil {
			fds = append(fds, got)
		}
	})
	if allocs > 0 || len(fds) != n+1 {
		t.Errorf("%v allocations for each of %d", allocs, len(fds))
	}
	for _, fd := range fds {
		sys.Close(fd)
	}
}

// TestOriginalDestination: a connection that nobody has redirected has none, or where it went.
func TestOriginalDestination(t *testing.T) {
	near, far := sockets.TCPPair(t)
	want := far.LocalAddr().(*net.TCPAddr).AddrPort()
	if at, err := sys.OriginalDestination(sockets.FD(t, near)); err == nil && at != want {
		t.Errorf("a connection that nobody has redirected went to %v", at)
	}
	a, b, err := sys.SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(a)
	defer sys.Close(b)
	if at, err := sys.OriginalDestination(a); err == nil {
		t.Errorf("a unix socket went to %v", at)
	}
}

// nameless is accept4(2) without an address.
func nameless(fd int) int {
	got, _, _ := syscall.Syscall6(sys.SYS_ACCEPT4, uintptr(fd), 0, 0, sys.SOCK_NONBLOCK|sys.SOCK_CLOEXEC, 0, 0)
	return int(got)
}

// BenchmarkAcceptSocket takes connections out of a full queue: without their address, with
// it, and with getpeername(2) after it. What it costs the thread is told beside the time,
// which others on the machine take part of.
func BenchmarkAcceptSocket(b *testing.B) {
	for _, x := range []struct {
		name   string
		accept func(fd int) int
	}{
		{"nameless", nameless},
		{"address", func(fd int) int { got, _, _ := sys.AcceptSocket(fd); return got }},
		{"getpeername", func(fd int) int { got := nameless(fd); _, _ = syscall.Getpeername(got); return got }},
	} {
		b.Run(x.name, func(b *testing.B) {
			ln, fd := listeningSocket(b, "tcp", "127.0.0.1:0")
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var used time.Duration
			var clients []net.Conn
			var accepted []int
			empty := func() {
				b.StopTimer()
				for i, c := range clients {
					c.(*net.TCPConn).SetLinger(0)
					c.Close()
					if i < len(accepted) {
						sys.Close(accepted[i])
					}
				}
				clients, accepted = clients[:0], accepted[:0]
			}
			for left := b.N; left > 0; left -= len(accepted) {
				empty()
				for range min(left, 1000) {
					c, err := net.Dial("tcp", ln.Addr().String())
					if err != nil {
						b.Fatal(err)
					}
					clients = append(clients, c)
				}
				before, _ := sys.ThreadCPUTime()
				b.StartTimer()
				for range clients {
					accepted = append(accepted, x.accept(fd))
				}
				b.StopTimer()
				after, _ := sys.ThreadCPUTime()
				used += after - before
			}
			empty()
			b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
		})
	}
}

// TestReadTCPInfo: the kernel fills all that an account needs, and keeps the memory of bytes that were not read.
func TestReadTCPInfo(t *testing.T) {
	client, server := sockets.TCPPair(t)
	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	fd := sockets.FD(t, server)
	if events, err := sys.Poll(fd, sys.POLLIN); err != nil || events == 0 {
		t.Fatalf("%v, %v", events, err)
	}
	var info sys.TCPInfo
	n, err := sys.ReadTCPInfo(fd, &info)
	if err != nil || n < sys.TCPInfoWithBytes || info.Bytes_received != 5 {
		t.Errorf("%d bytes, %v; %d received", n, err, info.Bytes_received)
	}
	if kept, err := sys.ReceiveMemory(fd); err != nil || kept == 0 {
		t.Errorf("%d bytes kept, %v", kept, err)
	}
	if kept, err := sys.ReceiveMemory(sockets.FD(t, client)); err != nil || kept != 0 {
		t.Errorf("%d bytes kept where there are none, %v", kept, err)
	}
	if err := sys.GetTCPInfo(sockets.FD(t, client), &info); err != nil || !sys.AppLimited(&info) {
		t.Errorf("%v; a connection with little to send is limited by that", err)
	}
	if _, err := sys.ReadTCPInfo(-1, &info); err != syscall.EBADF {
		t.Errorf("%v, want EBADF", err)
	}
}
