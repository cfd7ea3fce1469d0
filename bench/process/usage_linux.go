package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// Usage is what a process has used since it began.
type Usage struct {
	CPU      time.Duration // of the processor, all threads, user and system
	Switches int64         // context switches of the threads that live, voluntary or not
}

// Sub returns what was used since before.
func (u Usage) Sub(before Usage) Usage {
	return Usage{CPU: u.CPU - before.CPU, Switches: u.Switches - before.Switches}
}

// Usage returns what the process has used so far. The processor time is exact
// and includes threads that have ended; the switches are of living threads
// only (proc(5), /proc/pid/task/tid/status), and Go ends threads rarely.
func (c *Child) Usage() (Usage, error) {
	cpu, err := sys.ProcessCPUTime(c.Pid())
	if err != nil {
		return Usage{}, fmt.Errorf("processor time of %s: %w", c.name, err)
	}
	switches, err := contextSwitches(c.Pid())
	if err != nil {
		return Usage{}, fmt.Errorf("context switches of %s: %w", c.name, err)
	}
	return Usage{CPU: cpu, Switches: switches}, nil
}

// contextSwitches adds up the threads of a process.
func contextSwitches(pid int) (int64, error) {
	statuses, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return 0, err
	}
	if len(statuses) == 0 {
		return 0, os.ErrProcessDone
	}
	var sum int64
	for _, path := range statuses {
		status, err := os.ReadFile(path)
		if gone(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		for line := range bytes.Lines(status) {
			name, value, _ := strings.Cut(string(line), ":")
			if !strings.HasSuffix(name, "_ctxt_switches") {
				continue
			}
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}

// Pipes returns how many kernel pipes the process holds both ends of at this
// moment (proc(5), /proc/pid/fd). Its standard streams are not among them: of
// those it holds one end.
func (c *Child) Pipes() (int, error) {
	dir := fmt.Sprintf("/proc/%d/fd", c.Pid())
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("descriptors of %s: %w", c.name, err)
	}
	ends, pipes := make(map[string]int, len(entries)), 0
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if gone(err) {
			continue // closed since
		}
		if err != nil {
			return 0, fmt.Errorf("descriptors of %s: %w", c.name, err)
		}
		if !strings.HasPrefix(target, "pipe:") {
			continue
		}
		if ends[target]++; ends[target] == 2 {
			pipes++
		}
	}
	return pipes, nil
}

// gone reports that an entry of /proc has ceased to exist.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
