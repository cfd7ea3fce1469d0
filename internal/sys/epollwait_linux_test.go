package sys_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

func TestEpollPwait2(t *testing.T) {
	ep, err := sys.EpollCreate1()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(ep)
	fd, err := sys.Eventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	if err := sys.EpollCtl(ep, sys.EPOLL_CTL_ADD, fd, &sys.EpollEvent{Events: sys.EPOLLIN, Fd: 7}); err != nil {
		t.Fatal(err)
	}
	events := make([]sys.EpollEvent, 4)
	const wait = 300 * time.Microsecond
	begin := time.Now()
	n, err := sys.EpollPwait2(ep, events, int64(wait))
	if errors.Is(err, syscall.ENOSYS) {
		t.Skip("needs epoll_pwait2, which Linux has since 5.11")
	}
	if n != 0 || err != nil || time.Since(begin) < wait {
		t.Fatalf("with nothing ready: %d, %v after %v", n, err, time.Since(begin))
	}
	if _, err := sys.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	for name, wait := range map[string]func() (int, error){
		"epoll_pwait2": func() (int, error) { return sys.EpollPwait2(ep, events, int64(time.Minute)) },
		"epoll_poll":   func() (int, error) { return sys.EpollPoll(ep, events) },
	} {
		if n, err := wait(); n != 1 || err != nil || events[0].Fd != 7 {
			t.Errorf("%s: %d, %v, %+v", name, n, err, events[0])
		}
	}
}
