package sys

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// IOV_MAX is the most entries that writev(2) and sendmsg(2) take in one call (include/uapi/linux/uio.h,
// UIO_MAXIOV): with more, writev returns EINVAL and sendmsg EMSGSIZE.
const IOV_MAX = 1024

// MSG_MORE: more is about to be sent (send(2)).
const (
	MSG_MORE = unix.MSG_MORE
)

// Iovec is struct iovec: where a piece begins, and its length. The collector knows the pointer Base, so an
// array of them on the heap keeps the pieces alive.
type Iovec = unix.Iovec

// Sendmsg sends the pieces one after the other by sendmsg(2), without an address. It goes through the scheduler
// even with MSG_DONTWAIT: a piece may be in a mapped file, and then the copy into the socket waits for a disk.
// With MSG_NOSIGNAL it returns EPIPE without a SIGPIPE.
//
// The header is on our stack, which does not move during a system call (runtime/stack.go, isShrinkStackSafe),
// and it keeps the array alive.
func Sendmsg(fd int, pieces []Iovec, flags int) (int, error) {
	var h unix.Msghdr
	h.Iov = unsafe.SliceData(pieces)
	h.SetIovlen(len(pieces))
	n, _, e := syscall.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&h)), uintptr(flags))
	runtime.KeepAlive(pieces)
	return count(n, e)
}

// WritevVector is Writev of an array that the caller has made. For a socket use Sendmsg, which can prevent a
// SIGPIPE.
func WritevVector(fd int, pieces []Iovec) (int, error) {
	n, _, e := syscall.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(pieces))), uintptr(len(pieces)))
	runtime.KeepAlive(pieces)
	return count(n, e)
}

// Writev writes the parts one after the other by writev(2), at most IOV_MAX (1024) of them. Like write(2) it
// moves at most MAX_RW_COUNT (0x7ffff000) bytes: more is a short write, not an error (lib/iov_iter.c,
// __import_iovec).
func Writev(fd int, parts [][]byte) (int, error) { return atLeast0(unix.Writev(fd, parts)) }

// SO_ZEROCOPY allows the flag MSG_ZEROCOPY of Send: the kernel sends from the caller's pages, and reports on
// the error queue when it no longer needs them (Documentation/networking/msg_zerocopy.rst).
const (
	SO_ZEROCOPY  = unix.SO_ZEROCOPY
	MSG_ZEROCOPY = unix.MSG_ZEROCOPY
)

// A ZerocopyNotice says after which calls of send(2) with MSG_ZEROCOPY on a socket the kernel no longer needs
// the memory. The calls that took at least one byte are numbered from 0, and 0 follows 1<<32 - 1; the notice is
// about the calls from Lo to Hi, inclusive (Documentation/networking/msg_zerocopy.rst).
type ZerocopyNotice struct {
	Lo, Hi uint32
	Copied bool // SO_EE_CODE_ZEROCOPY_COPIED: the kernel has copied after all
}

// RecvZerocopyNotice takes the next message from a socket's error queue by recvmsg(2) with MSG_ERRQUEUE, which
// never waits. EAGAIN: there is none; EBADMSG: it was about something else, and is lost.
func RecvZerocopyNotice(fd int) (ZerocopyNotice, error) {
	var control struct {
		_ [0]unix.Cmsghdr // aligned like a Cmsghdr
		b [128]byte       // for a Cmsghdr with a sock_extended_err and an address
	}
	var msg unix.Msghdr
	msg.Control = &control.b[0]
	msg.SetControllen(len(control.b))
	_, _, e := syscall.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if e != 0 {
		return ZerocopyNotice{}, e
	}
	return parseNotice(control.b[:min(int(msg.Controllen), len(control.b))])
}

// parseNotice looks among control messages for IP_RECVERR or IPV6_RECVERR with a struct sock_extended_err of
// zero-copy sends.
func parseNotice(b []byte) (ZerocopyNotice, error) {
	for len(b) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			break
		}
		if h.Level == unix.IPPROTO_IP && h.Type == unix.IP_RECVERR || h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_RECVERR {
			return extendedErr(data)
		}
		b = rest
	}
	return ZerocopyNotice{}, syscall.EBADMSG
}

func extendedErr(data []byte) (ZerocopyNotice, error) {
	var e unix.SockExtendedErr
	if copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), data) < int(unsafe.Sizeof(e)) ||
		e.Origin != unix.SO_EE_ORIGIN_ZEROCOPY || e.Errno != 0 {
		return ZerocopyNotice{}, syscall.EBADMSG
	}
	return ZerocopyNotice{e.Info, e.Data, e.Code&unix.SO_EE_CODE_ZEROCOPY_COPIED != 0}, nil
}

// SIOCATMARK reports by ioctl(2) whether the next byte of a TCP socket is at the urgent mark (tcp(7)). It takes
// no lock, so it is a raw call, see the package's documentation.
func SIOCATMARK(fd int) (bool, error) {
	var at int32
	_, _, e := syscall.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCATMARK, uintptr(unsafe.Pointer(&at)))
	return at != 0, errnoErr(e)
}
