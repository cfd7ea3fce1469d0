package lane_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/lane"
)

// TestThousandsIdle: 500 sessions are at rest in the lane at once, or 9,000 where all tests run. Each takes at
// most 130 bytes of this process, one descriptor and no goroutine. Then all go on, byte for byte.
func TestThousandsIdle(t *testing.T) {
	if !alone(t) {
		return
	}
	n := full.Times(500, 9000)
	n = min(n, mostDescriptors(t)/2) // clients and servers are in one table of descriptors
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: n, Linger: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at, ends := listener(t, "127.0.0.1:0"), newEnds(t)
	sessions := make([]*lane.Session, 0, n)
	routines := runtime.NumGoroutine()
	for len(sessions) < n { // in groups: until they have left, sessions take one descriptor and two goroutines more
		first := len(sessions)
		for range min(200, n-first) {
			a, b := ends.connect(at)
			s, err := l.Join(a, b, nil)
			if err != nil {
				t.Fatal(err)
			}
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
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return int(min(limit.Cur, 1<<20)) - 1000
}

// TestMemoryOfTable: the kernel memory of a table is proportional to its size, less than 1 KiB for each
// session, and known before there are sessions. So a table for a million takes less than 1 GiB.
func TestMemoryOfTable(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	memory := func(sessions int) int {
		l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: sessions})
		if err != nil {
			t.Fatal(err)
		}
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
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// messageSize is the size of each message of ends, in both directions.
const messageSize = 16

// ends are many clients and servers on a thread with its own descriptors. RLIMIT_NOFILE bounds each table of
// descriptors separately (unshare(2), CLONE_FILES). The ends wait in system calls, and take no memory of this
// process.
type ends struct {
	t      testing.TB
	calls  chan func() error
	result chan error

	listening int
	at        string // the address of the servers
	client    []int
	server    []int
	sent      uint32
}

func newEnds(t testing.TB) *ends {
	t.Helper()
	e := &ends{t: t, calls: make(chan func() error), result: make(chan error)}
	go e.serve()
	t.Cleanup(func() { close(e.calls) })
	e.do(func() (err error) {
		if err := syscall.Unshare(syscall.CLONE_FILES); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		if e.listening, err = socket(); err != nil {
			return err
		}
		if err := syscall.Bind(e.listening, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		name, err := sys.LocalName(e.listening)
		e.at = name.AddrPort.String()
		return cmp.Or(err, syscall.Listen(e.listening, 16))
	})
	return e
}

// do calls f on the thread.
func (e *ends) do(f func() error) {
	e.t.Helper()
	e.calls <- f
	if err := <-e.result; err != nil {
		e.t.Fatal(err)
	}
}

// socket returns a TCP socket that waits for patience at most.
func socket() (fd int, err error) {
	fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = bounded(fd)
	}
	return fd, err
}

func bounded(fd int) error {
	wait := syscall.NsecToTimeval(condition.Patience.Nanoseconds())
	return syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &wait)
}

// connect makes one more client of a listener, and connects to one more server.
func (e *ends) connect(at net.Listener) (a, b *net.TCPConn) {
	e.t.Helper()
	to := netip.MustParseAddrPort(at.Addr().String())
	e.do(func() error {
		fd, err := socket()
		if err != nil {
			return err
		}
		e.client = append(e.client, fd)
		return os.NewSyscallError("connect", syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}))
	})
	near, err := at.Accept()
	if err != nil {
		e.t.Fatal(err)
	}
	far, err := net.Dial("tcp", e.at)
	if err != nil {
		e.t.Fatal(err)
	}
	e.do(func() error {
		fd, _, err := syscall.Accept(e.listening)
		for err == syscall.EINTR {
			fd, _, err = syscall.Accept(e.listening)
		}
		if err != nil {
			return os.NewSyscallError("accept", err)
		}
		e.server = append(e.server, fd)
		return bounded(fd)
	})
	return near.(*net.TCPConn), far.(*net.TCPConn)
}

// exchange lets a client and its server send each other a message. No two messages are the same.
func (e *ends) exchange(i int) {
	e.t.Helper()
	e.do(func() error {
		for _, way := range [2][2]int{{e.client[i], e.server[i]}, {e.server[i], e.client[i]}} {
			e.sent++
			message := fmt.Appendf(nil, "%0*d", messageSize, e.sent)
			if _, err := syscall.Write(way[0], message); err != nil {
				return os.NewSyscallError("write", err)
			}
			var got [messageSize]byte
			for n := 0; n < len(got); {
				more, err := syscall.Read(way[1], got[n:])
				if err == syscall.EINTR { // by a signal of the runtime: a call with a timeout is not restarted (signal(7))
					continue
				}
				if err != nil || more == 0 {
					return fmt.Errorf("end %d: read of %d bytes after %d: %w", i, more, n, err)
				}
				n += more
			}
			if !bytes.Equal(got[:], message) {
				return fmt.Errorf("end %d: %q in place of %q", i, got, message)
			}
		}
		return nil
	})
}

// serve makes the calls on a thread, which ends with its descriptors when serve returns. The thread is not the
// first one of the process: that one does not end, and /proc/self shows its descriptors.
func (e *ends) serve() {
	runtime.LockOSThread()
	if sys.Gettid() == os.Getpid() {
		over := make(chan struct{})
		go func() { defer close(over); e.serve() }()
		<-over
		runtime.UnlockOSThread()
		return
	}
	for f := range e.calls {
		e.result <- f()
	}
}
