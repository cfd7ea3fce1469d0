package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// userHZ is the unit of times in /proc, per second. It is part of the kernel's interface, and does not depend on
// the kernel's own tick (proc(5), time(7)).
const userHZ = 100

// ticks converts from the unit of /proc.
func ticks(n int64) time.Duration { return time.Duration(n) * (time.Second / userHZ) }

// Pids returns the PIDs of the child and of the processes that it has started, in ascending order. Processes that
// have left the child's process group are missing. The error is os.ErrProcessDone if the child is gone.
func (c *Child) Pids() ([]int, error) {
	pids := members(c.Pid())
	if !slices.Contains(pids, c.Pid()) {
		return nil, fmt.Errorf("processes of %s: %w", c.name, os.ErrProcessDone)
	}
	return pids, nil
}

// members returns the living processes of a process group.
func members(group int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil && s.group == group && s.state != 'Z' && s.state != 'X' {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// stat has the fields of /proc/pid/stat (proc(5)) that are used here.
type stat struct {
	state byte
	group int
	// waited is the processor time of the children for which the process has waited.
	waited time.Duration
}

func readStat(pid int) (stat, error) { return statOf(fmt.Sprintf("/proc/%d", pid)) }

// statOf reads the stat of a process or thread from its directory in /proc.
func statOf(dir string) (stat, error) {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return stat{}, err
	}
	// The second field is the name in parentheses. The name itself may contain parentheses.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	// The remaining fields begin with the third.
	const state, group, cutime, cstime = 0, 2, 13, 14
	if len(f) <= cstime {
		return stat{}, fmt.Errorf("%s/stat: %q", dir, b)
	}
	s := stat{state: f[state][0]}
	if s.group, err = strconv.Atoi(string(f[group])); err != nil {
		return stat{}, err
	}
	for _, field := range []int{cutime, cstime} {
		n, err := strconv.ParseInt(string(f[field]), 10, 64)
		if err != nil {
			return stat{}, err
		}
		s.waited += ticks(n)
	}
	return s, nil
}
