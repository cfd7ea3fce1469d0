package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Scheduling policies, see sched(7).
const (
	SCHED_OTHER = unix.SCHED_NORMAL
	SCHED_BATCH = unix.SCHED_BATCH
	SCHED_IDLE  = unix.SCHED_IDLE
)

// SchedPolicy returns the scheduling policy of a thread; 0 is the calling one.
func SchedPolicy(tid int) (int, error) {
	attr, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return 0, err
	}
	return int(attr.Policy), nil
}

// ChangeSchedPolicy gives a thread of this process another scheduling policy if it has
// the one named first, and leaves what else there is in sched_setattr(2), its nice value
// for one, as it is. It returns EINVAL for one with any other policy, and ESRCH for a
// thread that is not, or not any more, of this process.
func ChangeSchedPolicy(tid, from, to int) error {
	if err := unix.Tgkill(unix.Getpid(), tid, 0); err != nil {
		return err
	}
	attr, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return err
	}
	if attr.Policy != uint32(from) {
		return syscall.EINVAL
	}
	attr.Policy = uint32(to)
	return unix.SchedSetAttr(tid, attr, 0)
}
