package sys_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
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

func TestNamesOfUnixSockets(t *testing.T) {
	client, server := sockets.UnixPair(t)
	peer, err := sys.PeerName(sockets.FD(t, client))
	if want := server.LocalAddr().String(); err != nil || peer.Path != want {
		t.Errorf("the client's peer is %v, %v, want %s", peer, err, want)
	}
	if peer, err := sys.PeerName(sockets.FD(t, server)); err != nil || peer.Path != "@" {
		t.Errorf("a client without a name is %q, %v", peer.Path, err)
	}
}

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
	for end := time.Now().Add(condition.Patience); ; {
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
	for end := time.Now().Add(condition.Patience); ; time.Sleep(time.Millisecond) {
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
	for end := time.Now().Add(condition.Patience); ; {
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

func tcpSocket(t *testing.T) int {
	t.Helper()
	fd, err := sys.StreamSocket(netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sys.Close(fd) })
	return fd
}

func TestCongestionControls(t *testing.T) {
	available, allowed, err := sys.CongestionControls()
	if err != nil {
		t.Skipf("this kernel does not list its congestion controls: %v", err)
	}
	usual, err := sys.DefaultCongestion()
	if err != nil || !slices.Contains(available, usual) {
		t.Errorf("the default is %q, %v, of %q", usual, err, available)
	}
	fd := tcpSocket(t)
	if got, err := sys.Congestion(fd); err != nil || got != usual {
		t.Errorf("a new socket has %q, %v, want %q", got, err, usual)
	}
	for _, name := range available {
		err := sys.SetCongestion(fd, name)
		if err == syscall.EPERM && !slices.Contains(allowed, name) {
			continue
		}
		got, readErr := sys.Congestion(fd)
		if err != nil || readErr != nil || got != name {
			t.Errorf("set %s: %v; it is %q, %v", name, err, got, readErr)
		}
	}
}

func TestCongestionRefused(t *testing.T) {
	fd := tcpSocket(t)
	if err := sys.SetCongestion(fd, "no_such_thing"); err != syscall.ENOENT {
		t.Errorf("one that there is not: %v, want ENOENT", err)
	}
	for _, name := range []string{"", "sixteen_letters_"} {
		if err := sys.SetCongestion(fd, name); err != syscall.EINVAL {
			t.Errorf("%q: %v, want EINVAL", name, err)
		}
	}
}

func TestSpliceSocket(t *testing.T) {
	r, w := newPipe(t)
	near, far := sockets.TCPPair(t)
	fd := sockets.FD(t, near)
	n, err := sys.SpliceSocket(fd, w, fd, 10)
	want(t, "from an empty socket", n, err, 0, error(syscall.EAGAIN))
	if _, err := far.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	await(t, fd)
	n, err = sys.SpliceSocket(fd, w, fd, 10)
	want(t, "from a socket", n, err, 3, nil)
	n, err = sys.SpliceSocket(r, fd, fd, 10)
	want(t, "to a socket", n, err, 3, nil)
	n, err = sys.SpliceSocket(-1, w, -1, 10)
	want(t, "from nothing", n, err, 0, error(syscall.EBADF))
	if n := testing.AllocsPerRun(50, func() { sys.SpliceSocket(fd, w, fd, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// await waits until fd has something to read.
func await(t *testing.T, fd int) {
	t.Helper()
	for end := time.Now().Add(condition.Patience); time.Now().Before(end); runtime.Gosched() {
		if n, err := sys.FIONREAD(fd); err != nil || n > 0 {
			return
		}
	}
	t.Fatal("nothing arrived")
}

// TestSpliceSocketThatWaits: a socket that somebody has made blocking waits. A
// stop-the-world must go on meanwhile.
func TestSpliceSocketThatWaits(t *testing.T) {
	_, w := newPipe(t)
	near, far := sockets.TCPPair(t)
	fd := sockets.FD(t, near)
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	spliced := make(chan int, 1)
	go func() {
		n, _ := sys.SpliceSocket(fd, w, fd, 10)
		spliced <- n
	}()
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for range 20 { // one of them comes after the splice has begun to wait
			runtime.GC()
			runtime.Gosched()
		}
	}()
	select {
	case <-collected:
	case <-time.After(condition.Patience):
		t.Error("a splice that waits keeps the world from stopping")
	}
	if _, err := far.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	if n := <-spliced; n != 3 {
		t.Errorf("spliced %d bytes", n)
	}
}

func TestTheTimeOfAThreadRises(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sum := func() time.Duration {
		used, err := sys.Getrusage(sys.RUSAGE_THREAD)
		if err != nil {
			t.Fatal(err)
		}
		return used.Utime + used.Stime
	}
	begin, deadline := sum(), time.Now().Add(10*time.Second)
	for sum() <= begin {
		if time.Now().After(deadline) {
			t.Fatal("a busy thread used no time")
		}
	}
}

func TestSIOCATMARK(t *testing.T) {
	near, far := sockets.TCPPair(t)
	fd := sockets.FD(t, near)
	at, err := sys.SIOCATMARK(fd)
	want(t, "with nothing queued", at, err, false, nil)
	if _, err := sys.Send(sockets.FD(t, far), []byte("a!"), sys.MSG_OOB); err != nil {
		t.Fatal(err)
	}
	await(t, fd)
	at, err = sys.SIOCATMARK(fd)
	want(t, "before the mark", at, err, false, nil)
	n, err := sys.Recv(fd, make([]byte, 10), sys.MSG_DONTWAIT)
	want(t, "the byte before it", n, err, 1, nil)
	at, err = sys.SIOCATMARK(fd)
	want(t, "at the mark", at, err, true, nil)
	at, err = sys.SIOCATMARK(-1)
	want(t, "nowhere", at, err, false, error(syscall.EBADF))
	if n := testing.AllocsPerRun(50, func() { sys.SIOCATMARK(fd) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
