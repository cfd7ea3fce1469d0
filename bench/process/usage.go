package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/prometheus/procfs"
)

// tick is the unit of times in /proc. It is part of the kernel's interface, and does not depend on the kernel's own
// tick (proc(5), time(7)).
const tick = 10 * time.Millisecond

// Pids returns the PIDs of the child and of the processes that it has started, in ascending order. Processes that
// have left the child's process group are missing. The error is os.ErrProcessDone if the child is gone.
func (c *Child) Pids() (pids []int, err error) {
	if c == nil {
		return nil, nil
	}
	for _, p := range members(c.Pid()) {
		pids = append(pids, p.PID)
	}
	slices.Sort(pids)
	if !slices.Contains(pids, c.Pid()) {
		return nil, fmt.Errorf("processes of %s: %w", c.name, os.ErrProcessDone)
	}
	return pids, nil
}

// members returns the living processes of a process group.
func members(group int) (list []procfs.Proc) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil
	}
	for _, p := range all {
		if of, err := syscall.Getpgid(p.PID); err != nil || of != group {
			continue
		}
		if s, err := p.Stat(); err == nil && s.State != "Z" && s.State != "X" {
			list = append(list, p)
		}
	}
	return list
}

// each calls the function look for each process of the child. Other processes than the child itself may end
// meanwhile, and then do not count. An error begins with the text of what.
func (c *Child) each(what string, look func(p procfs.Proc) error) error {
	pids, err := c.Pids()
	for i := 0; err == nil && i < len(pids); i++ {
		var p procfs.Proc
		if p, err = procfs.NewProc(pids[i]); err == nil {
			err = look(p)
		}
		switch {
		case gone(err) && pids[i] != c.Pid():
			err = nil
		case gone(err):
			err = os.ErrProcessDone
		}
	}
	if err != nil {
		return fmt.Errorf("%s of %s: %w", what, c.name, err)
	}
	return nil
}

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
func (c *Child) Usage() (u Usage, err error) {
	err = c.each("usage", func(p procfs.Proc) error {
		cpu, err := sys.ProcessCPUTime(p.PID)
		if errors.Is(err, syscall.EINVAL) {
			return os.ErrProcessDone
		}
		if err != nil {
			return err
		}
		s, err := p.Stat()
		if err != nil {
			return err
		}
		switches, err := contextSwitches(p)
		u.CPU += cpu + time.Duration(s.CUTime+s.CSTime)*tick
		u.Switches += switches
		return err
	})
	if err != nil {
		return Usage{}, err
	}
	return u, nil
}

// contextSwitches adds up the context switches of the threads of a process.
func contextSwitches(p procfs.Proc) (sum int64, err error) {
	threads, err := procfs.AllThreads(p.PID)
	for i := 0; err == nil && i < len(threads); i++ {
		var s procfs.ProcStatus
		if s, err = threads[i].NewStatus(); gone(err) {
			err = nil
		}
		sum += int64(s.TotalCtxtSwitches())
	}
	return sum, err
}

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
func (c *Child) Memory() (m Memory, err error) {
	err = c.each("memory", func(p procfs.Proc) error {
		s, err := p.NewStatus()
		if err != nil {
			return err
		}
		n, err := p.FileDescriptorsLen()
		m.RssAnon += int64(s.RssAnon)
		m.Descriptors += n
		return err
	})
	if err != nil {
		return Memory{}, err
	}
	return m, nil
}

// Pipes returns how many kernel pipes the child's processes hold with both ends at this moment (proc(5),
// /proc/pid/fd). Their standard streams do not count, because the processes hold only one end of these.
func (c *Child) Pipes() (pipes int, err error) {
	err = c.each("descriptors", func(p procfs.Proc) error {
		targets, err := descriptors(p)
		ends := make(map[string]int, len(targets))
		for _, to := range targets {
			if ends[to]++; ends[to] == 2 && strings.HasPrefix(to, "pipe:") {
				pipes++
			}
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return pipes, nil
}

// listenState is TCP_LISTEN (include/net/tcp_states.h) as /proc/net/tcp has it.
const listenState = "0A"

// Listening returns how many sockets of the child's processes (see Pids) listen at exactly this IPv4 address and
// port, in the child's network namespace. It does not connect. The error is os.ErrProcessDone if the child is
// gone.
func (c *Child) Listening(at netip.AddrPort) (int, error) {
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", c.Pid()))
	if err != nil && !gone(err) {
		return 0, fmt.Errorf("sockets of %s: %w", c.name, err)
	}
	sockets := listeners(string(table), at)
	held := make(map[string]bool)
	err = c.each("sockets", func(p procfs.Proc) error {
		if len(sockets) == 0 {
			return nil
		}
		targets, err := descriptors(p)
		for _, to := range targets {
			if sockets[to] {
				held[to] = true
			}
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(held), nil
}

// listeners returns the sockets that listen at an address, from the text of /proc/net/tcp (proc(5)). It names them
// like the links in /proc/pid/fd.
func listeners(table string, at netip.AddrPort) map[string]bool {
	ip := at.Addr().As4()
	want := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(ip[:]), at.Port())
	const local, state, inode = 1, 3, 9
	sockets := make(map[string]bool)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > inode && f[local] == want && f[state] == listenState {
			sockets["socket:["+f[inode]+"]"] = true
		}
	}
	return sockets
}

// descriptors returns what the descriptors of a process refer to, such as "socket:[12]".
func descriptors(p procfs.Proc) ([]string, error) {
	targets, err := p.FileDescriptorTargets()
	if errors.Is(err, fs.ErrPermission) && exiting(p) { // the process has no owner any more
		err = syscall.ESRCH
	}
	return targets, err
}

// exiting reports whether a process is about to end. It then has the flag PF_EXITING (include/linux/sched.h).
func exiting(p procfs.Proc) bool {
	const pfExiting = 0x4
	s, err := p.Stat()
	return gone(err) || err == nil && s.Flags&pfExiting != 0
}

// gone reports whether err says that a process or an entry of /proc does not exist any more.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, os.ErrProcessDone)
}
