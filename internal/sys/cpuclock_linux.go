package sys

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// cpuclockSched is CPUCLOCK_SCHED of the kernel's include/linux/posix-timers.h:
// the clock that counts what the scheduler saw a process run, in nanoseconds.
const cpuclockSched = 2

// ProcessCPUTime returns the processor time that process pid has used so far,
// user and system, all its threads, those that have ended included
// (clock_getcpuclockid(3)). It is finer than the ticks of /proc/pid/stat. The
// error is EINVAL when there is no such process.
func ProcessCPUTime(pid int) (time.Duration, error) {
	clock := ^int32(pid)<<3 | cpuclockSched
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(t.Nano()), nil
}
