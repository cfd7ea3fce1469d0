package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Capabilities that lift limits on pipes (capabilities(7)).
const (
	CAP_SYS_ADMIN    = unix.CAP_SYS_ADMIN
	CAP_SYS_RESOURCE = unix.CAP_SYS_RESOURCE
)

// CapSet is a set of capabilities, one bit for each.
type CapSet uint64

// Has reports whether the set holds the capability.
func (s CapSet) Has(capability int) bool { return s>>capability&1 != 0 }

// Capabilities returns the calling thread's effective set (capget(2)). Unless a
// program changes single threads' capabilities, every thread has the same. It is
// relative to the process's user namespace.
func Capabilities() (CapSet, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // version 3 is two words of 32 bits each
	_, _, e := syscall.Syscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data)), 0)
	return CapSet(data[0].Effective) | CapSet(data[1].Effective)<<32, errnoErr(e)
}
