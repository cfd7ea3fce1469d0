package strace

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
)

// Counter is an strace that counts the system calls of all threads of a process.
type Counter struct {
	pid   int
	table string
	stop  func() // ends strace and waits for it
}

// Attach starts counting, all calls or only calls with certain names; counting has begun when Attach returns.
// Without strace, or if ptrace(2) is not permitted, the test is skipped, or fails if CI is set.
func Attach(t testing.TB, pid int, names ...string) *Counter {
	t.Helper()
	path, err := exec.LookPath("strace")
	if err != nil {
		lacks(t, "needs strace: %v", err)
	}
	c := &Counter{pid: pid, table: filepath.Join(t.TempDir(), "calls")}
	args := []string{"-f", "-c", "-U", "name,calls,errors", "-o", c.table, "-p", strconv.Itoa(pid)}
	if len(names) > 0 {
		args = append(args, "-e", "trace="+strings.Join(names, ","))
	}
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	first := make([]byte, 4<<10)
	n, _ := stderr.Read(first)
	drained := make(chan struct{})
	go func() { defer close(drained); _, _ = io.Copy(io.Discard, stderr) }()
	c.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		<-drained
		_ = cmd.Wait() // its status comes from the signal that ends it
	})
	t.Cleanup(c.stop)
	switch said := string(first[:n]); {
	case strings.Contains(said, "attached"):
	case strings.Contains(said, "not permitted"):
		lacks(t, "ptrace is not permitted here: %s", said)
	default:
		t.Fatalf("strace: %s", said)
	}
	return c
}

// lacks skips the test because the machine lacks something, or fails it if CI is set.
func lacks(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Detach ends the counting and returns the number of calls by name, and of failed calls by name and " failed".
// It waits until every thread of the process sleeps: strace counts a call at its end, and the effect of a call
// can be seen before that.
func (c *Counter) Detach(t testing.TB) map[string]int {
	t.Helper()
	condition.Await(t, "all threads of the traced process sleep", func() bool { return asleep(c.pid) })
	c.stop()
	text := must.Get(os.ReadFile(c.table))(t)
	calls := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		for i, suffix := range []string{"", " failed"} {
			if len(fields) > i+1 && fields[0] != "total" {
				if n, err := strconv.Atoi(fields[i+1]); err == nil {
					calls[fields[0]+suffix] = n
				}
			}
		}
	}
	return calls
}

// asleep reports whether every thread of a process sleeps, in state S of proc_pid_stat(5). A thread that strace
// has stopped at the end of a call, to count it, is in state t.
func asleep(pid int) bool {
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // the thread has ended
		}
		_, fields, _ := strings.Cut(string(stat), ") ")
		if !strings.HasPrefix(fields, "S") {
			return false
		}
	}
	return true
}
