package sys_test

import (
	"slices"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

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
