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

// Usage is the resources that a child's processes have used since they began.
type Usage struct {
	CPU      time.Duration // processor time of all threads, user and system
	Switches int64         // context switches of the living threads, voluntary or not
}

// Sub returns the difference from before.
func (u Usage) Sub(before Usage) Usage {
	return Usage{CPU: u.CPU - before.CPU, Switches: u.Switches - before.Switches}
}

// Usage returns the resources that the child's processes (see Pids) have used so far. The processor time is exact:
// it includes ended threads, and ended processes that were waited for. Switches are counted only for living
// threads (proc(5), /proc/pid/task/tid/status), but proxies rarely end threads. The error is os.ErrProcessDone if
// the child is gone.
func (c *Child) Usage() (Usage, error) {
	var u Usage
	err := c.each(func(pid int) error {
		one, err := usage(pid)
		u.CPU += one.CPU
		u.Switches += one.Switches
		return err
	})
	if err != nil {
		return Usage{}, fmt.Errorf("usage of %s: %w", c.name, err)
	}
	return u, nil
}

// usage is the usage of one process.
func usage(pid int) (Usage, error) {
	cpu, err := sys.ProcessCPUTime(pid)
	if errors.Is(err, syscall.EINVAL) {
		return Usage{}, os.ErrProcessDone
	}
	if err != nil {
		return Usage{}, err
	}
	s, err := readStat(pid)
	if err != nil {
		return Usage{}, err
	}
	switches, err := contextSwitches(pid)
	if err != nil {
		return Usage{}, err
	}
	return Usage{CPU: cpu + s.waited, Switches: switches}, nil
}

// contextSwitches adds up the context switches of the threads of a process.
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

// gone reports whether err says that a process or an entry of /proc does not exist any more.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, os.ErrProcessDone)
}
