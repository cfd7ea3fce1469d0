package syscalls

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/penstock/penstock/bench/process"
)

// strace stops the processes twice in every call, and needs no rights beyond
// those of a debugger.
type strace struct {
	child *process.Child
}

// attachStrace starts strace, which says of each process when it has all of
// its threads.
func attachStrace(ctx context.Context, g *process.Group, path string, pids []int) (tracer, error) {
	args := []string{"strace", "-f", "-c"}
	waiting := make(map[string]bool)
	for _, pid := range pids {
		args = append(args, "-p", strconv.Itoa(pid))
		waiting[strconv.Itoa(pid)] = true
	}
	child, err := g.Start(process.Spec{Name: "strace", Path: path, Args: args, Env: append(os.Environ(), "LC_ALL=C")})
	if err != nil {
		return nil, err
	}
	for len(waiting) > 0 {
		line, err := child.Stderr(ctx)
		if err != nil {
			return nil, err
		}
		// "strace: Process 12 attached", or "... attached with 5 threads".
		f := strings.Fields(line)
		switch {
		case len(f) >= 4 && f[1] == "Process" && f[3] == "attached":
			delete(waiting, f[2])
		case strings.Contains(line, "ptrace("):
			return nil, errors.New(strings.TrimPrefix(line, "strace: "))
		}
	}
	return &strace{child}, nil
}

func (s *strace) detach(ctx context.Context) (int64, error) {
	if err := s.child.Signal(syscall.SIGINT); err != nil {
		return 0, err
	}
	said, err := remaining(ctx, s.child)
	if err != nil {
		return 0, err
	}
	return parseStrace(said)
}

func (*strace) close() {}

// parseStrace adds up the lines of a table, each a system call:
//
//	% time     seconds  usecs/call     calls    errors syscall
//	------ ----------- ----------- --------- --------- ----------------
//	 97.11    0.000571           2       201           read
func parseStrace(said []string) (int64, error) {
	var sum int64
	table := false
	for _, line := range said {
		f := strings.Fields(line)
		if len(f) < 5 || f[len(f)-1] == "total" {
			continue
		}
		if f[0] == "%" {
			table = true
			continue
		}
		if _, err := strconv.ParseFloat(f[0], 64); !table || err != nil {
			continue
		}
		n, err := strconv.ParseInt(f[3], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("strace says %q", line)
		}
		sum += n
	}
	return sum, nil
}
