package sys_test

import (
	"errors"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestPeerCredentialsOfOthers: who has none is an error, and not a user.
func TestPeerCredentialsOfOthers(t *testing.T) {
	near, _ := sockets.TCPPair(t)
	if who, err := sys.PeerCredentials(sockets.FD(t, near)); err != syscall.ENOTCONN {
		t.Errorf("those of a TCP socket are %+v, %v", who, err)
	}
	fd := must.Get(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0))(t)
	defer syscall.Close(fd)
	if who, err := sys.PeerCredentials(fd); err != syscall.ENOTCONN {
		t.Errorf("those of a socket that is not connected are %+v, %v", who, err)
	}
	if _, err := sys.PeerCredentials(-1); err != syscall.EBADF {
		t.Errorf("%v, want EBADF", err)
	}
}

// TestUnreadOfMultipath: the end of a Multipath TCP connection is no byte that is still to be read.
func TestUnreadOfMultipath(t *testing.T) {
	t.Parallel()

	for _, n := range []int{0, 1, 500} {
		near, far := sockets.MultipathPair(t)
		must.Get(far.Write(make([]byte, n)))(t)
		must.Do(t, far.CloseWrite())
		fd := sockets.FD(t, near)
		condition.Await(t, "the end", func() bool {
			events, err := sys.Poll(fd, sys.POLLRDHUP)
			return err == nil && events&sys.POLLRDHUP != 0
		})
		for ; ; n-- {
			if k, err := sys.FIONREAD(fd); k != n || err != nil {
				t.Errorf("%d bytes can be read: %d, %v", n, k, err)
			}
			if n == 0 {
				break
			}
			must.Get(near.Read(make([]byte, 1)))(t)
		}
	}
}

// TestNetstatCounter: a counter is found by its name, wherever it stands.
func TestNetstatCounter(t *testing.T) {
	const names = "MPTcpExt: ListenOverflows\nMPTcpExt: 5\nTcpExt: A ListenOverflows B\n"
	for text, want := range map[string]uint64{names + "TcpExt: 1 2 3\n": 2, names + "TcpExt: 1 18446744073709551615": math.MaxUint64} {
		if n, err := sys.NetstatCounter([]byte(text), "TcpExt:", "ListenOverflows"); n != want || err != nil {
			t.Errorf("%q: %d, %v, want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", "\n", names, names + "TcpExt: 1\n", "TcpExt: 1 2\nTcpExt: 1 2\n"} {
		if n, err := sys.NetstatCounter([]byte(text), "TcpExt:", "ListenOverflows"); !errors.Is(err, sys.ErrNoListenOverflows) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	if n, err := sys.NetstatCounter([]byte(names+"TcpExt: 1 x 3\n"), "TcpExt:", "ListenOverflows"); !errors.Is(err, strconv.ErrSyntax) {
		t.Errorf("no number: %d, %v", n, err)
	}
}

// TestListenDrops: what a full accept queue drops is counted by the socket itself.
func TestListenDrops(t *testing.T) {
	var single, multi net.ListenConfig
	single.SetMultipathTCP(false)
	multi.SetMultipathTCP(true)
	l := must.Get(single.Listen(t.Context(), "tcp4", "127.0.0.1:0"))(t)
	defer l.Close()
	fd := sockets.FD(t, l.(syscall.Conn))
	must.Do(t, sys.Listen(fd, 0))
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
	m := must.Get(multi.Listen(t.Context(), "tcp4", "127.0.0.1:0"))(t)
	defer m.Close()
	fd = sockets.FD(t, m.(syscall.Conn))
	if protocol, err := sys.GetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_PROTOCOL); err != nil || protocol == sys.IPPROTO_TCP {
		t.Skip("this kernel has no Multipath TCP")
	}
	if n, err := sys.ListenDrops(fd); err != syscall.EOPNOTSUPP {
		t.Errorf("of Multipath TCP: %d, %v", n, err)
	}
}

// TestSpliceSocketThatWaits: a socket that somebody has made blocking waits. A
// stop-the-world must go on meanwhile.
func TestSpliceSocketThatWaits(t *testing.T) {
	_, w := newPipe(t)
	near, far := sockets.TCPPair(t)
	fd := sockets.FD(t, near)
	must.Do(t, syscall.SetNonblock(fd, false))
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
	must.Get(far.Write([]byte("abc")))(t)
	if n := <-spliced; n != 3 {
		t.Errorf("spliced %d bytes", n)
	}
}

// TestLocalRoute: every address of this machine is its own. An address for
// documentation (RFC 5737, RFC 3849) is not.
func TestLocalRoute(t *testing.T) {
	own := must.Get(net.InterfaceAddrs())(t)
	want := map[netip.Addr]bool{
		netip.MustParseAddr("127.0.0.1"): true, netip.MustParseAddr("127.9.9.9"): true,
		netip.MustParseAddr("::ffff:127.0.0.1"): true,
		netip.MustParseAddr("192.0.2.1"):        false, netip.MustParseAddr("2001:db8::1"): false,
	}
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
			want[p.Addr()] = true
		}
	}
	for a, local := range want {
		if got, err := sys.LocalRoute(a); got != local || err != nil {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
}

func TestTerminalWidthOfATerminal(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminal here: %v", err)
	}
	defer tty.Close()
	fd := int(tty.Fd())
	if width, err := sys.TerminalWidth(fd); err != nil || width != 0 {
		t.Errorf("a new terminal: got %d, %v, want 0", width, err)
	}
	must.Do(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 73}))
	if width, err := sys.TerminalWidth(fd); err != nil || width != 73 {
		t.Errorf("got %d, %v, want 73", width, err)
	}
}

func TestNodeMask(t *testing.T) {
	var m sys.NodeMask
	for _, n := range []int{0, 31, 32, 63, 64, 1023} {
		m.Set(n)
	}
	if got := m.Nodes(); !slices.Equal(got, []int{0, 31, 32, 63, 64, 1023}) {
		t.Errorf("%v", got)
	}
	if m.Has(-1) || m.Has(1024) || m.Has(1) {
		t.Error("nodes that were not set")
	}
}

// newPipe makes a pipe that lives as long as the test.
func newPipe(t *testing.T) (r, w int) {
	t.Helper()
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	must.Do(t, err)
	t.Cleanup(func() {
		sys.Close(r)
		sys.Close(w)
	})
	return r, w
}

func TestMain(m *testing.M) { leak.Main(m) }
