package sys

import (
	"math/bits"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Arguments of mmap(2) and madvise(2).
const (
	PROT_READ     = unix.PROT_READ
	PROT_WRITE    = unix.PROT_WRITE
	PROT_EXEC     = unix.PROT_EXEC
	MAP_PRIVATE   = unix.MAP_PRIVATE
	MAP_ANONYMOUS = unix.MAP_ANONYMOUS
	MAP_HUGETLB   = unix.MAP_HUGETLB
	MAP_HUGE_2MB  = unix.MAP_HUGE_2MB

	MADV_HUGEPAGE = unix.MADV_HUGEPAGE

	// MADV_POPULATE_WRITE makes the pages now, and returns an error where touching them later would raise
	// SIGBUS (Linux 5.14).
	MADV_POPULATE_WRITE = unix.MADV_POPULATE_WRITE
)

// MmapAnonymous maps memory without a file by mmap(2), with MAP_ANONYMOUS added to the flags. The caller unmaps
// it by Munmap.
func MmapAnonymous(length, prot, flags int) ([]byte, error) {
	return unix.Mmap(-1, 0, length, prot, flags|MAP_ANONYMOUS)
}

// Mprotect changes the protection of whole pages by mprotect(2).
func Mprotect(b []byte, prot int) error { return unix.Mprotect(b, prot) }

// DenyWriteExecute makes the kernel refuse this process memory that is executable and is or was writable, from
// now on, by prctl(2) and PR_SET_MDWE (Linux 6.3). Its children inherit that.
func DenyWriteExecute() error {
	return unix.Prctl(unix.PR_SET_MDWE, unix.PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0)
}

// Munmap unmaps the whole result of MmapAnonymous.
func Munmap(b []byte) error { return unix.Munmap(b) }

// Madvise gives advice about whole pages by madvise(2).
func Madvise(b []byte, advice int) error { return unix.Madvise(b, advice) }

// SYS_MLOCK is a number for SeccompRefuse.
const SYS_MLOCK = unix.SYS_MLOCK

// Mlock keeps whole pages in memory by mlock(2). ENOMEM: RLIMIT_MEMLOCK is too low; EPERM: it is 0, and the
// process lacks CAP_IPC_LOCK. Munmap undoes it.
func Mlock(b []byte) error { return unix.Mlock(b) }

// RlimitMemlock returns the soft limit of RLIMIT_MEMLOCK (getrlimit(2)) in bytes.
func RlimitMemlock() (uint64, error) {
	var l unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l)
	return l.Cur, err
}

// DisableTHP makes the kernel give this process no transparent huge pages from now on, by prctl(2) and
// PR_SET_THP_DISABLE. Its children inherit that.
func DisableTHP() error { return unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0) }

// SYS_MBIND is a number for SeccompRefuse.
const SYS_MBIND = unix.SYS_MBIND

// Memory policies of set_mempolicy(2) and mbind(2), include/uapi/linux/mempolicy.h.
const (
	MPOL_DEFAULT = 0
	MPOL_BIND    = 2
)

// Flags of get_mempolicy(2).
const (
	mpolFNode        = 1 << 0
	mpolFAddr        = 1 << 1
	mpolFMemsAllowed = 1 << 2
)

// maxNodes is the most NUMA nodes that a kernel can be built for (CONFIG_NODES_SHIFT is at most 10).
// get_mempolicy wants room for all nodes of the kernel.
const maxNodes = 1024

// NodeMask is a set of NUMA nodes in the kernel's format: words of the machine's size, the lowest node in the
// lowest bit.
type NodeMask [maxNodes / bits.UintSize]uint

// Set adds a node, which is from 0 to 1023.
func (m *NodeMask) Set(node int) { m[node/bits.UintSize] |= 1 << (node % bits.UintSize) }

// Has reports whether a node is in the set.
func (m *NodeMask) Has(node int) bool {
	return uint(node) < maxNodes && m[node/bits.UintSize]&(1<<(node%bits.UintSize)) != 0
}

// Nodes lists the set.
func (m *NodeMask) Nodes() (nodes []int) {
	for n := range maxNodes {
		if m.Has(n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// maxnode is one more than the number of bits, because the kernel subtracts one (get_nodes in mm/mempolicy.c).
const maxnode = maxNodes + 1

// Mbind sets the memory policy of whole pages by mbind(2). EINVAL: a node does not exist or the cpuset does not
// allow it; EPERM: a sandbox refuses; ENOSYS: the kernel has no CONFIG_NUMA.
func Mbind(b []byte, mode int, nodes *NodeMask, flags uint) error {
	_, _, e := syscall.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		uintptr(mode), uintptr(unsafe.Pointer(nodes)), maxnode, uintptr(flags))
	return errnoErr(e)
}

// MemPolicy returns the memory policy of b's first page by get_mempolicy(2) with MPOL_F_ADDR.
func MemPolicy(b []byte) (mode int, nodes NodeMask, err error) {
	var m int32
	err = getMempolicy(&m, &nodes, b, mpolFAddr)
	return int(m), nodes, err
}

// NodeOf returns the node of b's first page by get_mempolicy(2) with MPOL_F_NODE|MPOL_F_ADDR. It makes the page
// if there is none.
func NodeOf(b []byte) (int, error) {
	var n int32
	err := getMempolicy(&n, nil, b, mpolFNode|mpolFAddr)
	return int(n), err
}

// MemsAllowed returns the nodes from which this thread may get memory, by get_mempolicy(2) with
// MPOL_F_MEMS_ALLOWED.
func MemsAllowed() (nodes NodeMask, err error) {
	err = getMempolicy(nil, &nodes, nil, mpolFMemsAllowed)
	return nodes, err
}

func getMempolicy(mode *int32, nodes *NodeMask, b []byte, flags uintptr) error {
	limit := uintptr(0)
	if nodes != nil {
		limit = maxnode
	}
	_, _, e := syscall.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(mode)), uintptr(unsafe.Pointer(nodes)),
		limit, uintptr(unsafe.Pointer(unsafe.SliceData(b))), flags, 0)
	return errnoErr(e)
}

// Flags of memfd_create(2), and seals of fcntl(2) F_ADD_SEALS.
const (
	MFD_CLOEXEC       = unix.MFD_CLOEXEC
	MFD_ALLOW_SEALING = unix.MFD_ALLOW_SEALING
	MFD_NOEXEC_SEAL   = unix.MFD_NOEXEC_SEAL // Linux 6.3; EINVAL before
	MFD_HUGETLB       = unix.MFD_HUGETLB

	F_SEAL_SEAL   = unix.F_SEAL_SEAL
	F_SEAL_SHRINK = unix.F_SEAL_SHRINK
	F_SEAL_GROW   = unix.F_SEAL_GROW
)

// TMPFS_MAGIC is the file system of a memfd with ordinary pages (statfs(2)).
const TMPFS_MAGIC = unix.TMPFS_MAGIC

// MemfdCreate makes a file of length 0 in memory by memfd_create(2). The caller owns the descriptor.
func MemfdCreate(name string, flags int) (int, error) { return unix.MemfdCreate(name, flags) }

// Ftruncate sets a file's length by ftruncate(2). EPERM: a seal forbids it.
func Ftruncate(fd int, length int64) error { return unix.Ftruncate(fd, length) }

// AddSeals adds seals to a memfd by fcntl(2) F_ADD_SEALS.
func AddSeals(fd, seals int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	return err
}

// GetSeals returns a memfd's seals by fcntl(2) F_GET_SEALS. EINVAL: the file cannot be sealed.
func GetSeals(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0) }

// FstatSize returns st_size of fstat(2).
func FstatSize(fd int) (int64, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Size, err
}

// FstatfsType returns f_type of fstatfs(2): compare it with TMPFS_MAGIC.
func FstatfsType(fd int) (int64, error) {
	var st unix.Statfs_t
	err := unix.Fstatfs(fd, &st)
	return int64(st.Type), err
}

// MmapShared maps the first length bytes of a file for reading and writing, so that other mappings of the file
// show writes (mmap(2), MAP_SHARED). The mapping outlives the descriptor; the caller unmaps it by Munmap.
func MmapShared(fd, length int) ([]byte, error) {
	return unix.Mmap(fd, 0, length, PROT_READ|PROT_WRITE, unix.MAP_SHARED)
}
