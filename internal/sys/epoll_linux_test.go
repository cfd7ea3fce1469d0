package sys_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

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

func itoa(n int) string { return strconv.Itoa(n) }

func TestWaitExitedLeavesTheChildUnreaped(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	err := sys.WaitExited(pid)
	for err == syscall.EINTR {
		err = sys.WaitExited(pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + itoa(pid)); err != nil {
		t.Error("it is gone:", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := sys.WaitExited(pid); err != syscall.ECHILD {
		t.Errorf("after it was reaped: got %v, want ECHILD", err)
	}
}
