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

// Counter is an strace that counts the calls of all threads of a process.
type Counter struct {
	pid   int
	table string
	stop  func() // and waits for its end
}

// Attach starts counting, the calls of those names or all; it has begun when Attach
// returns. Without strace, and where ptrace(2) is not permitted, the test is skipped;
// where CI is set it fails.
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
		_ = cmd.Wait() // its status is that of the signal which ends it
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

// lacks skips the test because the machine lacks something.
func lacks(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Detach ends the counting and returns how many calls there were by name, and how many
// of them failed by name and " failed". It waits until every thread of the process sleeps:
// strace counts a call at its end, and the effect of a call can be seen before that.
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

// asleep reports whether every thread of a process sleeps, in state S of proc_pid_stat(5).
// One that is stopped at the end of a call for strace to count it is in state t.
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
