package lane_test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/lane"
)

// TestThousandsIdle: 500 sessions are at rest in the lane at once, or 9,000 where all tests run. Each takes at
// most 130 bytes of this process, one descriptor and no goroutine. Then all go on, byte for byte.
func TestThousandsIdle(t *testing.T) {
	permitted(t)
	if !netns.Alone(t) {
		return
	}
	n := full.Times(500, 9000)
	n = min(n, mostDescriptors(t)/3) // a client, a server and one of the lane's
	l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: n, Linger: 300 * time.Millisecond}))(t)
	defer l.Close()
	at, ends := listener(t, "127.0.0.1:0"), newEnds(t)
	sessions := make([]*lane.Session, 0, n)
	routines := runtime.NumGoroutine()
	for len(sessions) < n { // in groups: until they have left, sessions take one descriptor and two goroutines more
		first := len(sessions)
		for range min(200, n-first) {
			a, b := ends.connect(at)
			s := must.Get(l.Join(a, b, nil))(t)
			sessions = append(sessions, s)
		}
		for i := first; i < len(sessions); i++ {
			condition.Await(t, "the session leaves user space", func() bool { ends.exchange(i); return sessions[i].Left() })
		}
		left := uint64(len(sessions))
		condition.Await(t, "their sockets are closed", func() bool { return l.Stats().Left == left && runtime.NumGoroutine() <= routines })
	}
	inLane, descriptors := heap.InUse(), openDescriptors(t)
	for i, s := range sessions {
		before := s.Bytes()
		ends.exchange(i)
		condition.Await(t, "both messages are counted", func() bool { return s.Bytes() == [2]uint64{before[0] + messageSize, before[1] + messageSize} })
		if !s.Left() {
			t.Fatal("it has come back")
		}
	}
	for _, s := range sessions {
		s.Reset()
	}
	for i := range sessions {
		sessions[i].Wait()
		sessions[i] = nil
	}
	condition.Await(t, "all slots are free", func() bool { return len(l.Sessions()) == 0 })
	each := (inLane - heap.InUse()) / n
	t.Logf("%d sessions, %d bytes for each", n, each)
	if each > 130 {
		t.Errorf("%d bytes for each session, want at most 130", each)
	}
	if held := descriptors - openDescriptors(t); held != n {
		t.Errorf("%d descriptors for %d sessions", held, n)
	}
}

// mostDescriptors returns how many descriptors a table can have beside some hundred others. A process without
// CAP_SYS_RESOURCE cannot have more.
func mostDescriptors(t *testing.T) int {
	t.Helper()
	var limit syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	limit.Cur = limit.Max
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	return int(min(limit.Cur, 1<<20)) - 1000
}

// TestMemoryOfTable: the kernel memory of a table is proportional to its size, less than 1 KiB for each
// session, and known before there are sessions. So a table for a million takes less than 1 GiB.
func TestMemoryOfTable(t *testing.T) {
	if !alone(t) {
		return
	}
	memory := func(sessions int) int {
		l := must.Get(lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: sessions}))(t)
		defer l.Close()
		return int(l.Memory())
	}
	few, many := memory(1<<10), memory(1<<12)
	each := (many - few) / (1<<12 - 1<<10)
	t.Logf("%d bytes of the kernel's memory for each: %d MB for a million", each, each)
	if each < 100 || each >= 1<<10 {
		t.Errorf("%d bytes of the kernel's memory for each session", each)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	list := must.Get(os.ReadDir("/proc/self/fd"))(t)
	return len(list)
}

// messageSize is the size of each message of ends, in both directions.
const messageSize = 16

// ends are many clients and servers. They are bare sockets, which take no memory of this process.
type ends struct {
	t         testing.TB
	listening int
	at        string // the address of the servers
	client    []int
	server    []int
	sent      uint32
}

func newEnds(t testing.TB) *ends {
	t.Helper()
	e := &ends{t: t, listening: socket(t)}
	t.Cleanup(func() {
		for _, fd := range slices.Concat(e.client, e.server, []int{e.listening}) {
			_ = syscall.Close(fd)
		}
	})
	must.Do(t, syscall.Bind(e.listening, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(e.listening, 16))
	name := must.Get(sys.LocalName(e.listening))(t)
	e.at = name.AddrPort.String()
	return e
}

// socket returns a TCP socket that waits for patience at most.
func socket(t testing.TB) int {
	t.Helper()
	fd := must.Get(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0))(t)
	bounded(t, fd)
	return fd
}

func bounded(t testing.TB, fd int) {
	t.Helper()
	wait := syscall.NsecToTimeval(condition.Patience.Nanoseconds())
	must.Do(t, syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &wait))
}

// connect makes one more client of a listener, and connects to one more server.
func (e *ends) connect(at net.Listener) (a, b *net.TCPConn) {
	e.t.Helper()
	to := netip.MustParseAddrPort(at.Addr().String())
	client := socket(e.t)
	e.client = append(e.client, client)
	must.Do(e.t, syscall.Connect(client, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}))
	near, far := must.Get(at.Accept())(e.t), must.Get(net.Dial("tcp", e.at))(e.t)
	server, _, err := syscall.Accept(e.listening)
	for err == syscall.EINTR {
		server, _, err = syscall.Accept(e.listening)
	}
	must.Do(e.t, err)
	e.server = append(e.server, server)
	bounded(e.t, server)
	return near.(*net.TCPConn), far.(*net.TCPConn)
}

// exchange lets a client and its server send each other a message. No two messages are the same.
func (e *ends) exchange(i int) {
	e.t.Helper()
	for _, way := range [2][2]int{{e.client[i], e.server[i]}, {e.server[i], e.client[i]}} {
		e.sent++
		message := fmt.Appendf(nil, "%0*d", messageSize, e.sent)
		must.Get(syscall.Write(way[0], message))(e.t)
		var got [messageSize]byte
		for n := 0; n < len(got); {
			more, err := syscall.Read(way[1], got[n:])
			if err == syscall.EINTR { // by a signal of the runtime: a call with a timeout is not restarted (signal(7))
				continue
			}
			if err != nil || more == 0 {
				e.t.Fatalf("end %d: read of %d bytes after %d: %v", i, more, n, err)
			}
			n += more
		}
		if !bytes.Equal(got[:], message) {
			e.t.Fatalf("end %d: %q in place of %q", i, got, message)
		}
	}
}
