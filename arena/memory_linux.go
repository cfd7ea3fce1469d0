package arena

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
)

// memory is a mapping.
type memory struct {
	whole []byte // the mapping
	bytes []byte // the part in use, aligned to huge pages
	pages Pages
	huge  int64 // bytes in huge pages, transparent or reserved
}

// errSmall says that the kernel gave plain pages instead of huge ones.
var errSmall = errors.New("marked with MADV_HUGEPAGE, but made of plain pages")

// mapPages maps and populates size bytes of pages of kind p for rs, and locks them if lock is set.
func mapPages(p Pages, rs []region, size int64, lock bool) (memory, error) {
	m := memory{pages: p}
	if err := m.reserve(size); err != nil {
		return memory{}, err
	}
	err := m.advise()
	if err == nil {
		err = m.populateAll(rs)
	}
	if err == nil && lock {
		err = m.lock()
	}
	if err == nil {
		err = m.settle()
	}
	if err != nil {
		return memory{}, errors.Join(err, m.unmap())
	}
	return m, nil
}

// reserve maps size bytes of addresses. For reserved huge pages the kernel also sets the pages aside for the
// mapping, or fails.
func (m *memory) reserve(size int64) (err error) {
	flags, slack := sys.MAP_PRIVATE, int64(0)
	switch m.pages {
	case PagesReserved:
		flags |= sys.MAP_HUGETLB | sys.MAP_HUGE_2MB
	case PagesTransparent:
		slack = hugeSize // costs addresses, not memory
	}
	m.whole, err = sys.MmapAnonymous(int(size+slack), sys.PROT_READ|sys.PROT_WRITE, flags)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	from := int64(0)
	if slack > 0 {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(m.whole)))
		from = int64(-start & (hugeSize - 1))
	}
	m.bytes = m.whole[from : from+size : from+size]
	return nil
}

func (m *memory) advise() error {
	if m.pages != PagesTransparent {
		return nil
	}
	return os.NewSyscallError("madvise MADV_HUGEPAGE", sys.Madvise(m.bytes, sys.MADV_HUGEPAGE))
}

// populateAll binds each region to its node, and then gives it pages.
func (m *memory) populateAll(rs []region) error {
	for _, r := range rs {
		b := m.bytes[r.offset:][:r.bytes]
		if err := bind(b, r.node); err != nil {
			return err
		}
		if err := m.populate(b); err != nil {
			return err
		}
		if err := bound(b, r.node); err != nil {
			return err
		}
	}
	return nil
}

// populate gives b its pages, so that a shortage is an error now. Kernels before 5.14, and some sandboxes, do
// not know MADV_POPULATE_WRITE. Then reserved huge pages are not used, because a cgroup may refuse them by a
// SIGBUS at the first touch. Other pages are touched one by one; a shortage then ends in the kernel's OOM
// killer, as with MAP_POPULATE, which does not report it either (mmap(2)).
func (m *memory) populate(b []byte) error {
	for {
		err := sys.Madvise(b, sys.MADV_POPULATE_WRITE)
		switch {
		case err == nil:
			return nil
		case err == syscall.EINTR:
			continue
		case m.pages != PagesReserved && (err == syscall.EINVAL || err == syscall.ENOSYS || err == syscall.EPERM):
			touch(b)
			return nil
		}
		return os.NewSyscallError("madvise MADV_POPULATE_WRITE", err)
	}
}

// touch writes to every page of b, which is new and all zero.
func touch(b []byte) {
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 0
	}
}

func (m *memory) lock() error {
	err := sys.Mlock(m.bytes)
	if err == nil {
		return nil
	}
	limit := "unknown"
	if soft, e := sys.RlimitMemlock(); e == nil {
		limit = fmt.Sprint(soft)
	}
	return fmt.Errorf("%w: %w; RLIMIT_MEMLOCK is %s bytes, and %d are needed: raise RLIMIT_MEMLOCK (LimitMEMLOCK=, ulimit -l), give CAP_IPC_LOCK, or do not set Mlock",
		ErrLock, os.NewSyscallError("mlock", err), limit, len(m.bytes))
}

// settle finds out which pages the mapping has. It counts as transparent if some of it is.
func (m *memory) settle() error {
	switch m.pages {
	case PagesReserved:
		m.huge = int64(len(m.bytes))
	case PagesTransparent:
		huge, err := hugeBytes(uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes))))
		if err != nil {
			return fmt.Errorf("read back: %w", err)
		}
		m.huge = min(huge, int64(len(m.bytes)))
		if m.huge == 0 {
			return errSmall
		}
	}
	return nil
}

// unmap does not change pages, because other goroutines may read it at any time.
func (m *memory) unmap() error {
	whole := m.whole
	m.whole, m.bytes, m.huge = nil, nil, 0
	return os.NewSyscallError("munmap", sys.Munmap(whole))
}

// place returns the node of each Local, or nil if nothing is to be bound. If none are wanted, it takes in turn the
// nodes with CPUs on which this process may have memory, unless there is only one. The error says why these nodes
// could not be found.
func place(locals int, wanted []int) ([]int, error) {
	if wanted != nil {
		return wanted, nil
	}
	nodes, err := ownNodes()
	if err != nil || len(nodes) < 2 {
		return nil, err
	}
	return deal(locals, nodes), nil
}

func deal(locals int, nodes []int) []int {
	dealt := make([]int, locals)
	for i := range dealt {
		dealt[i] = nodes[i%len(nodes)]
	}
	return dealt
}

// ownNodes returns the nodes that have CPUs, and memory that the process may use (a cpuset may forbid some). A
// kernel without NUMA has no nodes, which is no error.
func ownNodes() ([]int, error) {
	text, err := os.ReadFile("/sys/devices/system/node/has_cpu")
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	nodes, err := parseNodes(string(text))
	if err != nil || len(nodes) < 2 {
		return nil, err
	}
	allowed, err := sys.MemsAllowed()
	if err != nil {
		return nil, os.NewSyscallError("get_mempolicy MPOL_F_MEMS_ALLOWED", err)
	}
	return keep(nodes, &allowed), nil
}

func keep(nodes []int, allowed *sys.NodeMask) (kept []int) {
	for _, n := range nodes {
		if allowed.Has(n) {
			kept = append(kept, n)
		}
	}
	return kept
}

// parseNodes reads a list such as "0-1,3".
func parseNodes(text string) (nodes []int, err error) {
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		if part == "" {
			continue
		}
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || from < 0 || to > maxNode || from > to {
			return nil, fmt.Errorf("not a list of nodes: %q", text)
		}
		for n := from; n <= to; n++ {
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// bind makes the kernel take b's pages only from node; -1 means any node. It must be called before b has pages.
func bind(b []byte, node int) error {
	if node < 0 {
		return nil
	}
	var mask sys.NodeMask
	mask.Set(node)
	if err := sys.Mbind(b, sys.MPOL_BIND, &mask, 0); err != nil {
		return fmt.Errorf("%w: node %d: %w", ErrBind, node, os.NewSyscallError("mbind", err))
	}
	return nil
}

// bound reads back that b is bound to node, and that its first page is there.
func bound(b []byte, node int) error {
	if node < 0 {
		return nil
	}
	mode, mask, err := sys.MemPolicy(b)
	if err != nil {
		return fmt.Errorf("%w: node %d: %w", ErrBind, node, os.NewSyscallError("get_mempolicy", err))
	}
	var want sys.NodeMask
	want.Set(node)
	if mode != sys.MPOL_BIND || mask != want {
		return fmt.Errorf("%w: node %d: get_mempolicy: policy %d for nodes %v", ErrBind, node, mode, mask.Nodes())
	}
	at, err := sys.NodeOf(b)
	if err != nil {
		return fmt.Errorf("%w: node %d: %w", ErrBind, node, os.NewSyscallError("get_mempolicy MPOL_F_NODE", err))
	}
	if at != node {
		return fmt.Errorf("%w: node %d: the first page is on node %d", ErrBind, node, at)
	}
	return nil
}

// hugeBytes returns how many bytes of the mapping that contains the address are in transparent huge pages,
// according to /proc/self/smaps (proc_pid_smaps(5)).
func hugeBytes(address uintptr) (int64, error) {
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return 0, err
	}
	return hugeIn(text, address)
}

func hugeIn(smaps []byte, address uintptr) (int64, error) {
	inside := false
	for line := range bytes.Lines(smaps) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 {
			continue
		}
		if from, to, is := strings.Cut(fields[0], "-"); is {
			begin, _ := strconv.ParseUint(from, 16, 64)
			end, _ := strconv.ParseUint(to, 16, 64)
			inside = begin <= uint64(address) && uint64(address) < end
		} else if inside && fields[0] == "AnonHugePages:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/self/smaps does not report the pages")
}
