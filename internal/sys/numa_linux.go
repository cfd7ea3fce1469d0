package sys

import (
	"math/bits"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SYS_MBIND is a number for SeccompRefuse.
const SYS_MBIND = unix.SYS_MBIND

// Memory policies of set_mempolicy(2) and mbind(2), include/uapi/linux/mempolicy.h.
const (
	MPOL_DEFAULT   = 0
	MPOL_PREFERRED = 1
	MPOL_BIND      = 2
)

// Flags of get_mempolicy(2).
const (
	mpolFNode        = 1 << 0
	mpolFAddr        = 1 << 1
	mpolFMemsAllowed = 1 << 2
)

// maxNodes is the most NUMA nodes that a kernel is built for (CONFIG_NODES_SHIFT is
// at most 10). get_mempolicy wants room for all that the kernel has.
const maxNodes = 1024

// NodeMask is a set of NUMA nodes, as the kernel takes it: words of the machine's
// size, the lowest node in the lowest bit.
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

// maxnode is one more than there are bits: the kernel takes one off
// (get_nodes in mm/mempolicy.c).
const maxnode = maxNodes + 1

// Mbind sets the memory policy of whole pages with mbind(2). EINVAL: a node does not
// exist or is not allowed by the cpuset; EPERM: a sandbox; ENOSYS: a kernel without
// CONFIG_NUMA.
func Mbind(b []byte, mode int, nodes *NodeMask, flags uint) error {
	_, _, e := syscall.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		uintptr(mode), uintptr(unsafe.Pointer(nodes)), maxnode, uintptr(flags))
	return errnoErr(e)
}

// MemPolicy returns the memory policy of b's first page with get_mempolicy(2) and
// MPOL_F_ADDR.
func MemPolicy(b []byte) (mode int, nodes NodeMask, err error) {
	var m int32
	err = getMempolicy(&m, &nodes, b, mpolFAddr)
	return int(m), nodes, err
}

// NodeOf returns the node that b's first page lies on, with get_mempolicy(2) and
// MPOL_F_NODE|MPOL_F_ADDR. It makes the page if there is none.
func NodeOf(b []byte) (int, error) {
	var n int32
	err := getMempolicy(&n, nil, b, mpolFNode|mpolFAddr)
	return int(n), err
}

// MemsAllowed returns the nodes of which this thread may have memory, with
// get_mempolicy(2) and MPOL_F_MEMS_ALLOWED.
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
