package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Memory is the memory that a child's processes hold at one moment.
type Memory struct {
	// RssAnon is the resident anonymous memory of the processes, in bytes (proc(5), /proc/pid/status). It contains
	// neither the kernel's memory nor mapped files. Pages that a process still shares with its parent after a fork
	// count for both.
	RssAnon     int64
	Descriptors int // open descriptors
}

// Memory returns the memory of the child's processes, see Pids. The error is os.ErrProcessDone if the child is
// gone.
func (c *Child) Memory() (Memory, error) {
	var m Memory
	err := c.each(func(pid int) error {
		rss, err := sized(fmt.Sprintf("/proc/%d/status", pid), "RssAnon")
		if err != nil {
			return err
		}
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return err
		}
		m.RssAnon += rss
		m.Descriptors += len(entries)
		return nil
	})
	if err != nil {
		return Memory{}, fmt.Errorf("memory of %s: %w", c.name, err)
	}
	return m, nil
}

// Pipes returns how many kernel pipes the child's processes hold with both ends at this moment (proc(5),
// /proc/pid/fd). Their standard streams do not count, because the processes hold only one end of these.
func (c *Child) Pipes() (int, error) {
	pipes := 0
	err := c.each(func(pid int) error {
		n, err := wholePipes(pid)
		pipes += n
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("descriptors of %s: %w", c.name, err)
	}
	return pipes, nil
}

// each calls look for each process of the child. Other processes than the child itself may end meanwhile, and then
// do not count.
func (c *Child) each(look func(pid int) error) error {
	pids, err := c.Pids()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		switch err := look(pid); {
		case gone(err) && pid != c.Pid():
		case gone(err):
			return os.ErrProcessDone
		case err != nil:
			return err
		}
	}
	return nil
}

// wholePipes returns the number of pipes that a process holds with both ends.
func wholePipes(pid int) (int, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	ends, pipes := make(map[string]int, len(entries)), 0
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if gone(err) {
			continue // closed meanwhile
		}
		if err != nil {
			return 0, err
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
