package sys_test

import (
	"slices"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

func TestMmapAnonymous(t *testing.T) {
	const length = 4 << 20
	b, err := sys.MmapAnonymous(length, sys.PROT_READ|sys.PROT_WRITE, sys.MAP_PRIVATE)
	want(t, "mmap", len(b), err, length, nil)
	if err := sys.Madvise(b, sys.MADV_HUGEPAGE); err != nil && err != syscall.EINVAL { // not built in
		t.Errorf("madvise: %v", err)
	}
	b[0], b[length-1] = 1, 2
	want(t, "madvise of no page", 0, sys.Madvise(b[1:], sys.MADV_HUGEPAGE), 0, error(syscall.EINVAL))
	want(t, "munmap", 0, sys.Munmap(b), 0, nil)
	_, err = sys.MmapAnonymous(0, sys.PROT_READ, sys.MAP_PRIVATE)
	want(t, "mmap of nothing", 0, err, 0, error(syscall.EINVAL))
}

func TestNodeMask(t *testing.T) {
	var m sys.NodeMask
	for _, n := range []int{0, 31, 32, 63, 64, 1023} {
		m.Set(n)
	}
	if got := m.Nodes(); !slices.Equal(got, []int{0, 31, 32, 63, 64, 1023}) {
		t.Errorf("%v", got)
	}
	if m.Has(-1) || m.Has(1024) || m.Has(1) {
		t.Error("nodes that were not set")
	}
}

func TestMbind(t *testing.T) {
	allowed, err := sys.MemsAllowed()
	if err == syscall.ENOSYS || err == syscall.EPERM {
		t.Skipf("get_mempolicy: %v", err)
	}
	if err != nil || len(allowed.Nodes()) == 0 {
		t.Fatalf("nodes %v, %v", allowed.Nodes(), err)
	}
	node := allowed.Nodes()[0]
	b, err := sys.MmapAnonymous(1<<20, sys.PROT_READ|sys.PROT_WRITE, sys.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Munmap(b)
	if mode, mask, err := sys.MemPolicy(b); mode != sys.MPOL_DEFAULT || len(mask.Nodes()) != 0 || err != nil {
		t.Errorf("before mbind: %d for %v, %v", mode, mask.Nodes(), err)
	}
	var mask sys.NodeMask
	mask.Set(node)
	switch err := sys.Mbind(b, sys.MPOL_BIND, &mask, 0); err {
	case nil:
	case syscall.EPERM:
		t.Skipf("mbind: %v", err)
	default:
		t.Fatal(err)
	}
	if mode, got, err := sys.MemPolicy(b); mode != sys.MPOL_BIND || got != mask || err != nil {
		t.Errorf("after mbind: %d for %v, %v", mode, got.Nodes(), err)
	}
	if n, err := sys.NodeOf(b); n != node || err != nil {
		t.Errorf("on node %d, %v; want %d", n, err, node)
	}
	var nowhere sys.NodeMask
	nowhere.Set(1000)
	want(t, "mbind to no node", 0, sys.Mbind(b, sys.MPOL_BIND, &nowhere, 0), 0, error(syscall.EINVAL))
}

func TestMlock(t *testing.T) {
	limit, err := sys.RlimitMemlock()
	if err != nil {
		t.Fatal(err)
	}
	if limit < 4<<12 {
		t.Skipf("RLIMIT_MEMLOCK is %d", limit)
	}
	b, err := sys.MmapAnonymous(1<<12, sys.PROT_READ|sys.PROT_WRITE, sys.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "mlock", 0, sys.Mlock(b), 0, nil)
	want(t, "munmap", 0, sys.Munmap(b), 0, nil)
}

func TestMemfd(t *testing.T) {
	fd, err := sys.MemfdCreate("test", sys.MFD_CLOEXEC|sys.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	const size = 8192
	want(t, "ftruncate", 0, sys.Ftruncate(fd, size), 0, nil)
	n, err := sys.FstatSize(fd)
	want(t, "size", n, err, size, nil)
	kind, err := sys.FstatfsType(fd)
	want(t, "file system", kind, err, sys.TMPFS_MAGIC, nil)

	b, err := sys.MmapShared(fd, size)
	want(t, "mmap", len(b), err, size, nil)
	c, err := sys.MmapShared(fd, size)
	want(t, "mmap", len(c), err, size, nil)
	if b[size-1] = 7; c[size-1] != 7 {
		t.Error("what is written to one mapping is not in the other")
	}

	want(t, "seal", 0, sys.AddSeals(fd, sys.F_SEAL_SHRINK|sys.F_SEAL_SEAL), 0, nil)
	seals, err := sys.GetSeals(fd)
	want(t, "seals", seals&sys.F_SEAL_SHRINK, err, sys.F_SEAL_SHRINK, nil)
	want(t, "shrink", 0, sys.Ftruncate(fd, 1), 0, error(syscall.EPERM))
	want(t, "one seal more", 0, sys.AddSeals(fd, sys.F_SEAL_GROW), 0, error(syscall.EPERM))
	want(t, "munmap", 0, sys.Munmap(b), 0, nil)
	want(t, "munmap", 0, sys.Munmap(c), 0, nil)

	r, w, err := sys.Pipe2(sys.O_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(r)
	defer sys.Close(w)
	_, err = sys.GetSeals(r)
	want(t, "seals of a pipe", 0, err, 0, error(syscall.EINVAL))
}
