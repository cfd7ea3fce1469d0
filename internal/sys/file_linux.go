package sys

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Types of file in the mode that Fstat returns.
const (
	S_IFMT   = unix.S_IFMT
	S_IFREG  = unix.S_IFREG
	S_IFSOCK = unix.S_IFSOCK
	S_IFIFO  = unix.S_IFIFO
	S_IFLNK  = unix.S_IFLNK
)

// Read reads by read(2). It returns 0 and no error at the end of file.
func Read(fd int, p []byte) (int, error) { return atLeast0(unix.Read(fd, p)) }

// Write writes by write(2). For a socket use Send, which raises no SIGPIPE.
func Write(fd int, p []byte) (int, error) { return atLeast0(unix.Write(fd, p)) }

// Sendfile moves at most n bytes from the file rfd to wfd by sendfile(2). A nil offset means the file's own
// position.
func Sendfile(wfd, rfd int, off *int64, n int) (int, error) {
	return atLeast0(unix.Sendfile(wfd, rfd, off, n))
}

// GetFl returns a descriptor's file status flags (O_APPEND, O_NONBLOCK and the access mode) by fcntl(2)
// F_GETFL.
func GetFl(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0) }

// FstatMode returns st_mode of fstat(2): compare mode&S_IFMT with S_IFREG,
// S_IFSOCK, S_IFIFO.
func FstatMode(fd int) (uint32, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Mode, err
}

// FIONREAD returns how many bytes are queued for reading in a socket or a pipe (ioctl_tty(2), tcp(7), pipe(7)).
// It does not count an urgent byte of TCP. An end of Multipath TCP, which the kernel counts as one more byte
// (net/mptcp/protocol.c, mptcp_inq_hint), is not counted either; an error that waits behind it may be collected.
func FIONREAD(fd int) (int, error) {
	n, err := ioctlInt(fd, unix.TIOCINQ)
	if n <= 0 || err != nil {
		return n, err
	}
	if p, err := GetsockoptInt(fd, SOL_SOCKET, SO_PROTOCOL); err != nil || p != unix.IPPROTO_MPTCP {
		return n, nil
	}
	// With MSG_TRUNC TCP counts without copying (tcp(7)), so no buffer is needed.
	k, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, uintptr(n), MSG_PEEK|MSG_TRUNC|MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, nil
	}
	return int(k), nil
}

// ioctlInt makes an ioctl that stores a C int. unix.IoctlGetInt would pass a Go int: eight bytes, wrong on
// big-endian machines.
func ioctlInt(fd int, req uintptr) (int, error) {
	var v int32
	_, _, e := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), req, uintptr(unsafe.Pointer(&v)))
	return int(v), errnoErr(e)
}

// atLeast0 keeps the kernel's -1 out of byte counts.
func atLeast0(n int, err error) (int, error) { return max(n, 0), err }

// O_PATH and O_DIRECTORY are flags of Openat, see open(2).
const (
	O_PATH      = unix.O_PATH
	O_DIRECTORY = unix.O_DIRECTORY
)

// S_ISVTX is the sticky bit of a file's mode, which means nothing on a socket (inode(7)).
const S_ISVTX = unix.S_ISVTX

// A File is the identity of a file for as long as it exists, and its owner, mode and size.
type File struct {
	Device, Inode uint64
	Mode          uint32 // with the type: compare Mode&S_IFMT with S_IFSOCK
	UID, GID      uint32
	Links         uint64 // how many names it has
	Size          int64  // in bytes
}

// Same reports whether f and other are the same file.
func (f File) Same(other File) bool { return f.Device == other.Device && f.Inode == other.Inode }

// Openat opens the file with a name in a directory by openat(2), but never the target of a symbolic link of
// that name: with O_PATH it opens the link itself, and otherwise the error is ELOOP. The caller owns the
// descriptor.
func Openat(dir int, name string, flags int) (fd int, err error) {
	return unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// OpenFileAt opens the file with a name in a directory by openat(2), and makes it with mode if flags have
// O_CREAT. If the name is a symbolic link the error is ELOOP. The caller owns the descriptor.
func OpenFileAt(dir int, name string, flags int, mode uint32) (fd int, err error) {
	return unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
}

// OpenMagic opens the file behind a link of procfs in a directory, such as a descriptor in /proc/self/fd
// (proc_pid_fd(5)). The caller owns the descriptor.
func OpenMagic(dir int, name string, flags int) (fd int, err error) {
	return unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
}

// IsProc reports whether a directory is in procfs (statfs(2)).
func IsProc(dir int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(dir, &st) == nil && st.Type == unix.PROC_SUPER_MAGIC
}

// Readlinkat returns the target of the symbolic link with a name in a directory.
func Readlinkat(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	return string(buf[:max(n, 0)]), err
}

// Renameat renames a file within a directory, and replaces a file with the new name.
func Renameat(dir int, from, to string) error { return unix.Renameat(dir, from, dir, to) }

// Exchange exchanges the names of two files of a directory at once. EINVAL: the file system cannot (renameat2(2)).
func Exchange(dir int, a, b string) error {
	return unix.Renameat2(dir, a, dir, b, unix.RENAME_EXCHANGE)
}

// OpenDirectory opens a directory with O_PATH, for the other functions here. It follows symbolic links. The
// caller owns the descriptor.
func OpenDirectory(name string) (fd int, err error) {
	return unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// OpenAppend opens the FIFO or terminal at a path for appending, with O_NONBLOCK. It follows links: the path
// comes from [OpenName]. ENXIO: no process reads the FIFO (fifo(7)). The caller owns the descriptor.
func OpenAppend(path string) (fd int, err error) {
	return unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
}

// Stat describes the file at a path. It follows symbolic links.
func Stat(path string) (File, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return fileOf(&st), err
}

// Fstat describes the open file of a descriptor, which may have been opened with O_PATH.
func Fstat(fd int) (File, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return fileOf(&st), err
}

// Fstatat describes the file with a name in a directory, or the symbolic link itself.
func Fstatat(dir int, name string) (File, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return fileOf(&st), err
}

func fileOf(st *unix.Stat_t) File {
	return File{Device: uint64(st.Dev), Inode: st.Ino, Mode: st.Mode, UID: st.Uid, GID: st.Gid, Links: uint64(st.Nlink), Size: st.Size}
}

// HasACL reports whether the file with a name in a directory has an access ACL (acl(5)). Its group bits are then the mask of
// all entries but the owner's and the one for others.
func HasACL(dir int, name string) bool {
	n, err := unix.Lgetxattr(OpenName(dir)+"/"+name, "system.posix_acl_access", nil)
	return err == nil && n > 0
}

// Attributes returns the extended attributes of an open file (xattr(7)) with the names that choose returns true for; none if the file
// system has none.
func Attributes(fd int, choose func(name string) bool) (map[string][]byte, error) {
	list, value := make([]byte, 1<<16), make([]byte, 1<<16) // XATTR_LIST_MAX and XATTR_SIZE_MAX
	n, err := unix.Flistxattr(fd, list)
	if err != nil {
		if err == unix.EOPNOTSUPP {
			err = nil
		}
		return nil, os.NewSyscallError("flistxattr", err)
	}
	all := map[string][]byte{}
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if name == "" || !choose(name) {
			continue
		}
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return nil, os.NewSyscallError("fgetxattr "+name, err)
		}
		all[name] = bytes.Clone(value[:n])
	}
	return all, nil
}

// SetAttribute gives an open file an extended attribute, or takes it away if the value is nil.
func SetAttribute(fd int, name string, value []byte) error {
	if value == nil {
		return os.NewSyscallError("fremovexattr "+name, unix.Fremovexattr(fd, name))
	}
	return os.NewSyscallError("fsetxattr "+name, unix.Fsetxattr(fd, name, value, 0))
}

// Unlinkat removes a name that is no directory from a directory by unlinkat(2).
func Unlinkat(dir int, name string) error { return unix.Unlinkat(dir, name, 0) }

// ChmodOpen sets the mode of an open file by a descriptor that was opened with O_PATH: fchmod(2) refuses such
// a descriptor. It looks up no path that another process could change: a link of /proc/self/fd leads to the
// open file itself (proc_pid_fd(5), symlink(7) on magic links). ENOENT: there is no /proc.
func ChmodOpen(fd int, mode uint32) error { return unix.Chmod(OpenName(fd), mode) }

// Umask returns the file mode creation mask of the process from /proc/self/status (proc_pid_status(5), Linux
// 4.7). umask(2) cannot return it without changing it.
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

// OpenName returns a path that leads to the open file of a descriptor.
func OpenName(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// TerminalWidth returns the number of columns of the terminal behind fd, or 0 if the terminal does not know it.
// ENOTTY: fd is no terminal (ioctl_tty(2), TIOCGWINSZ).
func TerminalWidth(fd int) (int, error) {
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		return 0, os.NewSyscallError("ioctl TIOCGWINSZ", err)
	}
	return int(size.Col), nil
}
