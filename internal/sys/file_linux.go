package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Types of file in the mode that Fstat returns.
const (
	S_IFMT   = unix.S_IFMT
	S_IFREG  = unix.S_IFREG
	S_IFSOCK = unix.S_IFSOCK
	S_IFIFO  = unix.S_IFIFO
)

// Read reads with read(2). It returns 0 and no error at the end of file.
func Read(fd int, p []byte) (int, error) { return atLeast0(unix.Read(fd, p)) }

// Write writes with write(2). To a socket use Send, which cannot raise SIGPIPE.
func Write(fd int, p []byte) (int, error) { return atLeast0(unix.Write(fd, p)) }

// Sendfile moves at most n bytes from the file rfd to wfd with sendfile(2). A
// nil offset means the file's own position.
func Sendfile(wfd, rfd int, off *int64, n int) (int, error) {
	return atLeast0(unix.Sendfile(wfd, rfd, off, n))
}

// GetFl reads a descriptor's file status flags (O_APPEND, O_NONBLOCK and the
// access mode) with fcntl(2) F_GETFL.
func GetFl(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0) }

// FstatMode returns st_mode of fstat(2): compare mode&S_IFMT with S_IFREG,
// S_IFSOCK, S_IFIFO.
func FstatMode(fd int) (uint32, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Mode, err
}

// FIONREAD returns how many bytes are queued for reading in a socket or a pipe
// (ioctl_tty(2), tcp(7), pipe(7)). For TCP an urgent byte is not counted.
func FIONREAD(fd int) (int, error) { return ioctlInt(fd, unix.TIOCINQ) }

// ioctlInt makes an ioctl that stores a C int. It is not unix.IoctlGetInt, which
// passes a Go int: eight bytes, wrong on big-endian machines.
func ioctlInt(fd int, req uintptr) (int, error) {
	var v int32
	_, _, e := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), req, uintptr(unsafe.Pointer(&v)))
	return int(v), errnoErr(e)
}

// atLeast0 keeps the kernel's -1 out of byte counts.
func atLeast0(n int, err error) (int, error) { return max(n, 0), err }
