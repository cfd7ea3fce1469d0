package sys

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PerfEventAttr is struct perf_event_attr, PerfEventMmapPage the first page of an event's ring (include/uapi/linux/perf_event.h).
type (
	PerfEventAttr     = unix.PerfEventAttr
	PerfEventMmapPage = unix.PerfEventMmapPage
)

// Kinds and records of perf_event_open(2).
const (
	PERF_TYPE_SOFTWARE               = unix.PERF_TYPE_SOFTWARE
	PERF_COUNT_SW_CPU_CLOCK          = unix.PERF_COUNT_SW_CPU_CLOCK
	PERF_SAMPLE_TID                  = unix.PERF_SAMPLE_TID
	PERF_SAMPLE_CALLCHAIN            = unix.PERF_SAMPLE_CALLCHAIN
	PERF_RECORD_LOST                 = unix.PERF_RECORD_LOST
	PERF_RECORD_SAMPLE               = unix.PERF_RECORD_SAMPLE
	PERF_EVENT_IOC_ENABLE            = unix.PERF_EVENT_IOC_ENABLE
	PERF_EVENT_IOC_SET_OUTPUT        = unix.PERF_EVENT_IOC_SET_OUTPUT
	PerfBitDisabled                  = unix.PerfBitDisabled
	PerfBitInherit                   = unix.PerfBitInherit
	PerfBitExcludeHypervisor         = unix.PerfBitExcludeHv
	perfFlagCloseOnExec              = unix.PERF_FLAG_FD_CLOEXEC
	perfRingProtection               = syscall.PROT_READ | syscall.PROT_WRITE
	PERF_CONTEXT_KERNEL       uint64 = 1<<64 - 128 // addresses of the kernel follow
	PERF_CONTEXT_MAX          uint64 = 1<<64 - 4095
)

// PerfEventOpen opens an event of a thread on a CPU, and returns its descriptor, which the caller owns. EACCES
// and EPERM: kernel.perf_event_paranoid or a filter of system calls forbids it; EINVAL, ENOENT, EOPNOTSUPP: the
// kernel has no such event.
func PerfEventOpen(attr *PerfEventAttr, thread, cpu int) (int, error) {
	return unix.PerfEventOpen(attr, thread, cpu, -1, perfFlagCloseOnExec)
}

// PerfControl controls an event by ioctl(2).
func PerfControl(event, request, value int) error {
	return unix.IoctlSetInt(event, uint(request), value)
}

// A PerfRing is the memory into which the kernel writes the records of an event, and of other events redirected
// to it. Only one goroutine at a time may use it.
type PerfRing struct {
	memory []byte // owned: mapped
	page   *PerfEventMmapPage
	data   []byte
}

// MapPerfRing maps an event's ring of 1<<order pages. The mapping stays valid after the event is closed.
func MapPerfRing(event, order int) (*PerfRing, error) {
	size := syscall.Getpagesize()
	memory, err := syscall.Mmap(event, 0, size*(1+1<<order), perfRingProtection, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &PerfRing{memory: memory, page: (*PerfEventMmapPage)(unsafe.Pointer(unsafe.SliceData(memory))), data: memory[size:]}, nil
}

// Read appends the bytes written since the last call, and gives their room back to the kernel.
func (r *PerfRing) Read(to []byte) []byte {
	head, tail := atomic.LoadUint64(&r.page.Data_head), r.page.Data_tail
	for tail < head {
		at := tail % uint64(len(r.data))
		n := min(head-tail, uint64(len(r.data))-at)
		to = append(to, r.data[at:at+n]...)
		tail += n
	}
	atomic.StoreUint64(&r.page.Data_tail, tail)
	return to
}

// Close unmaps the ring.
func (r *PerfRing) Close() error { return syscall.Munmap(r.memory) }
