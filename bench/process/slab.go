package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

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
	text, err := os.ReadFile("/proc/slabinfo")
	if err != nil {
		return 0, fmt.Errorf("memory of sockets: %w", err)
	}
	used, err := dentriesInUse()
	if err != nil {
		return 0, fmt.Errorf("memory of sockets: %w", err)
	}
	return socketBytes(string(text), used)
}

// socketBytes adds up the caches in the text of /proc/slabinfo. A line has: name, active objects, all objects,
// bytes of an object, and more.
func socketBytes(text string, dentries int64) (int64, error) {
	var sum int64
	sockets := false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || f[0] != "dentry" && !ofSockets(f[0]) {
			continue
		}
		active, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/slabinfo: %w", err)
		}
		size, err := strconv.ParseInt(f[3], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/slabinfo: %w", err)
		}
		if f[0] == "dentry" {
			active = dentries
		}
		sockets = sockets || f[0] == "TCP"
		sum += active * size
	}
	if !sockets {
		return 0, errNoCaches
	}
	return sum, nil
}

// ofSockets reports whether a cache is one of socketCaches.
func ofSockets(cache string) bool {
	for _, name := range socketCaches {
		if cache == name || strings.HasSuffix(name, "-") && strings.HasPrefix(cache, name) {
			return true
		}
	}
	return false
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
