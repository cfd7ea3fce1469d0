package config

import (
	"errors"
	"fmt"

	"github.com/penstock/penstock/internal/topology"
)

// hardware complains of CPUs and NUMA nodes that this machine does not have.
func (k *checker) hardware(l *ProcessLimits) {
	here, known := k.affinity(&l.Loops)
	k.node(&l.Memory, here)
	if n := l.Loops.Count; known && n > len(here) && !k.bad[&l.Loops.Count] {
		k.warnAt(k.at(&l.Loops.Count, &l.Loops), fmt.Sprintf("write count: %d or less", len(here)), "%d loops share %s", n, cpuCount(len(here)))
	}
}

// affinity checks the CPUs of loops. It returns the CPUs on which the process would run, unless
// they are not known.
func (k *checker) affinity(l *LoopLimits) (here topology.Set, known bool) {
	if len(l.Affinity) == 0 && l.Count == 0 || k.bad[&l.Affinity] {
		return nil, false
	}
	present, err := k.cpus()
	if err != nil {
		if len(l.Affinity) > 0 {
			k.unread(k.at(&l.Affinity, l), "CPU", l.CPUs().String(), err)
		}
		return nil, false
	}
	if len(l.Affinity) == 0 {
		return present, true
	}
	known = true
	for i := range l.Affinity {
		c := &l.Affinity[i]
		if k.bad[c] {
			known = false
			continue
		}
		if lacking := c.set().Without(present); len(lacking) > 0 {
			fix := c.set().And(present)
			if len(fix) == 0 {
				fix = present
			}
			k.complainAt(k.at(c, l), "write "+fix.String(), "this machine has no CPU %s", lacking)
			known = false
		}
	}
	return l.CPUs(), known
}

// node checks the NUMA node of the memory; here are the CPUs of the process, if it is bound to
// some.
func (k *checker) node(m *MemoryLimits, here topology.Set) {
	n, numbered := m.NUMA.Number()
	if !numbered || k.bad[&m.NUMA] {
		return
	}
	nodes, err := k.nodes()
	at := k.at(&m.NUMA, m)
	switch {
	case errors.Is(err, topology.ErrNoNUMA):
		k.complainAt(at, "write numa: "+Off+", or leave it out", "this kernel has no NUMA nodes")
	case err != nil:
		k.unread(at, "NUMA node", string(m.NUMA), err)
	case !nodes.Has(n):
		k.complainAt(at, fmt.Sprintf("write one of %s, auto or %s", nodes, Off), "this machine has no NUMA node %d", n)
	default:
		k.farther(m, here)
	}
}

// farther warns of memory on a node on which none of the process's CPUs is.
func (k *checker) farther(m *MemoryLimits, here topology.Set) {
	n, _ := m.NUMA.Number()
	near, err := k.cpusOf(n)
	if err != nil || len(here) == 0 || len(here.And(near)) > 0 {
		return
	}
	fix := "write another node"
	if len(near) > 0 {
		fix = fmt.Sprintf("write another node, or affinity: %q", near)
	}
	k.warnAt(k.at(&m.NUMA, m), fix, "none of the CPUs %s is on node %d: all of this memory is remote", here, n)
}

// unread warns that a file of the kernel, which lists what there is, cannot be reak.
func (k *checker) unread(at place, kind, number string, err error) {
	k.warnAt(at, "see /sys/devices/system on the machine on which it is to run", "whether this machine has %s %s is unknown: %v", kind, number, err)
}

func cpuCount(n int) string {
	if n == 1 {
		return "one CPU"
	}
	return fmt.Sprintf("%d CPUs", n)
}
