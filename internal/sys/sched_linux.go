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

// SchedPolicy returns the scheduling policy of a thread; 0 is the calling thread.
func SchedPolicy(tid int) (int, error) {
	attr, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return 0, err
	}
	return int(attr.Policy), nil
}

// ChangeSchedPolicy changes the scheduling policy of a thread of this process from one policy to another, and
// keeps the other attributes of sched_setattr(2), such as the nice value. EINVAL: the thread has another
// policy; ESRCH: it is not a thread of this process, or no longer.
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

// Commands of membarrier(2), include/uapi/linux/membarrier.h.
const (
	membarrierPrivateExpedited         = 1 << 3
	membarrierRegisterPrivateExpedited = 1 << 4
)

// RegisterMembarrier allows the process to use Membarrier
// (MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, Linux 4.14). It lasts until execve.
func RegisterMembarrier() error {
	_, _, e := syscall.Syscall(unix.SYS_MEMBARRIER, membarrierRegisterPrivateExpedited, 0, 0)
	return errnoErr(e)
}

// Membarrier makes all threads of the process pass a full memory barrier before it returns
// (MEMBARRIER_CMD_PRIVATE_EXPEDITED). It takes about as long as an interrupt on each core that runs one of
// them. It never sleeps, so it is a raw call.
func Membarrier() error {
	_, _, e := syscall.RawSyscall(unix.SYS_MEMBARRIER, membarrierPrivateExpedited, 0, 0)
	return errnoErr(e)
}
