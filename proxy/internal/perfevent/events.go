package perfevent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/topology"
)

const (
	// ringOrder is the size of a ring: 64 pages. An unprivileged user may lock that much memory
	// (kernel.perf_event_mlock_kb is 516).
	ringOrder = 6
	// maxEvents limits the number of descriptors. There is one event for each thread on each CPU.
	maxEvents = 8192
)

// events are the open events of the threads of processes. A thread that starts later is counted by the events of
// the thread that has started it.
type events struct {
	fds   []int           // owned
	rings []*sys.PerfRing // owned; one for each CPU
	first []int           // for each ring, the descriptor in fds that owns it
}

// open opens the events of all threads of processes. A thread has an event for each CPU, because a ring belongs to
// one CPU.
func open(pids []int, hz int) (e *events, err error) {
	cpus, err := topology.CPUs()
	if err != nil {
		return nil, err
	}
	e = new(events)
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	opened := make(map[int]bool)
	for { // until there are no new threads
		list, err := threads(pids)
		if err != nil {
			return e, err
		}
		more := false
		for _, thread := range list {
			if opened[thread] {
				continue
			}
			opened[thread], more = true, true
			if err := e.add(thread, cpus, hz); err != nil {
				return e, err
			}
		}
		if !more {
			break
		}
	}
	for _, fd := range e.fds {
		if err := sys.PerfControl(fd, sys.PERF_EVENT_IOC_ENABLE, 0); err != nil {
			return e, os.NewSyscallError("ioctl PERF_EVENT_IOC_ENABLE", err)
		}
	}
	return e, nil
}

// add opens the events of a thread. If the thread has ended meanwhile, it does nothing.
func (e *events) add(thread int, cpus []int, hz int) error {
	if len(e.fds)+len(cpus) > maxEvents {
		return fmt.Errorf("there are too many threads: each thread needs an event on each of %[2]d CPUs, and %[1]d events are allowed", maxEvents, len(cpus))
	}
	attr := &sys.PerfEventAttr{
		Type: sys.PERF_TYPE_SOFTWARE, Config: sys.PERF_COUNT_SW_CPU_CLOCK, Size: uint32(unsafe.Sizeof(sys.PerfEventAttr{})),
		Sample: uint64(1e9 / hz), Sample_type: sys.PERF_SAMPLE_TID | sys.PERF_SAMPLE_CALLCHAIN,
		Bits: sys.PerfBitDisabled | sys.PerfBitInherit | sys.PerfBitExcludeHypervisor,
	}
	for i, cpu := range cpus {
		fd, err := sys.PerfEventOpen(attr, thread, cpu)
		if errors.Is(err, syscall.ESRCH) {
			return nil
		}
		if err != nil {
			return os.NewSyscallError("perf_event_open", err)
		}
		e.fds = append(e.fds, fd)
		if i == len(e.rings) {
			ring, err := sys.MapPerfRing(fd, ringOrder)
			if err != nil {
				return os.NewSyscallError("mmap of a perf event", err)
			}
			e.rings = append(e.rings, ring)
			e.first = append(e.first, fd)
			continue
		}
		if err := sys.PerfControl(fd, sys.PERF_EVENT_IOC_SET_OUTPUT, e.first[i]); err != nil {
			return os.NewSyscallError("ioctl PERF_EVENT_IOC_SET_OUTPUT", err)
		}
	}
	return nil
}

func (e *events) close() {
	for _, fd := range e.fds {
		_ = syscall.Close(fd) // close of an event reports no error
	}
	for _, ring := range e.rings {
		_ = ring.Close() // it cannot fail, because it is mapped
	}
}

// threads lists the threads of processes. An ended process has no threads.
func threads(pids []int) (list []int, err error) {
	for _, pid := range pids {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, entry := range entries {
			if thread, err := strconv.Atoi(entry.Name()); err == nil {
				list = append(list, thread)
			}
		}
	}
	return list, nil
}
