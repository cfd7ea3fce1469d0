package sys

import "golang.org/x/sys/unix"

// Nanosleep sleeps for so many nanoseconds with nanosleep(2), or until a signal
// comes, and tells the scheduler.
func Nanosleep(nsec int64) {
	t := unix.NsecToTimespec(nsec)
	_ = unix.Nanosleep(&t, nil)
}
