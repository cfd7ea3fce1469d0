package uring

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestMain(m *testing.M) { leak.Main(m) }

// open makes a ring that is this thread's, and closes it when the test ends.
func open(t testing.TB) *Ring {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	r, err := Open(8, 8)
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
	r := open(t)
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
	r := open(t)
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
		if err := r.Wait(); err != nil && err != syscall.EINTR {
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
	r := open(t)
	refused := make(chan error)
	go func() { refused <- r.Submit() }() // on another thread: the test is locked to its own
	if err := <-refused; err != syscall.EEXIST {
		t.Errorf("got %v, want EEXIST", err)
	}
}
