package config

import (
	"reflect"
	"strconv"

	"github.com/penstock/penstock/internal/topology"
)

// MemoryLimits describe the memory of the loops.
type MemoryLimits struct {
	Pos       Pos
	HugePages string `key:"huge_pages" enum:"auto off require" default:"auto" restart:"yes" doc:"Pages of 2 MiB. auto: those set aside (vm.nr_hugepages), or transparent ones, or ordinary pages. off: ordinary pages. require: the process does not start without."`
	Mlock     bool   `key:"mlock" default:"false" restart:"yes" doc:"Keep this memory from being swapped out; the process does not start if it cannot. It takes 4 MiB for each loop of RLIMIT_MEMLOCK, or CAP_IPC_LOCK."`
	NUMA      Node   `key:"numa" default:"auto" restart:"yes" doc:"The NUMA node of this memory. auto: on a machine with several nodes, loops take turns at them. off: the kernel chooses. A number: that node; the process does not start if it cannot have it."`
}

// The words for MemoryLimits.HugePages.
const (
	HugePagesAuto    = "auto"
	HugePagesOff     = Off
	HugePagesRequire = "require"
)

// LoopLimits are the number of event loops, and their CPUs.
type LoopLimits struct {
	Pos      Pos
	Count    int    `key:"count" default:"0" range:"0..1024" restart:"yes" doc:"Event loops, each of which uses one CPU at most. 0: one for each CPU: GOMAXPROCS, and those of affinity at most. --loops takes precedence."`
	Affinity []CPUs `key:"affinity" eg:"0-3" single:"yes" off:"yes" restart:"yes" doc:"CPUs on which the process runs, all of its threads: 0-3, or [0, 2]. A loop is bound to none of them. off: those that the process was given."`
}

// CPUs returns the CPUs of Affinity; nil: it is off.
func (l *LoopLimits) CPUs() topology.Set {
	var all []int
	for _, c := range l.Affinity {
		all = append(all, c.set()...)
	}
	return topology.NewSet(all...)
}

// Number returns the number of loops of a process that would otherwise have that many.
func (l *LoopLimits) Number(otherwise int) int {
	switch cpus := len(l.CPUs()); {
	case l.Count > 0:
		return l.Count
	case cpus > 0:
		return max(min(cpus, otherwise), 1)
	}
	return otherwise
}

// Lasting returns the keys that a process with these limits cannot change to those of next:
// their new values take effect when it is started again.
func (l *ProcessLimits) Lasting(next *ProcessLimits) (keys []KeyChange) {
	for _, k := range new(differ).keys(root().byKey["limits"], l, next) {
		if k.Restart {
			keys = append(keys, k)
		}
	}
	return keys
}

// CPUs are a CPU, or several, in the form of topology.ParseSet.
type CPUs string

func (c CPUs) set() topology.Set {
	s, _ := topology.ParseSet(string(c)) // which setCPUs has read
	return s
}

// A Node is the number of a NUMA node, or a word.
type Node string

// The words for a Node.
const (
	NodeAuto Node = "auto"
	NodeOff  Node = Off
)

// Number returns the number of the node; false: it is a word.
func (n Node) Number() (int, bool) {
	number, err := strconv.Atoi(string(n))
	return number, err == nil
}

const (
	cpusPattern = `^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$`
	nodePattern = `^(auto|off|[0-9]+)$`
)

// setCPUs reads 3, 0-3, or both forms with commas between.
func setCPUs(_ *decoder, _ *field, v reflect.Value, text string) *complaint {
	s, err := topology.ParseSet(text)
	switch {
	case text == Off:
		return complain("write affinity: "+Off+" without a list", "off stands for the whole list")
	case err != nil || len(s) == 0:
		return complain("write a CPU such as 0, a range such as 0-3, or a list of them", "%q is not a CPU", text)
	}
	v.SetString(s.String())
	return nil
}

// maxNode is the largest number of a NUMA node that a kernel is built for (CONFIG_NODES_SHIFT
// is at most 10).
const maxNode = 1023

func setNode(_ *decoder, _ *field, v reflect.Value, text string) *complaint {
	if text != string(NodeAuto) && text != string(NodeOff) {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n > maxNode {
			return complain("write the number of a node such as 0, auto or off", "%q is not a NUMA node", text)
		}
		text = strconv.FormatUint(n, 10)
	}
	v.SetString(text)
	return nil
}
