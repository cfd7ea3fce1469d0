package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SYS_BPF and the like are further numbers for SeccompRefuse.
const (
	SYS_BPF            = unix.SYS_BPF
	SYS_IO_URING_SETUP = unix.SYS_IO_URING_SETUP
	SYS_ACCEPT4        = unix.SYS_ACCEPT4
	SYS_CONNECT        = unix.SYS_CONNECT
	SYS_LISTEN         = unix.SYS_LISTEN
	SYS_MADVISE        = unix.SYS_MADVISE
	SYS_MEMBARRIER     = unix.SYS_MEMBARRIER
	SYS_SETSOCKOPT     = unix.SYS_SETSOCKOPT
	SYS_SOCKET         = unix.SYS_SOCKET
)

// Types of map for BPFMapCreate (include/uapi/linux/bpf.h).
const (
	BPF_MAP_TYPE_HASH    = unix.BPF_MAP_TYPE_HASH
	BPF_MAP_TYPE_SOCKMAP = unix.BPF_MAP_TYPE_SOCKMAP
)

// BPFMapCreate makes a map with bpf(2) BPF_MAP_CREATE; sizes are in bytes. The
// caller owns the descriptor. EPERM: capabilities are missing, a sandbox, or,
// before Linux 5.11, RLIMIT_MEMLOCK.
func BPFMapCreate(mapType, keySize, valueSize, maxEntries uint32) (int, error) {
	attr := [5]uint32{mapType, keySize, valueSize, maxEntries, 0} // the head of union bpf_attr, with map_flags
	fd, _, e := syscall.Syscall(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}
