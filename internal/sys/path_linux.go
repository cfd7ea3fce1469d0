package sys

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// O_PATH and O_DIRECTORY are flags of Openat, see open(2).
const (
	O_PATH      = unix.O_PATH
	O_DIRECTORY = unix.O_DIRECTORY
)

// S_ISVTX is the sticky bit of a file's mode, which means nothing on a socket (inode(7)).
const S_ISVTX = unix.S_ISVTX

// A File is what tells a file from all others for as long as it exists, and who may do what
// with it.
type File struct {
	Device, Inode uint64
	Mode          uint32 // with the type: compare Mode&S_IFMT with S_IFSOCK
	UID           uint32
}

// Same reports whether f and other are the same file.
func (f File) Same(other File) bool { return f.Device == other.Device && f.Inode == other.Inode }

// Openat opens what has a name in a directory with openat(2), and never what a symbolic link
// of that name leads to: it is opened itself with O_PATH, and otherwise the error is ELOOP.
// The caller owns the descriptor.
func Openat(dir int, name string, flags int) (fd int, err error) {
	return unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// OpenDirectory opens a directory with O_PATH, to be named in the other functions here; on
// the way to it, and in its place, symbolic links are followed. The caller owns the
// descriptor.
func OpenDirectory(name string) (fd int, err error) {
	return unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// Fstat describes what a descriptor refers to, which may have been opened with O_PATH.
func Fstat(fd int) (File, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return fileOf(&st), err
}

// Fstatat describes what has a name in a directory; a symbolic link is described itself.
func Fstatat(dir int, name string) (File, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return fileOf(&st), err
}

func fileOf(st *unix.Stat_t) File {
	return File{Device: uint64(st.Dev), Inode: st.Ino, Mode: st.Mode, UID: st.Uid}
}

// Unlinkat removes a name from a directory with unlinkat(2); the name is no directory's.
func Unlinkat(dir int, name string) error { return unix.Unlinkat(dir, name, 0) }

// ChmodOpen sets the mode of what a descriptor refers to that was opened with O_PATH, which
// fchmod(2) refuses. No path is looked up for it that somebody could change: a link of
// /proc/self/fd leads to the open file itself (proc_pid_fd(5), symlink(7) on magic links).
// Without /proc the error is ENOENT.
func ChmodOpen(fd int, mode uint32) error { return unix.Chmod(OpenName(fd), mode) }

// Umask returns the file mode creation mask of the process, which umask(2) cannot without
// changing it: from /proc/self/status (proc_pid_status(5), Linux 4.7).
func Umask() (uint32, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if octal, ok := strings.CutPrefix(line, "Umask:"); ok {
			mask, err := strconv.ParseUint(strings.TrimSpace(octal), 8, 32)
			return uint32(mask), err
		}
	}
	return 0, syscall.ENOTSUP
}

// OpenName is a path that leads to the very file that a descriptor refers to.
func OpenName(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
