package sys

import "golang.org/x/sys/unix"

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
