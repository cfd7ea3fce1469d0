// Package sys is the only place in Penstock that makes raw system calls, and the only importer of
// golang.org/x/sys/unix. It adds no policy: every function is one system call under the kernel's own name,
// every constant has the kernel's name, and nothing is retried.
//
// Errors are the kernel's error numbers: the dynamic type of every error returned here is syscall.Errno,
// unwrapped, so that a caller on a hot path can compare it by ==, and returning it allocates nothing (the
// runtime keeps boxed copies of all values below 256, which covers every errno). Callers outside the hot path
// wrap it by os.NewSyscallError.
//
// Calls go through Syscall and Syscall6, and so through the scheduler. Exceptions are raw calls, which do not
// wait and are made for every piece of traffic or every connection: recvfrom(2) and sendto(2) with
// MSG_DONTWAIT, splice(2) between our own pipe and a non-blocking TCP or unix stream socket, connect(2) of a
// non-blocking TCP socket, epoll_wait(2) with a timeout of 0. A thread that waited in a RawSyscall could not be
// stopped, and the next stop-the-world would hang the process. A thread that works there keeps its P meanwhile,
// as any code does: for as long as TCP takes, and as a page fault or a socket's lock may take. The scheduler
// costs more than its two transitions: sysmon takes the P away from a call of more than 20 µs, goes on looking
// every 20 µs, and moves the goroutines to another thread. Without that, echoes of 64 B over 64 connections
// cost a proxy a quarter less CPU, with a third of the context switches (docs/performance.md).
//
// A sandbox that hands these calls to a supervisor (seccomp_unotify(2)) makes them wait for it; a supervisor
// within the same process must not do that.
//
// Descriptors are borrowed for the length of the call. A function that makes a descriptor says that the caller
// owns it, and only Close takes one. All functions are safe for concurrent use as far as the kernel's objects
// are. On systems other than Linux the package has only KeptDescriptors and Closed.
package sys

import "os"

// KeptDescriptors returns how many of the n descriptors that a process may have (RLIMIT_NOFILE) are kept for an
// administrator, a reload and checks while connections take all others. The kernel gives out the lowest free
// descriptor (fs/file.c, alloc_fd), so whoever gets n - KeptDescriptors(n) or above knows that nearly all are
// taken, and gives it back.
func KeptDescriptors(n int) int { return min(max(n/128, min(32, n/4)), 512) }

// Closed returns os.ErrClosed for the error of a syscall.RawConn of an *os.File that was closed meanwhile
// (internal/poll.ErrFileClosing), as the file's own methods do, and other errors as they are.
func Closed(err error) error {
	if err != nil && err.Error() == "use of closed file" {
		return os.ErrClosed
	}
	return err
}
