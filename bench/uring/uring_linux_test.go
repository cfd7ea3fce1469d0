package uring

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
)

// SQE and CQE are entries of the two queues.
type (
	SQE = sys.IoUringSQE
	CQE = sys.IoUringCQE
)

// needed are the features that a kernel must have: one mapping for both queues, no completion dropped on overflow.
const needed = sys.IORING_FEAT_SINGLE_MMAP | sys.IORING_FEAT_NODROP

var errFeatures = fmt.Errorf("the kernel's io_uring lacks a feature that is needed here: %w", errors.ErrUnsupported)

// A Ring is a pair of queues. Make it with [Open].
type Ring struct {
	fd     int    // owned
	queues []byte // owned mapping
	slots  []byte // owned mapping

	sqHead, sqTail *uint32 // the kernel's, ours
	cqHead, cqTail *uint32 // ours, the kernel's
	sqes           []SQE
	cqes           []CQE
	tail           uint32 // of the submissions, also the unpublished ones
	head           uint32 // of the completions
	seen           uint32 // their tail, as the kernel had it at the last look
}

// Open makes a ring with so many entries for submissions and completions, powers of two. Its one thread has completions posted when
// it asks for them. It is disabled until [Ring.Enable]. The caller closes it. The error wraps the one of io_uring_setup(2) or
// mmap(2), or errors.ErrUnsupported.
func Open(submissions, completions uint32) (*Ring, error) {
	const flags = sys.IORING_SETUP_SINGLE_ISSUER | sys.IORING_SETUP_DEFER_TASKRUN | sys.IORING_SETUP_CQSIZE | sys.IORING_SETUP_R_DISABLED | sys.IORING_SETUP_SUBMIT_ALL
	p := sys.IoUringParams{Flags: flags, CQEntries: completions}
	fd, err := sys.IoUringSetup(submissions, &p)
	if err != nil {
		return nil, os.NewSyscallError("io_uring_setup", err)
	}
	r := &Ring{fd: fd}
	if err := r.open(&p); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Ring) open(p *sys.IoUringParams) (err error) {
	if p.Features&needed != needed {
		return errFeatures
	}
	queues := max(int(p.SQOff.Seventh+4*p.SQEntries), int(p.CQOff.Sixth)+int(p.CQEntries)*int(unsafe.Sizeof(CQE{})))
	slots := int(p.SQEntries) * int(unsafe.Sizeof(SQE{}))
	if r.queues, err = sys.MmapRing(r.fd, sys.IORING_OFF_SQ_RING, queues); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	if r.slots, err = sys.MmapRing(r.fd, sys.IORING_OFF_SQES, slots); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	r.attach(p)
	return nil
}

func (r *Ring) attach(p *sys.IoUringParams) {
	word := func(at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.queues[at])) }
	sq, cq := &p.SQOff, &p.CQOff
	r.sqHead, r.sqTail = word(sq.Head), word(sq.Tail)
	r.cqHead, r.cqTail = word(cq.Head), word(cq.Tail)
	r.sqes = unsafe.Slice((*SQE)(unsafe.Pointer(unsafe.SliceData(r.slots))), p.SQEntries)
	r.cqes = unsafe.Slice((*CQE)(unsafe.Pointer(&r.queues[cq.Sixth])), p.CQEntries)
	array := unsafe.Slice(word(sq.Seventh), p.SQEntries)
	for i := range array {
		array[i] = uint32(i) // entries are used in the order of their places
	}
	r.tail = atomic.LoadUint32(r.sqTail)
	r.head = atomic.LoadUint32(r.cqHead)
	r.seen = r.head
}

// Enable gives the ring to the calling thread.
func (r *Ring) Enable() error {
	return os.NewSyscallError("io_uring_register", sys.IoUringEnable(r.fd))
}

// Push adds a submission, which the next [Ring.Submit] or [Ring.Wait] has the kernel take, and reports whether there
// was room.
func (r *Ring) Push(e *SQE) bool {
	if r.Pending() >= uint32(len(r.sqes)) {
		return false
	}
	r.sqes[r.tail&uint32(len(r.sqes)-1)] = *e
	r.tail++
	return true
}

// Pending is how many submissions the kernel has not taken.
func (r *Ring) Pending() uint32 { return r.tail - atomic.LoadUint32(r.sqHead) }

// publish shows the submissions to the kernel, and returns their number.
func (r *Ring) publish() uint32 {
	atomic.StoreUint32(r.sqTail, r.tail)
	return r.Pending()
}

// Submit has the kernel take the submissions, and post the completions that there are. It does not wait. The error is
// the kernel's, unwrapped: some of the submissions may be pending still. EEXIST: this is not the ring's thread.
func (r *Ring) Submit() error {
	_, err := sys.IoUringEnterNow(r.fd, r.publish())
	return err
}

// Wait is Submit that waits for a completion. EINTR means that there may be none.
func (r *Ring) Wait() error {
	_, err := sys.IoUringEnter(r.fd, r.publish(), 1)
	return err
}

// Next takes the next completion, if there is one. Those that did not fit into the queue come after the next Submit
// or Wait, in order.
func (r *Ring) Next(e *CQE) bool {
	if r.head == r.seen {
		if r.seen = atomic.LoadUint32(r.cqTail); r.head == r.seen {
			return false
		}
	}
	*e = r.cqes[r.head&uint32(len(r.cqes)-1)]
	r.head++
	atomic.StoreUint32(r.cqHead, r.head)
	return true
}

// cancelled is the user data of the request that cancels all others, of which a caller's may not have it.
const cancelled = 1<<64 - 1

// CancelAll cancels all requests, and returns when none holds a file any more. It is for the ring's thread. Pending
// submissions go first, and completions are dropped.
func (r *Ring) CancelAll() error {
	cancel := SQE{
		Opcode: sys.IORING_OP_ASYNC_CANCEL, Fd: -1, UserData: cancelled,
		OpFlags: sys.IORING_ASYNC_CANCEL_ALL | sys.IORING_ASYNC_CANCEL_ANY,
	}
	found := int32(1)
	for pushed := false; found > 0 || pushed; {
		if !pushed {
			pushed = r.Push(&cancel)
		}
		if err := r.Submit(); err != nil && err != syscall.EINTR && err != syscall.EBUSY {
			return os.NewSyscallError("io_uring_enter", err)
		}
		for e := (CQE{}); r.Next(&e); {
			if e.UserData == cancelled {
				pushed, found = false, e.Res
			}
		}
	}
	return r.settle()
}

// settle has the requests end that were cancelled: the kernel does so for some at a time.
func (r *Ring) settle() error {
	for some := true; some; {
		if err := r.Submit(); err != nil && err != syscall.EINTR && err != syscall.EBUSY {
			return os.NewSyscallError("io_uring_enter", err)
		}
		some = false
		for e := (CQE{}); r.Next(&e); {
			some = true
		}
	}
	return nil
}

// Close unmaps and closes the ring. Requests that it still has are cancelled by the kernel, some time later.
func (r *Ring) Close() error {
	var errs []error
	for _, b := range [][]byte{r.queues, r.slots} {
		if b != nil {
			errs = append(errs, os.NewSyscallError("munmap", sys.Munmap(b)))
		}
	}
	r.queues, r.slots = nil, nil
	return errors.Join(append(errs, os.NewSyscallError("close", sys.Close(r.fd)))...)
}
