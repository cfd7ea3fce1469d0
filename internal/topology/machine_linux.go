package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/penstock/penstock/internal/sys"
)

// The kernel's files (Documentation/ABI/stable/sysfs-devices-node and
// Documentation/ABI/testing/sysfs-devices-system-cpu).
const (
	presentFile = "sys/devices/system/cpu/present"
	onlineFile  = "sys/devices/system/node/online"
	cpusOfNode  = "sys/devices/system/node/node%d/cpulist"
)

// ErrNoNUMA is returned if the kernel was built without NUMA, so that memory has no nodes.
var ErrNoNUMA = errors.New("this kernel has no NUMA nodes (CONFIG_NUMA)")

// CPUs returns the CPUs of this machine, including offline ones.
func CPUs() (Set, error) { return cpus(os.DirFS("/")) }

func cpus(root fs.FS) (Set, error) {
	s, err := read(root, presentFile)
	if err == nil && len(s) == 0 {
		err = fmt.Errorf("/%s is empty", presentFile)
	}
	return s, err
}

// AllowedCPUs returns the CPUs on which the calling thread may run: online, and in both its affinity and its
// cpuset.
func AllowedCPUs() (Set, error) {
	mask, err := sys.SchedGetaffinity(0)
	if err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	return mask.CPUs(), nil
}

// Nodes returns the NUMA nodes of this machine, or ErrNoNUMA if the kernel has none.
func Nodes() (Set, error) { return nodes(os.DirFS("/")) }

func nodes(root fs.FS) (Set, error) {
	s, err := read(root, onlineFile)
	if errors.Is(err, fs.ErrNotExist) {
		if _, there := fs.Stat(root, presentFile); there == nil { // /sys is mounted
			return nil, ErrNoNUMA
		}
	}
	return s, err
}

// CPUsOf returns the CPUs of a node, possibly none.
func CPUsOf(node int) (Set, error) { return read(os.DirFS("/"), fmt.Sprintf(cpusOfNode, node)) }

func read(root fs.FS, name string) (Set, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return nil, err
	}
	s, err := ParseSet(string(text))
	if err != nil {
		return nil, fmt.Errorf("/%s: %w", name, err)
	}
	return s, nil
}
