package pool_test

import "syscall"

// preemptions returns how often the kernel has taken a core from this process
// for another one (ru_nivcsw of getrusage(2)).
func preemptions() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return int64(u.Nivcsw)
}
