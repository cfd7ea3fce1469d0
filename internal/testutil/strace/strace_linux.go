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
)

// Counter is an strace that counts the calls of all threads of a process.
type Counter struct {
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
	c := &Counter{table: filepath.Join(t.TempDir(), "calls")}
	args := []string{"-f", "-c", "-U", "name,calls,errors", "-o", c.table, "-p", strconv.Itoa(pid)}
	if len(names) > 0 {
		args = append(args, "-e", "trace="+strings.Join(names, ","))
	}
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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

// lacks skips the test for what the machine lacks.
func lacks(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Detach ends the counting and returns how many calls there were by name, and how many
// of them failed by name and " failed".
func (c *Counter) Detach(t testing.TB) map[string]int {
	t.Helper()
	c.stop()
	text, err := os.ReadFile(c.table)
	if err != nil {
		t.Fatal(err)
	}
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
