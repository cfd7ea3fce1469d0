// Package sys is the only place in Penstock that makes raw system calls and
// the only importer of golang.org/x/sys/unix. It adds no policy: every function
// is one system call under the kernel's own name, every constant carries the
// kernel's name, and nothing is retried.
//
// Errors are the kernel's error numbers: the dynamic type of every error
// returned here is syscall.Errno, unwrapped, so that a caller on a hot path can
// compare it with == and so that returning it allocates nothing (the runtime
// keeps boxed copies of all values below 256, which covers every errno).
// Callers outside the hot path wrap it with os.NewSyscallError.
//
// Calls go through Syscall and Syscall6, and so through the scheduler, except for calls that
// do not wait and are made for every piece of traffic or every connection: recvfrom(2) and
// sendto(2) with MSG_DONTWAIT, splice(2) between a pipe of our own and a non-blocking TCP or
// unix stream socket, connect(2) of a non-blocking TCP socket, epoll_wait(2) with a timeout of
// 0. A thread that waits in a RawSyscall cannot be stopped, and the next stop-the-world hangs
// the process. A thread that works there keeps its P meanwhile, as any code does: for as long as
// TCP takes, and as a page fault or a socket's lock may take. The scheduler costs more than
// its two transitions: a call of more than 20 µs has its P taken away by sysmon, which goes on
// looking every 20 µs, and moves the goroutines to another thread. Echoes of 64 B over 64
// connections cost a proxy a quarter less CPU without that, with a third of the context
// switches (docs/performance.md).
//
// A sandbox that hands these calls to a supervisor (seccomp_unotify(2)) makes them
// wait for it; a supervisor within the same process must not.
//
// Descriptors are borrowed for the length of the call; a function that makes one says
// that it is the caller's, and only Close takes one. All functions are safe for concurrent use as
// far as the kernel's objects are. On systems other than Linux the package has
// only KeptDescriptors.
package sys

// KeptDescriptors returns how many descriptors of a process that may have n (RLIMIT_NOFILE) are kept for an administrator, a
// reload and checks while connections take all others. The kernel gives out the lowest free descriptor (fs/file.c,
// alloc_fd), so whoever gets one of n - KeptDescriptors(n) or above knows that nearly all are taken, and gives it back.
func KeptDescriptors(n int) int { return min(max(n/128, min(32, n/4)), 512) }
