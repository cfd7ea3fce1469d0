package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Tgkill sends a signal to one thread of a process, tgkill(2).
func Tgkill(pid, tid int, signal syscall.Signal) error { return unix.Tgkill(pid, tid, signal) }
