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

// ChangeSchedPolicy gives a thread of this process another scheduling policy if it has the one
// named first, and leaves the other attributes of sched_setattr(2), its nice value for one, as
// they are. It returns EINVAL for a thread with any other policy, and ESRCH for a thread that is
// not, or not any more, of this process.
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

// Membarrier makes all threads of the process pass a full memory barrier before
// it returns (MEMBARRIER_CMD_PRIVATE_EXPEDITED). It takes about as long as an
// interrupt on each core that runs one of them and sleeps for nothing, so it goes
// through RawSyscall.
func Membarrier() error {
	_, _, e := syscall.RawSyscall(unix.SYS_MEMBARRIER, membarrierPrivateExpedited, 0, 0)
	return errnoErr(e)
}
