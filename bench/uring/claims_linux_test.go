package uring

import (
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestPollReportsUrgentDataThatIsNone: a multishot poll request has the events that its wake-up was made with, and that
// of TCP's arrivals has EPOLLPRI (sock_def_readable). epoll asks the socket. When this fails, a kernel asks as well, and
// a reason of docs/decisions.md is gone.
func TestPollReportsUrgentDataThatIsNone(t *testing.T) {
	r := open(t, 8, 8)
	c, s := sockets.TCPPair(t)
	fd := sockets.FD(t, c)
	const asked = sys.EPOLLIN | sys.EPOLLPRI
	r.Push(&SQE{Opcode: sys.IORING_OP_POLL_ADD, Fd: int32(fd), Len: sys.IORING_POLL_ADD_MULTI, OpFlags: asked})
	if err := r.Submit(); err != nil {
		t.Fatal(err)
	}
	ep, err := sys.EpollCreate1()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(ep)
	if err := sys.EpollCtl(ep, sys.EPOLL_CTL_ADD, fd, &sys.EpollEvent{Events: asked | sys.EPOLLET}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
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
	if err := r.CancelAll(); err != nil {
		t.Error(err)
	}
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
