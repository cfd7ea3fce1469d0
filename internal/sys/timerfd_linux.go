package sys

import (
	"time"

	"golang.org/x/sys/unix"
)

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
