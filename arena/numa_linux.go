package arena

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/penstock/penstock/internal/sys"
)

// place returns the node of each Local, nil if nothing is to be bound: wanted, or by turns the
// nodes with CPUs on which this process may have memory, if there are several. The error is
// why that could not be found out, where it is not insisted on.
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

// ownNodes returns the nodes that have CPUs and of which the process may have memory
// (a cpuset may forbid some). A kernel without NUMA knows of none, and without an
// error.
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

// bind makes the kernel take b's pages, none of which it has taken yet, from node
// alone. -1 is none in particular.
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
