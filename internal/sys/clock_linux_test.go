package sys_test

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// burn uses at least d of this process's own processor time.
func burn(t *testing.T, d time.Duration) {
	t.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for start := used(); used()-start < d; {
	}
}

func TestProcessCPUTimeCountsWhatTheProcessUsed(t *testing.T) {
	before, err := sys.ProcessCPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const used = 30 * time.Millisecond
	burn(t, used)
	after, err := sys.ProcessCPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// Getrusage may round what it reports by a tick.
	if got := after - before; got < used-10*time.Millisecond {
		t.Errorf("used %v or more, the clock says %v", used, got)
	}
}

func TestProcessCPUTimeOfNobody(t *testing.T) {
	if _, err := sys.ProcessCPUTime(1<<22 + 1); !errors.Is(err, syscall.EINVAL) { // above PID_MAX_LIMIT
		t.Errorf("got %v, want EINVAL", err)
	}
}

// TestThreadCPUTime: it goes on while the thread works, and by no more than the time.
func TestThreadCPUTime(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wall := time.Now()
	begin, err := sys.ThreadCPUTime()
	want(t, "clock_gettime", begin > 0, err, true, nil)
	for now := begin; now < begin+time.Millisecond; {
		now, err = sys.ThreadCPUTime()
		want(t, "clock_gettime", now >= begin, err, true, nil)
		if now-begin > time.Since(wall) {
			t.Fatalf("%v of CPU time in %v", now-begin, time.Since(wall))
		}
	}
}

func TestNanosleep(t *testing.T) {
	const d = 2 * time.Millisecond
	for range 5 { // a signal of the runtime ends one early
		begin := time.Now()
		sys.Nanosleep(int64(d))
		if time.Since(begin) >= d {
			return
		}
	}
	t.Error("it never slept for as long as it was to")
}

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
	for err == syscall.EINTR { // the runtime's signal to be preempted
		n, err = sys.EpollWait(epfd, events, 60_000)
	}
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
