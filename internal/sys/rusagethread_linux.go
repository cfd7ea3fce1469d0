package sys

import "golang.org/x/sys/unix"

// RUSAGE_THREAD asks Getrusage for the calling thread alone; the goroutine must
// be locked to it (runtime.LockOSThread). The kernel measures the sum of the two
// times exactly and divides it in the proportion of the ticks that it saw in
// either mode (kernel/sched/cputime.c, cputime_adjust).
const RUSAGE_THREAD = unix.RUSAGE_THREAD
