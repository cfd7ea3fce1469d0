package sys

import (
	"runtime"
	"syscall"
	"unsafe"
)

// ForkAndLook forks, as C libraries do, and returns the child's process ID. The child waits for a byte from a
// pipe, changes the first byte of b, and exits with that byte's former value. The child makes only bare system
// calls, because it is a copy of one thread among several. It is for tests of memory.
func ForkAndLook(b []byte, pipe int) (pid int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n, errno := forkAndLook(&b[0], pipe)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

//go:nosplit
//go:norace
func forkAndLook(b *byte, pipe int) (uintptr, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	var one [1]byte
	syscall.RawSyscall(syscall.SYS_READ, uintptr(pipe), uintptr(unsafe.Pointer(&one)), 1)
	was := *b
	*b = was + 1
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(was), 0, 0)
	}
}
