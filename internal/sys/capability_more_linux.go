package sys

import "golang.org/x/sys/unix"

// Further capabilities (capabilities(7)).
const (
	CAP_NET_BIND_SERVICE = unix.CAP_NET_BIND_SERVICE
	CAP_NET_ADMIN        = unix.CAP_NET_ADMIN
	CAP_NET_RAW          = unix.CAP_NET_RAW
	CAP_IPC_LOCK         = unix.CAP_IPC_LOCK
	CAP_SYS_PTRACE       = unix.CAP_SYS_PTRACE
	CAP_PERFMON          = unix.CAP_PERFMON
	CAP_BPF              = unix.CAP_BPF
)
