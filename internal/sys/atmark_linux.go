package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SIOCATMARK reports with ioctl(2) whether the next byte of a TCP socket is at the
// urgent mark (tcp(7)). It takes no lock, and is a raw call, see the package's
// documentation.
func SIOCATMARK(fd int) (bool, error) {
	var at int32
	_, _, e := syscall.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCATMARK, uintptr(unsafe.Pointer(&at)))
	return at != 0, errnoErr(e)
}
