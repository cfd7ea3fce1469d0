package sys

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrLink is wrapped by the error of a path with a symbolic link that is not followed.
var ErrLink = errors.New("the path has another user's symbolic link")

// AtFile calls use with a name for the file at a path, which leads to this file even if another user changes the path
// meanwhile. A symbolic link is followed only if it belongs to root, to the user of this process or to the owner of the file;
// otherwise the error wraps [ErrLink]. Without /proc the name is the path itself, which another user could still change. A path
// that begins with @ is a name of the abstract namespace.
func AtFile(path string, use func(name string) error) error {
	if strings.HasPrefix(path, "@") {
		return use(path)
	}
	fd, err := openFile(path)
	if err != nil {
		return err
	}
	defer Close(fd)
	if err = use(OpenName(fd)); errors.Is(err, syscall.ENOENT) && unix.Access("/proc/self/fd", unix.F_OK) != nil {
		err = use(path)
	}
	return err
}

// openFile opens the file at a path with O_PATH. Few paths have links, and one call finds this out; before Linux 5.6 it
// does not exist, and a filter of system calls may refuse it.
func openFile(path string) (fd int, err error) {
	fd, err = unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	switch err {
	case syscall.ELOOP, syscall.ENOSYS, syscall.EPERM:
		return openThroughLinks(path)
	}
	return max(fd, -1), err
}

func openThroughLinks(path string) (fd int, err error) {
	root, err := Stat("/")
	if err != nil {
		return -1, err
	}
	w := walk{at: -1, root: root.UID}
	if err := w.follow(path); err != nil {
		w.hold(-1)
		return -1, err
	}
	return w.at, nil
}

// A walk goes along a path as the kernel does (path_resolution(7)). It opens a link before it judges and reads it, because
// the link's owner can replace it at any time.
type walk struct {
	at      int    // owned, opened with O_PATH: how far it has come
	root    uint32 // the owner of the root directory: in a user namespace root may have no ID
	foreign bool   // it has followed a link of another user
	owner   uint32 // of this link
}

// hold takes a descriptor in place of the one before.
func (w *walk) hold(fd int) {
	if w.at >= 0 {
		Close(w.at)
	}
	w.at = fd
}

func (w *walk) begin(path string) error {
	first := "."
	if strings.HasPrefix(path, "/") {
		first = "/"
	}
	fd, err := OpenDirectory(first)
	w.hold(fd)
	return err
}

func (w *walk) follow(path string) error {
	if err := w.begin(path); err != nil {
		return err
	}
	for links := 0; ; {
		name, rest, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
		if name == "" {
			is, err := Fstat(w.at)
			if err == nil && w.foreign && is.UID != w.owner {
				err = w.refusal(is.UID)
			}
			return err
		}
		fd, err := Openat(w.at, name, O_PATH)
		if err != nil {
			return err
		}
		is, err := Fstat(fd)
		if err != nil || is.Mode&S_IFMT != S_IFLNK {
			if w.hold(fd); err != nil {
				return err
			}
			path = rest
			continue
		}
		to, err := w.target(fd, name, is.UID)
		if Close(fd); err != nil {
			return err
		}
		if links++; links > 40 { // MAXSYMLINKS of include/linux/namei.h
			return syscall.ELOOP
		}
		if path = to + "/" + rest; strings.HasPrefix(to, "/") {
			if err := w.begin(to); err != nil {
				return err
			}
		}
	}
}

// target returns what a link leads to. A link of procfs is followed by the kernel, because its text may be another path
// (proc_pid_root(5)).
func (w *walk) target(link int, name string, owner uint32) (string, error) {
	if owner != 0 && owner != w.root && int(owner) != os.Geteuid() {
		if w.foreign && owner != w.owner {
			return "", w.refusal(owner)
		}
		w.foreign, w.owner = true, owner
	}
	if !IsProc(w.at) {
		return Readlinkat(link, "")
	}
	fd, err := OpenMagic(w.at, name, O_PATH)
	if err == nil {
		w.hold(fd)
	}
	return "", err
}

func (w *walk) refusal(other uint32) error {
	return fmt.Errorf("%w: it belongs to uid %d, and what it leads to belongs to uid %d: remove the link, or write another path", ErrLink, w.owner, other)
}
