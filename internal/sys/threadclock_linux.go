package sys

import (
	"time"

	"golang.org/x/sys/unix"
)

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
