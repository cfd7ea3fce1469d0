package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrNoStrace means that strace, which counts system calls, is not installed.
var ErrNoStrace = errors.New("strace, which counts system calls, is not installed: apt-get install strace")

// tracing limits how long strace may take to attach to processes, and to detach.
const tracing = 10 * time.Second

// CountCalls calls the function during, and returns how many system calls the processes, their new threads and
// their children made meanwhile. It counts them with strace, which stops a process twice in every call: do not
// measure time meanwhile. It returns an error of the function unchanged.
func CountCalls(ctx context.Context, pids []int, during func() error) (int64, error) {
	path, err := exec.LookPath("strace")
	if err != nil {
		return 0, ErrNoStrace
	}
	g := NewGroup()
	defer g.Close()
	args := []string{"strace", "-f", "-c"}
	waiting := make(map[string]bool)
	for _, pid := range pids {
		args = append(args, "-p", strconv.Itoa(pid))
		waiting[strconv.Itoa(pid)] = true
	}
	child, err := g.Start(Spec{Name: "strace", Path: path, Args: args, Env: append(os.Environ(), "LC_ALL=C")})
	if err != nil {
		return 0, err
	}
	attaching, cancel := context.WithTimeoutCause(ctx, tracing, fmt.Errorf("strace did not attach to %v within %v", pids, tracing))
	defer cancel()
	for len(waiting) > 0 {
		line, err := child.Stderr(attaching)
		if err != nil {
			return 0, err
		}
		// "strace: Process 12 attached", or "... attached with 5 threads".
		f := strings.Fields(line)
		switch {
		case len(f) >= 4 && f[1] == "Process" && f[3] == "attached":
			delete(waiting, f[2])
		case strings.Contains(line, "ptrace("):
			return 0, errors.New(line)
		}
	}
	if err := during(); err != nil {
		return 0, err
	}
	if err := child.Signal(syscall.SIGINT); err != nil {
		return 0, err
	}
	detaching, cancel := context.WithTimeoutCause(ctx, tracing, fmt.Errorf("strace did not detach from %v within %v", pids, tracing))
	defer cancel()
	for {
		line, err := child.Stderr(detaching)
		if err != nil {
			return 0, err
		}
		// "100.00    0.000588           2       231        30 total" is the last line of its table.
		if f := strings.Fields(line); len(f) > 4 && f[len(f)-1] == "total" {
			return strconv.ParseInt(f[3], 10, 64)
		}
	}
}
