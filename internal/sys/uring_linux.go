package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flags and features of a ring, from include/uapi/linux/io_uring.h.
const (
	IORING_SETUP_SQPOLL        = 1 << 1
	IORING_SETUP_CQSIZE        = 1 << 3
	IORING_SETUP_R_DISABLED    = 1 << 6
	IORING_SETUP_SUBMIT_ALL    = 1 << 7  // Linux 5.18
	IORING_SETUP_SINGLE_ISSUER = 1 << 12 // Linux 6.0
	IORING_SETUP_DEFER_TASKRUN = 1 << 13 // Linux 6.1

	IORING_FEAT_SINGLE_MMAP = 1 << 0
	IORING_FEAT_NODROP      = 1 << 1
	IORING_FEAT_EXT_ARG     = 1 << 8

	IORING_SQ_NEED_WAKEUP = 1 << 0

	IORING_ENTER_GETEVENTS = 1 << 0
	IORING_ENTER_SQ_WAKEUP = 1 << 1
	IORING_ENTER_EXT_ARG   = 1 << 3
)

// Submissions and completions.
const (
	IORING_OP_READ_FIXED   = 4
	IORING_OP_WRITE_FIXED  = 5
	IORING_OP_POLL_ADD     = 6
	IORING_OP_ACCEPT       = 13
	IORING_OP_ASYNC_CANCEL = 14
	IORING_OP_CLOSE        = 19
	IORING_OP_SEND         = 26
	IORING_OP_RECV         = 27
	IORING_OP_SPLICE       = 30
	IORING_OP_SEND_ZC      = 47

	IORING_POLL_ADD_MULTI     = 1 << 0
	IORING_ACCEPT_MULTISHOT   = 1 << 0
	IORING_RECV_MULTISHOT     = 1 << 1
	IORING_SEND_ZC_REPORT     = 1 << 3
	IORING_NOTIF_USAGE_COPIED = 1 << 31
	IORING_FILE_INDEX_ALLOC   = -1
	IORING_ASYNC_CANCEL_ALL   = 1 << 0
	IORING_ASYNC_CANCEL_ANY   = 1 << 2
	IOSQE_FIXED_FILE          = 1 << 0
	IOSQE_BUFFER_SELECT       = 1 << 5
	IORING_CQE_F_MORE         = 1 << 1
	IORING_CQE_F_NOTIF        = 1 << 3
	IORING_CQE_BUFFER_SHIFT   = 16

	IORING_OFF_SQ_RING = 0
	IORING_OFF_SQES    = 0x10000000
)

// Operations of io_uring_register(2).
const (
	IORING_REGISTER_BUFFERS      = 0
	IORING_REGISTER_ENABLE_RINGS = 12
	IORING_REGISTER_FILES2       = 13
	IORING_REGISTER_PBUF_RING    = 22
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

// IoUringEnter submits entries by io_uring_enter(2) and waits for wait completions, at most nsec nanoseconds,
// or forever if nsec is negative. It returns how many were submitted. ETIME: the time is over; EINTR: a signal
// came first; EEXIST: a ring of a single issuer belongs to another thread. It goes through the scheduler. The
// kernel needs IORING_FEAT_EXT_ARG.
func IoUringEnter(fd int, submit, wait uint32, nsec int64) (int, error) {
	timeout := [2]int64{nsec / 1e9, nsec % 1e9}
	arg := struct { // struct io_uring_getevents_arg
		sigmask  uint64
		size     uint32
		minWait  uint32
		timespec *[2]int64
	}{timespec: &timeout}
	if nsec < 0 {
		arg.timespec = nil
	}
	n, _, e := syscall.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), uintptr(wait),
		IORING_ENTER_GETEVENTS|IORING_ENTER_EXT_ARG, uintptr(unsafe.Pointer(&arg)), unsafe.Sizeof(arg))
	return count(n, e)
}

// IoUringEnterNow is IoUringEnter without a wait: it posts the completions that are ready. So it is a raw call,
// see the package's documentation. Nothing that is submitted may wait.
func IoUringEnterNow(fd int, submit uint32) (int, error) {
	n, _, e := syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), 0, IORING_ENTER_GETEVENTS, 0, 0)
	return count(n, e)
}

// IoUringWake wakes the kernel thread of a ring that has gone to sleep (IORING_SQ_NEED_WAKEUP).
func IoUringWake(fd int) error {
	_, _, e := syscall.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), 0, 0, IORING_ENTER_SQ_WAKEUP, 0, 0)
	return errnoErr(e)
}

// IoUringRegister is io_uring_register(2). What arg points to must have the form that the operation wants; if
// the kernel keeps it beyond the call, it must not be on Go's heap.
func IoUringRegister(fd, op int, arg unsafe.Pointer, n int) error {
	_, _, e := syscall.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(fd), uintptr(op), uintptr(arg), uintptr(n), 0, 0)
	return errnoErr(e)
}

// MmapRing maps a part of a ring, shared with the kernel, by mmap(2). The caller unmaps it by Munmap.
func MmapRing(fd int, offset int64, length int) ([]byte, error) {
	return unix.Mmap(fd, offset, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
}
