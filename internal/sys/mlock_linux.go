package sys

import "golang.org/x/sys/unix"

// SYS_MLOCK is a number for SeccompRefuse.
const SYS_MLOCK = unix.SYS_MLOCK

// Mlock keeps whole pages in memory with mlock(2). ENOMEM: RLIMIT_MEMLOCK; EPERM:
// that limit is 0, and CAP_IPC_LOCK is not there. Munmap undoes it.
func Mlock(b []byte) error { return unix.Mlock(b) }

// RlimitMemlock returns the soft limit of RLIMIT_MEMLOCK (getrlimit(2)) in bytes.
func RlimitMemlock() (uint64, error) {
	var l unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l)
	return l.Cur, err
}
