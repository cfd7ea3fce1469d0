package sys

import (
	"math/bits"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxCPUs is the most CPUs that a kernel can be built for (CONFIG_NR_CPUS is at most 8192). sched_getaffinity
// wants room for all CPUs of the kernel.
const maxCPUs = 8192

// CPUMask is a set of CPUs in the kernel's format: words of the machine's size, the lowest CPU in the lowest
// bit.
type CPUMask [maxCPUs / bits.UintSize]uint

// Set adds a CPU from 0 to 8191.
func (m *CPUMask) Set(cpu int) { m[cpu/bits.UintSize] |= 1 << (cpu % bits.UintSize) }

// Has reports whether a CPU is in the set.
func (m *CPUMask) Has(cpu int) bool {
	return uint(cpu) < maxCPUs && m[cpu/bits.UintSize]&(1<<(cpu%bits.UintSize)) != 0
}

// CPUs lists the set.
func (m *CPUMask) CPUs() (cpus []int) {
	for n := range maxCPUs {
		if m.Has(n) {
			cpus = append(cpus, n)
		}
	}
	return cpus
}

// SchedSetaffinity restricts a thread to these CPUs by sched_setaffinity(2); 0 is the calling thread. The
// kernel leaves out CPUs that the thread's cpuset does not have, without an error: SchedGetaffinity returns the
// rest. EINVAL: none is left; ESRCH: the thread has ended; EPERM: the thread belongs to another user. A thread
// that it starts inherits the set.
func SchedSetaffinity(tid int, cpus *CPUMask) error {
	_, _, e := syscall.Syscall(unix.SYS_SCHED_SETAFFINITY, uintptr(tid), unsafe.Sizeof(*cpus), uintptr(unsafe.Pointer(cpus)))
	return errnoErr(e)
}

// SchedGetaffinity returns the online CPUs on which a thread may run, by sched_getaffinity(2); 0 is the calling
// thread.
func SchedGetaffinity(tid int) (cpus CPUMask, err error) {
	_, _, e := syscall.Syscall(unix.SYS_SCHED_GETAFFINITY, uintptr(tid), unsafe.Sizeof(cpus), uintptr(unsafe.Pointer(&cpus)))
	return cpus, errnoErr(e)
}

// SYS_SCHED_SETAFFINITY is a number for SeccompRefuse.
const SYS_SCHED_SETAFFINITY = unix.SYS_SCHED_SETAFFINITY
