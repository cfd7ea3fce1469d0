package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flags of pipe2(2) and splice(2).
const (
	O_CLOEXEC         = unix.O_CLOEXEC
	O_NONBLOCK        = unix.O_NONBLOCK
	SPLICE_F_NONBLOCK = unix.SPLICE_F_NONBLOCK
)

// Pipe2 makes a pipe by pipe2(2). The caller owns both descriptors.
func Pipe2(flags int) (r, w int, err error) {
	var p [2]int32
	_, _, e := syscall.Syscall(unix.SYS_PIPE2, uintptr(unsafe.Pointer(&p)), uintptr(flags), 0)
	if e != 0 {
		return -1, -1, e
	}
	return int(p[0]), int(p[1]), nil
}

// Close closes a descriptor by close(2). The descriptor is gone whatever the error is: Linux releases it before
// anything can fail. So never close it again, not even after EINTR.
func Close(fd int) error {
	_, _, e := syscall.Syscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
	return errnoErr(e)
}

// PipeSize returns a pipe's capacity in bytes by fcntl(2) F_GETPIPE_SZ.
func PipeSize(fd int) (int, error) {
	return unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
}

// SetPipeSize asks for a capacity in bytes by fcntl(2) F_SETPIPE_SZ, and returns the capacity that the kernel
// set: rounded up to a power of two of pages. EPERM: it is above pipe-max-size, or the user's quota of pipe
// pages is used up; EBUSY: more is queued than would fit.
func SetPipeSize(fd, size int) (int, error) {
	return unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, size)
}

// Splice moves at most n bytes by splice(2); rfd or wfd is a pipe. A nil offset means the descriptor's own
// position.
func Splice(rfd int, roff *int64, wfd int, woff *int64, n, flags int) (int, error) {
	m, err := unix.Splice(rfd, roff, wfd, woff, n, flags)
	return max(int(m), 0), err
}

// SpliceSocket is Splice with SPLICE_F_NONBLOCK and without offsets, between a pipe with no other holder and
// the socket fd, TCP or unix stream. If the socket is O_NONBLOCK, it is a raw call, see the package's
// documentation. SPLICE_F_NONBLOCK covers only the pipe's side: only O_NONBLOCK of the socket keeps splice from
// waiting for the socket (fs/splice.c, splice_to_socket; net/ipv4/tcp.c, tcp_splice_read). SpliceSocket looks
// at it each time, because other holders of the descriptor may change it (os.File.Fd does).
//
// Do not use it for FIFOs: even with O_NONBLOCK, splice waits for a pipe's lock (pipe_double_lock, ipipe_prep),
// which a splice between the pipe and a blocking socket holds while it waits. Nor for files, which have no
// O_NONBLOCK.
func SpliceSocket(rfd, wfd, fd, n int) (int, error) {
	var m uintptr
	var e syscall.Errno
	flags, _, _ := syscall.RawSyscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GETFL, 0)
	if int(flags) >= 0 && flags&O_NONBLOCK != 0 {
		m, _, e = syscall.RawSyscall6(unix.SYS_SPLICE, uintptr(rfd), 0, uintptr(wfd), 0, uintptr(n), SPLICE_F_NONBLOCK)
	} else {
		m, _, e = syscall.Syscall6(unix.SYS_SPLICE, uintptr(rfd), 0, uintptr(wfd), 0, uintptr(n), SPLICE_F_NONBLOCK)
	}
	return count(m, e)
}

// Tee copies references to at most n bytes from the beginning of a pipe to another pipe by tee(2); the bytes
// stay in the first. Both are O_NONBLOCK and have no other holder, so tee waits only for their two locks, and
// is a raw call, see the package's documentation.
func Tee(rfd, wfd, n int) (int, error) {
	m, _, e := syscall.RawSyscall6(unix.SYS_TEE, uintptr(rfd), uintptr(wfd), uintptr(n), SPLICE_F_NONBLOCK, 0, 0)
	return count(m, e)
}

func errnoErr(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// SPLICE_F_MOVE once asked splice(2) to move pages instead of copying them. It has done nothing since Linux
// 2.6.21 (splice(2)).
const SPLICE_F_MOVE = unix.SPLICE_F_MOVE

// CopyFileRange moves at most n bytes between two regular files, each at its own position, by
// copy_file_range(2). 0 without an error does not prove the end of file: some file systems return it for files
// that have bytes (see BUGS there).
func CopyFileRange(rfd, wfd, n int) (int, error) {
	return atLeast0(unix.CopyFileRange(rfd, nil, wfd, nil, n, 0))
}

// ShutdownWrite passes on the end of file by shutdown(2) SHUT_WR.
func ShutdownWrite(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) }
