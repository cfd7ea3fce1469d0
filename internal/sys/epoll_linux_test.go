package sys_test

import (
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// newEpoll makes an epoll instance that lives as long as the test.
func newEpoll(t *testing.T) int {
	t.Helper()
	epfd, err := sys.EpollCreate1()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sys.Close(epfd) })
	return epfd
}

func TestEpollReturnsBothWordsOfData(t *testing.T) {
	epfd := newEpoll(t)
	r, w := newPipe(t)
	event := sys.EpollEvent{Events: sys.EPOLLIN, Fd: int32(r), Pad: -7}
	if err := sys.EpollCtl(epfd, sys.EPOLL_CTL_ADD, r, &event); err != nil {
		t.Fatal(err)
	}
	events := make([]sys.EpollEvent, 4)
	n, err := sys.EpollWait(epfd, events, 0)
	want(t, "wait for nothing", n, err, 0, nil)
	if _, err := sys.Write(w, []byte("x")); err != nil {
		t.Fatal(err)
	}
	n, err = sys.EpollWait(epfd, events, 60_000)
	want(t, "wait", n, err, 1, nil)
	if e := events[0]; e.Events != sys.EPOLLIN || e.Fd != int32(r) || e.Pad != -7 {
		t.Errorf("got %+v", e)
	}
	event.Events = sys.EPOLLOUT
	if err := sys.EpollCtl(epfd, sys.EPOLL_CTL_MOD, r, &event); err != nil {
		t.Fatal(err)
	}
	n, err = sys.EpollWait(epfd, events, 0)
	want(t, "wait for something else", n, err, 0, nil)
	if err := sys.EpollCtl(epfd, sys.EPOLL_CTL_DEL, r, &event); err != nil {
		t.Error(err)
	}
	if err := sys.EpollCtl(epfd, sys.EPOLL_CTL_DEL, r, &event); err != syscall.ENOENT {
		t.Errorf("removed twice: %v, want ENOENT", err)
	}
	n, err = sys.EpollWait(-1, events, 0)
	want(t, "wait on nothing", n, err, 0, error(syscall.EBADF))
}

func TestEventfd(t *testing.T) {
	fd, err := sys.Eventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	b := make([]byte, 8)
	n, err := sys.Read(fd, b)
	want(t, "read of 0", n, err, 0, error(syscall.EAGAIN))
	n, err = sys.Write(fd, []byte{1, 1, 1, 1, 1, 1, 1, 1})
	want(t, "write", n, err, 8, nil)
	n, err = sys.Read(fd, b)
	want(t, "read", n, err, 8, nil)
	n, err = sys.Read(fd, b)
	want(t, "read of 0", n, err, 0, error(syscall.EAGAIN))
}
