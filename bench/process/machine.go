package process

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// proc returns /proc, with name in errors.
func proc(name string) (procfs.FS, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return fs, err
}

// MachineCPU returns how long all processors together have been busy since the machine started, with processes,
// kernel threads and interrupts. It leaves out time that is idle, waiting for I/O, or stolen by a hypervisor
// (proc(5), /proc/stat). Its unit is a tick of 10 ms.
func MachineCPU() (time.Duration, error) {
	const name = "processor time of the machine"
	fs, err := proc(name)
	if err != nil {
		return 0, err
	}
	s, err := fs.Stat()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	cpu := &s.CPUTotal // the times of guests are already in User and Nice
	busy := cpu.User + cpu.Nice + cpu.System + cpu.IRQ + cpu.SoftIRQ
	return time.Duration(busy * float64(time.Second)).Round(tick), nil
}

// Slab returns how many bytes the kernel's slab allocator holds on the whole machine: sockets, files, pipes and
// much else (proc(5), /proc/meminfo).
func Slab() (int64, error) {
	const name = "memory of the kernel"
	fs, err := proc(name)
	if err != nil {
		return 0, err
	}
	m, err := fs.Meminfo()
	if err == nil && m.SlabBytes == nil {
		err = errors.New("/proc/meminfo has no line Slab")
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return int64(*m.SlabBytes), nil
}

// socketCaches are the kernel's slab caches for sockets, pipes and the structures that manage them. Hardly
// anything else uses these caches. A name that ends in "-" stands for all names that begin with it. Each socket
// and pipe also has a directory entry, which dentriesInUse counts. The cache of connections in TIME_WAIT,
// tw_sock_TCP, is left out: no process owns such a connection any more.
var socketCaches = []string{
	"TCP", "sock_inode_cache", "filp", "lsm_file_cache", "inode_cache",
	"eventpoll_epi", "eventpoll_pwq", "ep_head", "kmalloc-cg-",
}

// errNoCaches means that the kernel has merged these caches, or gives them other names.
var errNoCaches = errors.New("/proc/slabinfo has no caches of sockets")

// SocketSlab returns how many bytes of slab memory sockets, pipes, their descriptors and their epoll entries use,
// on the whole machine. It counts the objects in use in /proc/slabinfo (slabinfo(5)), which only root may read. It
// is far steadier than Slab, which contains mostly files that some process has read.
func SocketSlab() (int64, error) {
	const name = "memory of sockets"
	fs, err := proc(name)
	if err != nil {
		return 0, err
	}
	s, err := fs.SlabInfo()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	used, err := dentriesInUse()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return socketBytes(s.Slabs, used)
}

// socketBytes adds up the caches of sockets, with this number of directory entries in use.
func socketBytes(slabs []*procfs.Slab, dentries int64) (sum int64, err error) {
	sockets := false
	for _, s := range slabs {
		switch {
		case s.Name == "dentry":
			sum += dentries * s.ObjSize
		case slices.ContainsFunc(socketCaches, func(name string) bool {
			return s.Name == name || strings.HasSuffix(name, "-") && strings.HasPrefix(s.Name, name)
		}):
			sum += s.ObjActive * s.ObjSize
		}
		sockets = sockets || s.Name == "TCP"
	}
	if !sockets {
		return 0, errNoCaches
	}
	return sum, nil
}

// dentriesInUse returns how many directory entries are in use: all entries except the entries kept for a later
// lookup (Documentation/admin-guide/sysctl/fs.rst, dentry-state).
func dentriesInUse() (int64, error) {
	const path = "/proc/sys/fs/dentry-state"
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var all, unused int64
	if _, err := fmt.Sscan(string(text), &all, &unused); err != nil {
		return 0, fmt.Errorf("%s: %q: %w", path, text, err)
	}
	return all - unused, nil
}
