package uring

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestWaysEcho: each way that is measured echoes, for several clients at a time, and serves the next one
// after they have left.
func TestWaysEcho(t *testing.T) {
	open(t, 8, 8) // or skips
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			if limit, err := sys.RlimitMemlock(); w.memory && (err != nil || limit < 2*places*bufferSize) {
				t.Skipf("needs memory that is locked: RLIMIT_MEMLOCK is %d, %v", limit, err)
			}
			addr, fd := listen(t, "127.0.0.1")
			s := newServer(t, fd, w.way, false)
			ended := make(chan error, 1)
			go func() { ended <- s.run() }()
			for range 2 {
				echoTo(t, addr)
			}
			s.end()
			must.Do(t, <-ended)
		})
	}
}

// echoTo has four clients served. It fails the test without ending its goroutine.
func echoTo(t *testing.T, addr string) {
	t.Helper()
	var conns [4]net.Conn
	for i := range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		conns[i] = c
	}
	for i, c := range conns {
		echoes(t, c, bytes.Repeat([]byte{byte(i), byte(i + 1)}, 1000*(i+1)))
		c.Close()
	}
}

func echoes(t *testing.T, c net.Conn, message []byte) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	for range 3 {
		if _, err := c.Write(message); err != nil {
			t.Error(err)
			return
		}
		got := make([]byte, len(message))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, message) {
			t.Errorf("%d bytes came back as others, or not: %v", len(message), err)
			return
		}
	}
}

func TestMain(m *testing.M) { leak.Main(m) }

// open makes a ring that is this thread's, and closes it when the test ends.
func open(t testing.TB, submissions, completions uint32) *Ring {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	r, err := Open(submissions, completions, Deferred)
	if err != nil {
		t.Skip("needs io_uring of Linux 6.1:", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	must.Do(t, r.Enable())
	return r
}

// TestCancelAllReleasesFiles: the other end of a pair whose end was closed sees that only when no request
// holds the file.
func TestCancelAllReleasesFiles(t *testing.T) {
	r := open(t, 8, 8)
	a, b, err := sys.SocketPair()
	must.Do(t, err)
	defer sys.Close(b)
	r.Push(&SQE{Opcode: sys.IORING_OP_POLL_ADD, Fd: int32(a), Len: sys.IORING_POLL_ADD_MULTI, OpFlags: sys.EPOLLIN, UserData: 1})
	must.Do(t, r.Submit())
	sys.Close(a)
	buf := make([]byte, 1)
	if _, err := sys.Recv(b, buf, sys.MSG_DONTWAIT); err != syscall.EAGAIN {
		t.Fatalf("while the request holds it: %v, want EAGAIN", err)
	}
	must.Do(t, r.CancelAll())
	if n, err := sys.Recv(b, buf, sys.MSG_DONTWAIT); n != 0 || err != nil {
		t.Fatalf("after that: %d, %v, want an end of file", n, err)
	}
}

// TestPollReportsUrgentDataThatIsNone: a multishot poll request has the events that its wake-up was made with, and that
// of TCP's arrivals has EPOLLPRI (sock_def_readable). epoll asks the socket. When this fails, a kernel asks as well, and
// a reason of docs/decisions.md is gone.
func TestPollReportsUrgentDataThatIsNone(t *testing.T) {
	r := open(t, 8, 8)
	c, s := sockets.TCPPair(t)
	fd := sockets.FD(t, c)
	const asked = sys.EPOLLIN | sys.EPOLLPRI
	r.Push(&SQE{Opcode: sys.IORING_OP_POLL_ADD, Fd: int32(fd), Len: sys.IORING_POLL_ADD_MULTI, OpFlags: asked})
	must.Do(t, r.Submit())
	ep := must.Get(sys.EpollCreate1())(t)
	defer sys.Close(ep)
	must.Do(t, sys.EpollCtl(ep, sys.EPOLL_CTL_ADD, fd, &sys.EpollEvent{Events: asked | sys.EPOLLET}))
	must.Get(s.Write([]byte("x")))(t)
	var e CQE
	for !r.Next(&e) {
		if err := r.Wait(-1); err != nil && err != syscall.EINTR {
			t.Fatal(err)
		}
	}
	if e.Res != asked {
		t.Errorf("io_uring reports %#x, want %#x", e.Res, asked)
	}
	events := make([]sys.EpollEvent, 1)
	if n, err := sys.EpollWait(ep, events, 30_000); n != 1 || events[0].Events != sys.EPOLLIN {
		t.Errorf("epoll reports %d of %#x, %v, want EPOLLIN", n, events[0].Events, err)
	}
	must.Do(t, r.CancelAll())
}

// TestARingBelongsToAThread: another one is refused, so that a goroutine that has a ring must stay on its thread.
func TestARingBelongsToAThread(t *testing.T) {
	r := open(t, 8, 8)
	refused := make(chan error)
	go func() { refused <- r.Submit() }() // on another thread: the test is locked to its own
	if err := <-refused; err != syscall.EEXIST {
		t.Errorf("got %v, want EEXIST", err)
	}
}
