package sys

import (
	"runtime"
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

// Capabilities returns the calling thread's effective set (capget(2)). Every thread has the same set, unless a
// program changes the capabilities of single threads. The set is relative to the process's user namespace.
func Capabilities() (CapSet, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // version 3 is two words of 32 bits each
	_, _, e := syscall.Syscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data)), 0)
	return CapSet(data[0].Effective) | CapSet(data[1].Effective)<<32, errnoErr(e)
}

// Further capabilities (capabilities(7)).
const (
	CAP_NET_BIND_SERVICE = unix.CAP_NET_BIND_SERVICE
	CAP_NET_ADMIN        = unix.CAP_NET_ADMIN
	CAP_SYS_PTRACE       = unix.CAP_SYS_PTRACE
	CAP_BPF              = unix.CAP_BPF
	CAP_PERFMON          = unix.CAP_PERFMON
)

// SYS_SPLICE and the like are numbers for SeccompRefuse.
const (
	SYS_SPLICE   = unix.SYS_SPLICE
	SYS_PIPE2    = unix.SYS_PIPE2
	SYS_FCNTL    = unix.SYS_FCNTL
	SYS_SENDFILE = unix.SYS_SENDFILE
)

// SeccompRefuse makes every system call with one of the numbers fail with errno, in all threads, for the rest
// of the life of the process and its children (seccomp(2)). It is for tests that have to run in a sandbox.
func SeccompRefuse(errno syscall.Errno, numbers ...uintptr) error {
	filter := seccompFilter(errno, numbers)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)}
	runtime.LockOSThread() // no_new_privs belongs to a thread; TSYNC gives it to all
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	tid, _, e := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if e == 0 && tid != 0 {
		e = syscall.EBUSY // a thread that did not get the filter
	}
	return errnoErr(e)
}

// seccompFilter is a program that looks at seccomp_data.nr, the first word.
func seccompFilter(errno syscall.Errno, numbers []uintptr) []unix.SockFilter {
	f := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	for _, nr := range numbers {
		f = append(f,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: uint32(nr)},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)})
	}
	return append(f, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
}
