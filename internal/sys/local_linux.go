package sys

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// local are the types of file systems that are in the kernel and on this machine.
var local = map[int64]bool{
	unix.TMPFS_MAGIC: true, unix.RAMFS_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true, unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true,
	unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true, unix.SQUASHFS_MAGIC: true, unix.EROFS_SUPER_MAGIC_V1: true,
	0x2fc12fc1: true, // ZFS
	0xca451a4e: true, // bcachefs
}

// LocalPath reports whether a path is looked up on this machine by the kernel alone, at present. A file system for which the
// kernel asks a program or another machine may not answer, and then LocalPath does not return.
func LocalPath(path string) bool { return localPath(path, 40) } // MAXSYMLINKS of include/linux/namei.h

func localPath(path string, links int) bool {
	first := "."
	if strings.HasPrefix(path, "/") {
		first = "/"
	}
	if links < 0 || !localFile(first) {
		return false
	}
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		var st unix.Stat_t
		if err := unix.Lstat(path[:i], &st); err != nil {
			return true // connect(2) will not go farther
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			to, err := os.Readlink(path[:i])
			if err == nil && !filepath.IsAbs(to) {
				to = filepath.Dir(path[:i]) + "/" + to
			}
			return err == nil && localPath(to+path[i:], links-1)
		}
		if !localFile(path[:i]) {
			return false
		}
	}
	return true
}

func localFile(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && local[int64(st.Type)]
}
