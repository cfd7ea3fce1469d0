package arena_test

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

// ownNode returns a node of which this process may have memory.
func ownNode(t *testing.T) int {
	t.Helper()
	allowed, err := sys.MemsAllowed()
	if err == syscall.ENOSYS || err == syscall.EPERM {
		t.Skipf("get_mempolicy: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return allowed.Nodes()[0]
}

// TestNoNode: Locals with -1 are not bound.
func TestNoNode(t *testing.T) {
	a, err := arena.New(&arena.Config{Size: 4 << 20, Locals: 2, Nodes: []int{-1, -1}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	l := a.Local(1)
	h, err := l.Get(1, arena.Other)
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Bytes(h)
	if err != nil {
		t.Fatal(err)
	}
	if mode, _, err := sys.MemPolicy(b); err != nil || mode != sys.MPOL_DEFAULT || l.Node() != -1 || a.Unbound() != nil {
		t.Errorf("node %d, policy %d, %v, %v", l.Node(), mode, err, a.Unbound())
	}
	if err := l.Put(h); err != nil {
		t.Error(err)
	}
}

// TestNodes: a configured node is bound, and the kernel reports the same node for a
// slot's memory as the Local.
func TestNodes(t *testing.T) {
	node := ownNode(t)
	for _, p := range []arena.Pages{arena.PagesAuto, arena.PagesPlain} {
		a, err := arena.New(&arena.Config{Size: 4 << 20, Locals: 2, Pages: p, Nodes: []int{node, node}})
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range a.Locals() {
			l := a.Local(i)
			h := get(t, l, 65536, arena.Read)
			b, err := l.Bytes(h)
			if err != nil {
				t.Fatal(err)
			}
			mode, mask, err := sys.MemPolicy(b)
			if err != nil || mode != sys.MPOL_BIND || !slices.Equal(mask.Nodes(), []int{node}) || l.Node() != node {
				t.Errorf("Local %d of node %d: policy %d for %v, %v", i, l.Node(), mode, mask.Nodes(), err)
			}
			if at, err := sys.NodeOf(b); err != nil || at != node {
				t.Errorf("Local %d: on node %d, %v", i, at, err)
			}
			put(t, l, h)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNoSuchNode: nodes that are given and cannot be bound are an error.
func TestNoSuchNode(t *testing.T) {
	node := ownNode(t)
	_, err := arena.New(&arena.Config{Size: 1 << 20, Locals: 2, Nodes: []int{node, 1000}})
	if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "node 1000: mbind: ") && !errors.Is(err, syscall.EPERM) {
		t.Errorf("%v", err)
	}
}

func TestMbindRefused(t *testing.T) {
	node := ownNode(t)
	if !privilege.Refused(t, syscall.EPERM, sys.SYS_MBIND) {
		return
	}
	_, err := arena.New(&arena.Config{Size: 1 << 20, Locals: 1, Nodes: []int{node}})
	if !errors.Is(err, syscall.EPERM) {
		t.Errorf("%v", err)
	}
	a := open(t, &arena.Config{Size: 1 << 20, Locals: 1}) // a Local that does not insist gets memory
	if n := a.Local(0).Node(); n != -1 {
		t.Errorf("bound to node %d", n)
	}
}

// TestOneNode: nothing is bound where there is one node.
func TestOneNode(t *testing.T) {
	ownNode(t)
	if allowed, _ := sys.MemsAllowed(); len(allowed.Nodes()) != 1 {
		t.Skipf("this machine has %d nodes", len(allowed.Nodes()))
	}
	a := open(t, &arena.Config{Size: 1 << 20, Locals: 1})
	l := a.Local(0)
	h := get(t, l, 4096, arena.Other)
	b, err := l.Bytes(h)
	if err != nil {
		t.Fatal(err)
	}
	if mode, _, err := sys.MemPolicy(b); err != nil || mode != sys.MPOL_DEFAULT || l.Node() != -1 || a.Unbound() != nil {
		t.Errorf("policy %d, %v; node %d, %v", mode, err, l.Node(), a.Unbound())
	}
	put(t, l, h)
}
