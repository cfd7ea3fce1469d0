package sys

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// cpuclockSched is CPUCLOCK_SCHED of the kernel's include/linux/posix-timers.h: the clock of a
// process's time on CPUs, as the scheduler counts it, in nanoseconds.
const cpuclockSched = 2

// ProcessCPUTime returns the processor time that process pid has used so far,
// user and system, in all its threads, ended ones included
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

// ThreadCPUTime returns the processor time that the calling thread has used so far, in
// user and system mode, in nanoseconds (clock_gettime(2), CLOCK_THREAD_CPUTIME_ID).
// getrusage(2) knows it no finer than a tick.
func ThreadCPUTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}

// Monotonic returns the time of CLOCK_MONOTONIC, which the kernel stamps its own events with
// (clock_gettime(2)).
func Monotonic() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(t.Nano()), nil
}

// Nanosleep sleeps for nsec nanoseconds with nanosleep(2), or until a signal comes. It goes
// through the scheduler.
func Nanosleep(nsec int64) {
	t := unix.NsecToTimespec(nsec)
	_ = unix.Nanosleep(&t, nil)
}

// TimerfdCreate makes a timer on CLOCK_MONOTONIC with timerfd_create(2),
// non-blocking and not armed. It can be read, eight bytes, once it has expired.
// The caller owns the descriptor.
func TimerfdCreate() (int, error) {
	return unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
}

// TimerfdSettime arms a timer to expire once, after d, which is above 0; 0
// disarms it (timerfd_settime(2)).
func TimerfdSettime(fd int, d time.Duration) error {
	return unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
}
