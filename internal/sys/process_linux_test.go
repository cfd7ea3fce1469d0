package sys_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/privilege"
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

func TestChangeSchedPolicy(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	tid := sys.Gettid()
	if err := sys.ChangeSchedPolicy(tid, sys.SCHED_BATCH, sys.SCHED_OTHER); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a policy that it does not have: %v, want EINVAL", err)
	}
	for _, step := range [][2]int{{sys.SCHED_OTHER, sys.SCHED_BATCH}, {sys.SCHED_BATCH, sys.SCHED_OTHER}} {
		if err := sys.ChangeSchedPolicy(tid, step[0], step[1]); err != nil {
			t.Fatal(err)
		}
		if got, err := sys.SchedPolicy(0); got != step[1] || err != nil {
			t.Errorf("policy %d, %v, want %d", got, err, step[1])
		}
	}
	if err := sys.ChangeSchedPolicy(1<<22+1, sys.SCHED_OTHER, sys.SCHED_BATCH); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("a thread that is not: %v, want ESRCH", err)
	}
}

func TestSetRlimitMemlock(t *testing.T) {
	before, err := sys.RlimitMemlock()
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []uint64{0, before} {
		if err := sys.SetRlimitMemlock(limit); err != nil {
			t.Fatal(err)
		}
		got, err := sys.RlimitMemlock()
		want(t, "soft limit", got, err, limit, nil)
	}
}

func TestSetRlimitNoFile(t *testing.T) {
	soft, hard, err := sys.RlimitNoFileRange()
	if err != nil {
		t.Fatal(err)
	}
	want(t, "lower", 0, sys.SetRlimitNoFile(soft-1, hard), 0, nil)
	s, h, err := sys.RlimitNoFileRange()
	want(t, "soft", s, err, soft-1, nil)
	want(t, "hard", h, err, hard, nil)
	one, err := sys.RlimitNoFile()
	want(t, "soft alone", one, err, soft-1, nil)
	want(t, "restore", 0, sys.SetRlimitNoFile(soft, hard), 0, nil)
	want(t, "soft above hard", 0, sys.SetRlimitNoFile(hard+1, hard), 0, error(syscall.EINVAL))
}

func TestIoUringSetup(t *testing.T) {
	fd, err := sys.IoUringSetup(2, &sys.IoUringParams{})
	if err == syscall.EPERM || err == syscall.ENOSYS {
		t.Skipf("refused here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	want(t, "close", 0, sys.Close(fd), 0, nil)
	_, err = sys.IoUringSetup(0, &sys.IoUringParams{})
	want(t, "no entries", 0, err, 0, error(syscall.EINVAL))
}

// TestRefusedNumbers: each number is that of its call.
func TestRefusedNumbers(t *testing.T) {
	if !privilege.Refused(t, syscall.EXDEV, sys.SYS_IO_URING_SETUP, sys.SYS_MADVISE, sys.SYS_MEMBARRIER, sys.SYS_SETSOCKOPT) {
		return
	}
	_, uring := sys.IoUringSetup(2, &sys.IoUringParams{})
	for name, err := range map[string]error{
		"io_uring_setup": uring, "madvise": sys.Madvise(make([]byte, 1), sys.MADV_HUGEPAGE),
		"membarrier": sys.RegisterMembarrier(), "setsockopt": sys.SetsockoptInt(0, sys.SOL_SOCKET, sys.SO_KEEPALIVE, 1),
	} {
		if err != syscall.EXDEV {
			t.Errorf("%s: %v, want EXDEV", name, err)
		}
	}
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

func TestMain(m *testing.M) { leak.Main(m) }
