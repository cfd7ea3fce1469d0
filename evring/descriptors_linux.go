package evring

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// descriptors keeps the two descriptors open while a call uses them, so that their numbers are not used again
// meanwhile.
type descriptors struct {
	memfd, eventfd int // owned until uses is 0

	// uses is 1 for the Ring until it is closed, plus 1 for each call that is using a descriptor. The call that
	// brings it to 0 closes them.
	uses atomic.Int64
}

func (d *descriptors) own(memfd, eventfd int) {
	d.memfd, d.eventfd = memfd, eventfd
	d.uses.Store(1)
}

// use keeps the descriptors open until done, or returns false if they are closed.
func (d *descriptors) use() bool {
	for {
		n := d.uses.Load()
		if n == 0 {
			return false
		}
		if d.uses.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (d *descriptors) done() {
	if d.uses.Add(-1) == 0 {
		sys.Close(d.memfd)
		sys.Close(d.eventfd)
	}
}

// number returns fd, or -1 for the zero Ring.
func (r *Ring) number(fd int) int {
	if r.slots == 0 {
		return -1
	}
	return fd
}

// Eventfd returns the descriptor that becomes readable (POLLIN) when a producer wakes the consumer. It belongs
// to the Ring until Close, and does not block.
func (r *Ring) Eventfd() int { return r.number(r.eventfd) }

// Files returns duplicates of both descriptors, to pass them to another process (exec.Cmd's ExtraFiles,
// SCM_RIGHTS) or to wait for them. The caller closes them.
func (r *Ring) Files() (memory, event *os.File, err error) {
	if !r.use() {
		return nil, nil, ErrClosed
	}
	defer r.done()
	m, err := sys.Dup(r.memfd)
	if err != nil {
		return nil, nil, fmt.Errorf("penstock: evring: files: %w", os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err))
	}
	e, err := sys.Dup(r.eventfd)
	if err != nil {
		sys.Close(m)
		return nil, nil, fmt.Errorf("penstock: evring: files: %w", os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err))
	}
	return os.NewFile(uintptr(m), "evring memory"), os.NewFile(uintptr(e), "evring event"), nil
}

// one is the number that a wake-up adds. A larger number would fill the counter of a consumer that never reads
// it.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// wake writes the eventfd of a consumer that sleeps with that ticket. EAGAIN means that the counter is full:
// the eventfd is readable, but an edge-triggered epoll would not report it again, so wake empties it first.
func (r *Ring) wake(ticket uint32) {
	if !r.use() {
		return
	}
	defer r.done()
	if _, err := sys.Write(r.eventfd, one); err == syscall.EAGAIN {
		var count [8]byte
		sys.Read(r.eventfd, count[:])
		sys.Write(r.eventfd, one)
	}
	r.memory.asleep().CompareAndSwap(ticket, 0)
}

// clear reads the eventfd. EAGAIN means that there was nothing to read.
func (r *Ring) clear() {
	if r.use() {
		var count [8]byte
		sys.Read(r.eventfd, count[:])
		r.done()
	}
}
