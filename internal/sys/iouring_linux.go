package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// IoUringSetup makes a ring of that many entries, a power of two, with
// io_uring_setup(2) and no flags. The caller owns the descriptor. EPERM: forbidden
// by kernel.io_uring_disabled or a sandbox; ENOSYS: not in this kernel.
func IoUringSetup(entries uint32) (int, error) {
	var params [120]byte // struct io_uring_params, include/uapi/linux/io_uring.h
	fd, _, e := syscall.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&params)), 0)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}
