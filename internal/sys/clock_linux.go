package sys

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// cpuclockSched is CPUCLOCK_SCHED of the kernel's include/linux/posix-timers.h: the clock of a process's CPU
// time as the scheduler counts it, in nanoseconds.
const cpuclockSched = 2

// ProcessCPUTime returns the CPU time that process pid has used so far, user and system, in all its threads
// including ended ones (clock_getcpuclockid(3)). It is finer than the ticks of /proc/pid/stat. EINVAL: there is
// no such process.
func ProcessCPUTime(pid int) (time.Duration, error) {
	clock := ^int32(pid)<<3 | cpuclockSched
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(t.Nano()), nil
}

// ThreadCPUTime returns the CPU time that the calling thread has used so far, user and system
// (clock_gettime(2), CLOCK_THREAD_CPUTIME_ID). getrusage(2) counts only ticks.
func ThreadCPUTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}

// Monotonic returns the time of CLOCK_MONOTONIC (clock_gettime(2)), with which the kernel stamps its own
// events.
func Monotonic() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(t.Nano()), nil
}

// Nanosleep sleeps for nsec nanoseconds by nanosleep(2), or until a signal comes. It goes through the
// scheduler.
func Nanosleep(nsec int64) {
	t := unix.NsecToTimespec(nsec)
	_ = unix.Nanosleep(&t, nil)
}

// TimerfdCreate makes a timer on CLOCK_MONOTONIC by timerfd_create(2), non-blocking and not armed. Once it has
// expired, eight bytes can be read. The caller owns the descriptor.
func TimerfdCreate() (int, error) {
	return unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
}

// TimerfdSettime arms a timer to expire once after d; 0 disarms it (timerfd_settime(2)).
func TimerfdSettime(fd int, d time.Duration) error {
	return unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
}
