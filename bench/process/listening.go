package process

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

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
	err = c.each(func(pid int) error {
		if len(sockets) == 0 {
			return nil
		}
		return hold(pid, sockets, held)
	})
	if err != nil {
		return 0, fmt.Errorf("sockets of %s: %w", c.name, err)
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

// exiting reports whether a process is about to end. It then has the flag PF_EXITING (include/linux/sched.h) in
// /proc/pid/stat (proc_pid_stat(5)).
func exiting(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return gone(err)
	}
	const flags, pfExiting = 6, 0x4 // indexes of the fields after the name, which is in parentheses
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= flags {
		return false
	}
	set, err := strconv.ParseUint(fields[flags], 10, 64)
	return err == nil && set&pfExiting != 0
}

// hold adds to held all sockets for which a process has a descriptor.
func hold(pid int, sockets, held map[string]bool) error {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrPermission) && exiting(pid): // the process has no owner any more
		return syscall.ESRCH
	case err != nil:
		return err
	}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && sockets[target] {
			held[target] = true
		}
	}
	return nil
}
