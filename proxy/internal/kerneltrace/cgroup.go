package kerneltrace

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// maxCgroups is the room of the map of cgroups.
const maxCgroups = 1024

// cgroup2Magic is the type of the file system of cgroup v2 (CGROUP2_SUPER_MAGIC in
// include/uapi/linux/magic.h).
const cgroup2Magic = 0x63677270

// cgroupIDs returns the IDs of a cgroup and of those below it: the numbers of their directories
// (cgroup_id in include/linux/cgroup.h).
func cgroupIDs(path string) (ids []uint64, err error) {
	var at syscall.Statfs_t
	if err := syscall.Statfs(path, &at); err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", path, err)
	}
	if at.Type != cgroup2Magic {
		return nil, fmt.Errorf("cgroup %s: not a directory of cgroup v2: write one below /sys/fs/cgroup, such as the one in the line with 0:: of /proc/PID/cgroup", path)
	}
	err = eachCgroup(path, func(dir string) error {
		var st syscall.Stat_t
		if err := syscall.Stat(dir, &st); err != nil {
			return err
		}
		ids = append(ids, st.Ino)
		if len(ids) > maxCgroups {
			return fmt.Errorf("more than %d cgroups below it", maxCgroups)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", path, err)
	}
	return ids, nil
}

// CgroupProcesses returns the processes of a cgroup and of those below it.
func CgroupProcesses(path string) (pids []int, err error) {
	err = eachCgroup(path, func(dir string) error {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return err
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 { // 0: of another PID namespace
				pids = append(pids, pid)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", path, err)
	}
	return pids, nil
}

func eachCgroup(path string, do func(dir string) error) error {
	return filepath.WalkDir(path, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return do(dir)
	})
}
