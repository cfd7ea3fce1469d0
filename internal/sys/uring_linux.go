package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flags and features of a ring, from include/uapi/linux/io_uring.h.
const (
	IORING_SETUP_CQSIZE        = 1 << 3
	IORING_SETUP_R_DISABLED    = 1 << 6
	IORING_SETUP_SUBMIT_ALL    = 1 << 7  // Linux 5.18
	IORING_SETUP_SINGLE_ISSUER = 1 << 12 // Linux 6.0
	IORING_SETUP_DEFER_TASKRUN = 1 << 13 // Linux 6.1

	IORING_FEAT_SINGLE_MMAP = 1 << 0
	IORING_FEAT_NODROP      = 1 << 1

	IORING_ENTER_GETEVENTS       = 1 << 0
	IORING_REGISTER_ENABLE_RINGS = 12
)

// Submissions and completions.
const (
	IORING_OP_POLL_ADD     = 6
	IORING_OP_ASYNC_CANCEL = 14

	IORING_POLL_ADD_MULTI   = 1 << 0
	IORING_ASYNC_CANCEL_ALL = 1 << 0
	IORING_ASYNC_CANCEL_ANY = 1 << 2

	IORING_OFF_SQ_RING = 0
	IORING_OFF_SQES    = 0x10000000
)

// IoUringParams is struct io_uring_params.
type IoUringParams struct {
	SQEntries, CQEntries, Flags uint32
	SQThreadCPU, SQThreadIdle   uint32
	Features, WQFd              uint32
	_                           [3]uint32
	SQOff                       IoUringOffsets
	CQOff                       IoUringOffsets
}

// IoUringOffsets is struct io_sqring_offsets and struct io_cqring_offsets: offsets within the mapping. The
// first four are the same in both. Fifth to seventh are flags, dropped and array of the submission queue, and
// overflow, entries and flags of the completion queue.
type IoUringOffsets struct {
	Head, Tail, RingMask, RingEntries uint32
	Fifth, Sixth, Seventh             uint32
	_                                 uint32
	_                                 uint64
}

// IoUringSQE is struct io_uring_sqe, an entry of the submission queue.
type IoUringSQE struct {
	Opcode      uint8
	Flags       uint8
	IoPrio      uint16
	Fd          int32
	Off         uint64
	Addr        uint64
	Len         uint32
	OpFlags     uint32
	UserData    uint64
	BufIndex    uint16
	Personality uint16
	FileIndex   int32
	_           [2]uint64
}

// IoUringCQE is struct io_uring_cqe, an entry of the completion queue.
type IoUringCQE struct {
	UserData uint64
	Res      int32
	Flags    uint32
}

// IoUringSetup makes a ring with a number of entries by io_uring_setup(2), and stores its properties in params.
// The caller owns the descriptor. EPERM: kernel.io_uring_disabled or a sandbox forbids it; ENOSYS: this kernel
// has no io_uring; EINVAL: it does not know a flag.
func IoUringSetup(entries uint32, params *IoUringParams) (int, error) {
	fd, _, e := syscall.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(params)), 0)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

// IoUringEnter submits entries by io_uring_enter(2) and waits for wait completions. It returns how many were submitted. EINTR: a
// signal came first; EEXIST: a ring of a single issuer belongs to another thread. It goes through the scheduler.
func IoUringEnter(fd int, submit, wait uint32) (int, error) {
	n, _, e := syscall.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), uintptr(wait), IORING_ENTER_GETEVENTS, 0, 0)
	return count(n, e)
}

// IoUringEnterNow is IoUringEnter without a wait: it posts the completions that are ready. So it is a raw call,
// see the package's documentation. Nothing that is submitted may wait.
func IoUringEnterNow(fd int, submit uint32) (int, error) {
	n, _, e := syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), 0, IORING_ENTER_GETEVENTS, 0, 0)
	return count(n, e)
}

// IoUringEnable enables a ring, for the calling thread if it has a single issuer.
func IoUringEnable(fd int) error {
	_, _, e := syscall.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(fd), IORING_REGISTER_ENABLE_RINGS, 0, 0, 0, 0)
	return errnoErr(e)
}

// MmapRing maps a part of a ring, shared with the kernel, by mmap(2). The caller unmaps it by Munmap.
func MmapRing(fd int, offset int64, length int) ([]byte, error) {
	return unix.Mmap(fd, offset, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
}
