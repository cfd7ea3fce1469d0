package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/penstock/penstock/internal/sys"
)

// The files of the kernel (Documentation/ABI/stable/sysfs-devices-node and
// Documentation/ABI/testing/sysfs-devices-system-cpu).
const (
	presentFile = "sys/devices/system/cpu/present"
	onlineFile  = "sys/devices/system/node/online"
	cpusOfNode  = "sys/devices/system/node/node%d/cpulist"
)

// ErrNoNUMA is returned where the kernel was built without NUMA: memory has no nodes there.
var ErrNoNUMA = errors.New("this kernel has no NUMA nodes (CONFIG_NUMA)")

// CPUs returns the CPUs that this machine has, also those that are offline.
func CPUs() (Set, error) { return cpus(os.DirFS("/")) }

func cpus(root fs.FS) (Set, error) {
	s, err := read(root, presentFile)
	if err == nil && len(s) == 0 {
		err = fmt.Errorf("/%s is empty", presentFile)
	}
	return s, err
}

// AllowedCPUs returns the CPUs on which the calling thread may run: those of its affinity and of
// its cpuset that are online.
func AllowedCPUs() (Set, error) {
	mask, err := sys.SchedGetaffinity(0)
	if err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	return mask.CPUs(), nil
}

// Nodes returns the NUMA nodes that this machine has. The error is ErrNoNUMA where the kernel
// has none.
func Nodes() (Set, error) { return nodes(os.DirFS("/")) }

func nodes(root fs.FS) (Set, error) {
	s, err := read(root, onlineFile)
	if errors.Is(err, fs.ErrNotExist) {
		if _, there := fs.Stat(root, presentFile); there == nil { // and /sys is mounted
			return nil, ErrNoNUMA
		}
	}
	return s, err
}

// CPUsOf returns the CPUs of a node, of which there may be none.
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
