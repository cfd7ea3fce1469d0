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
// Calls go through Syscall and Syscall6, which tell the scheduler, and never
// through RawSyscall, except where a function's comment says why: a thread that
// blocks in a RawSyscall cannot be stopped, and the next stop-the-world hangs
// the process.
//
// Descriptors are borrowed for the length of the call; only Pipe2 hands out new
// ones and only Close takes one. All functions are safe for concurrent use as
// far as the kernel's objects are. On systems other than Linux the package is
// empty.
package sys
