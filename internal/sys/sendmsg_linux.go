package sys

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// IOV_MAX is the most entries that writev(2) and sendmsg(2) take in one call
// (include/uapi/linux/uio.h, UIO_MAXIOV): with more, writev answers EINVAL and sendmsg
// EMSGSIZE.
const IOV_MAX = 1024

// MAX_RW_COUNT is the most bytes that one call moves on machines with pages of 4 KiB:
// what is beyond that is a short write and no error (lib/iov_iter.c, __import_iovec).
const MAX_RW_COUNT = 0x7ffff000

// MSG_MORE says that more is about to be sent, and MSG_EOR ends a record (send(2)).
const (
	MSG_MORE = unix.MSG_MORE
	MSG_EOR  = unix.MSG_EOR
)

// Iovec is struct iovec: where a piece begins, and its length. Base is a pointer that
// the collector knows, so an array of these on the heap keeps the pieces alive.
type Iovec = unix.Iovec

// Sendmsg sends the pieces one after the other with sendmsg(2) and no address. It is
// told to the scheduler even with MSG_DONTWAIT: a piece may lie in a mapped file, and
// then the copy into the socket waits for a disk. MSG_NOSIGNAL gives EPIPE without a
// SIGPIPE.
//
// The header is on our stack, which is not moved during a system call
// (runtime/stack.go, isShrinkStackSafe), and the array is kept alive by it.
func Sendmsg(fd int, pieces []Iovec, flags int) (int, error) {
	var h unix.Msghdr
	h.Iov = unsafe.SliceData(pieces)
	h.SetIovlen(len(pieces))
	n, _, e := syscall.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&h)), uintptr(flags))
	runtime.KeepAlive(pieces)
	return count(n, e)
}

// WritevVector is Writev of an array that the caller has made. To a socket use Sendmsg,
// which cannot raise SIGPIPE.
func WritevVector(fd int, pieces []Iovec) (int, error) {
	n, _, e := syscall.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(pieces))), uintptr(len(pieces)))
	runtime.KeepAlive(pieces)
	return count(n, e)
}
