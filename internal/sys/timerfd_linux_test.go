package sys_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

func TestTimerfdExpiresOnce(t *testing.T) {
	fd, err := sys.TimerfdCreate()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	epfd, events := newEpoll(t), make([]sys.EpollEvent, 1)
	if err := sys.EpollCtl(epfd, sys.EPOLL_CTL_ADD, fd, &sys.EpollEvent{Events: sys.EPOLLIN}); err != nil {
		t.Fatal(err)
	}
	const d = 5 * time.Millisecond
	start := time.Now()
	if err := sys.TimerfdSettime(fd, d); err != nil {
		t.Fatal(err)
	}
	n, err := sys.EpollWait(epfd, events, 60_000)
	want(t, "wait", n, err, 1, nil)
	if took := time.Since(start); took < d {
		t.Errorf("expired after %v, want %v or more", took, d)
	}
	b := make([]byte, 8)
	n, err = sys.Read(fd, b)
	want(t, "read", n, err, 8, nil)
	n, err = sys.Read(fd, b)
	want(t, "read again", n, err, 0, error(syscall.EAGAIN))

	if err := sys.TimerfdSettime(fd, time.Hour); err != nil {
		t.Error(err)
	}
	if err := sys.TimerfdSettime(fd, 0); err != nil {
		t.Error(err)
	}
	if err := sys.TimerfdSettime(-1, d); err != syscall.EBADF {
		t.Errorf("got %v, want EBADF", err)
	}
}
