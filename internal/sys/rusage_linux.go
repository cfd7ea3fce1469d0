package sys

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// RUSAGE_SELF asks Getrusage for the whole process: all of its threads, also
// those that have ended (getrusage(2)).
const RUSAGE_SELF = unix.RUSAGE_SELF

// Rusage is the part of struct rusage that Linux keeps and Penstock looks at.
type Rusage struct {
	Utime, Stime  time.Duration
	Nvcsw, Nivcsw int64 // context switches, voluntary and not
}

// Getrusage returns what was used so far (getrusage(2)).
func Getrusage(who int) (Rusage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(who, &r); err != nil {
		return Rusage{}, err
	}
	return Rusage{
		Utime: time.Duration(r.Utime.Nano()), Stime: time.Duration(r.Stime.Nano()),
		Nvcsw: int64(r.Nvcsw), Nivcsw: int64(r.Nivcsw),
	}, nil
}
