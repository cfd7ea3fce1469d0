package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Memory is the memory that a child's processes hold at one moment.
type Memory struct {
	// RssAnon is their resident anonymous memory, in bytes (proc(5),
	// /proc/pid/status): their own, not the kernel's and not the files they
	// have mapped. Pages that a process shares with its parent since a fork
	// count for both.
	RssAnon     int64
	Descriptors int // open ones
}

// Memory looks at the child's processes (see Pids). The error is
// os.ErrProcessDone when the child is gone.
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

// Pipes returns how many kernel pipes the child's processes hold both ends of
// at this moment (proc(5), /proc/pid/fd). Their standard streams are not among
// them: they hold only one end of these.
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

// each calls look for every process of the child; processes that end meanwhile do
// not count, unless it is the child itself.
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

// wholePipes counts the pipes that one process holds both ends of.
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
			continue // closed since
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
