package file

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// ErrUnsafe is wrapped by the error of a path at which another user has a say, so that it may lead elsewhere.
var ErrUnsafe = errors.New("another user could replace it")

// A Place is where a file is written: a directory, and the name in it. Another user who may write near the path cannot
// lead a [Place] elsewhere: the directory is open, and a symbolic link on the way to it is followed only if it belongs
// to root or to the user of this process. Make it with [At] or [Beside], and close it.
type Place struct {
	path  string
	dir   int      // owned, opened with O_PATH; -1 once it was closed
	is    sys.File // the directory
	name  string   // in the directory
	proc  bool     // the name is in procfs, such as the name of a descriptor
	chain error    // why another user could move the directory away; nil: none could
	owner uint32   // of the root directory: in a user namespace root may have no ID
}

// maxLinks is how many links of a path are followed, as by the kernel (path_resolution(7)).
const maxLinks = 40

// At returns the place of a path. If a link has that name, it is the place of what the link leads to.
func At(path string) (*Place, error) { return at(path, true) }

// Beside is At without a look at the name: a link of that name is not followed.
func Beside(path string) (*Place, error) { return at(path, false) }

func at(path string, final bool) (*Place, error) {
	p := &Place{path: path, dir: -1}
	err := p.walk(path, final)
	if err == nil {
		p.is, err = sys.Fstat(p.dir)
	}
	if err != nil {
		return nil, errors.Join(p.fault(err), p.Close())
	}
	return p, nil
}

// fault is an error with the path.
func (p *Place) fault(err error) error {
	if errors.As(err, new(*fs.PathError)) {
		return err
	}
	return &fs.PathError{Op: "open", Path: p.path, Err: err}
}

// Close closes the directory. It may be called again.
func (p *Place) Close() error {
	fd := p.dir
	if p.dir = -1; fd < 0 {
		return nil
	}
	return sys.Close(fd)
}

// Take passes the descriptor of the directory, which was opened with O_PATH, and the name in it to the caller, who owns it.
func (p *Place) Take() (dir int, name string) {
	dir, p.dir = p.dir, -1
	return dir, p.name
}

// walk opens the directory of a path.
func (p *Place) walk(path string, final bool) error {
	if path == "" {
		return syscall.ENOENT
	}
	root, err := sys.Stat("/")
	if err != nil {
		return err
	}
	p.owner = root.UID
	if err := p.begin(path); err != nil {
		return err
	}
	rest, links := strings.Split(path, "/"), 0
	for len(rest) > 0 {
		name, last := rest[0], strings.Trim(strings.Join(rest[1:], ""), "/") == ""
		if rest = rest[1:]; name == "" || name == "." {
			continue
		}
		file, err := sys.Fstatat(p.dir, name)
		if last && (!final || err != nil || file.Mode&sys.S_IFMT != sys.S_IFLNK) {
			p.name = name
			if errors.Is(err, fs.ErrNotExist) || !final {
				err = nil
			}
			return err
		}
		switch {
		case err != nil:
			return err
		case file.Mode&sys.S_IFMT != sys.S_IFLNK:
			if err := p.enter(name); err != nil {
				return err
			}
			continue
		case last && sys.IsProc(p.dir):
			p.name, p.proc = name, true
			return nil
		case !p.trusts(file.UID):
			return fmt.Errorf("%w: %s in the path is a link of uid %d: remove the link, or write a path without it", ErrUnsafe, name, file.UID)
		}
		if links++; links > maxLinks {
			return syscall.ELOOP
		}
		to, err := sys.Readlinkat(p.dir, name)
		if err == nil {
			err = p.through(name)
		}
		if err != nil {
			return err
		}
		if strings.HasPrefix(to, "/") {
			if err := p.begin(to); err != nil {
				return err
			}
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return syscall.EISDIR
}

func (p *Place) begin(path string) error {
	from := "."
	if strings.HasPrefix(path, "/") {
		from = "/"
	}
	fd, err := sys.OpenDirectory(from)
	if err != nil {
		return err
	}
	return p.hold(fd)
}

// enter goes on to a directory of a name, which is no link.
func (p *Place) enter(name string) error {
	if err := p.through(name); err != nil {
		return err
	}
	fd, err := sys.Openat(p.dir, name, sys.O_PATH|sys.O_DIRECTORY)
	if err != nil {
		return err
	}
	return p.hold(fd)
}

// through notes whether another user may have the path lead elsewhere from here on, by another file of that name.
func (p *Place) through(name string) error {
	is, err := sys.Fstat(p.dir)
	switch {
	case p.chain != nil || err != nil:
	case shared(is):
		p.chain = fmt.Errorf("%w: every user may write in a directory above it (mode %04o), and exchange %s: chmod o-w, or write another path", ErrUnsafe, is.Mode&0o7777, name)
	case !p.trusts(is.UID):
		p.chain = fmt.Errorf("%w: uid %d owns a directory above it, and could exchange %s: write a path in directories of %s", ErrUnsafe, is.UID, name, trusted())
	}
	return err
}

// trusted names the users whom trusts trusts.
func trusted() string {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Sprintf("root or uid %d", uid)
	}
	return "root"
}

// hold takes a descriptor in place of the one before.
func (p *Place) hold(fd int) error {
	err := p.Close()
	p.dir = fd
	return err
}

// trusts reports whether a user may lead this process elsewhere: root, and its own user.
func (p *Place) trusts(uid uint32) bool {
	return uid == 0 || uid == p.owner || int(uid) == os.Geteuid()
}

// unsafe returns why another user may replace the files of a directory.
func (p *Place) unsafe(dir sys.File) error {
	switch {
	case shared(dir):
		return fmt.Errorf("%w: every user may write in its directory (mode %04o): chmod o-w, or write a path in another directory", ErrUnsafe, dir.Mode&0o7777)
	case !p.trusts(dir.UID):
		return fmt.Errorf("%w: its directory belongs to uid %d: write a path in a directory of %s, or chown this directory", ErrUnsafe, dir.UID, trusted())
	}
	return nil
}

func shared(dir sys.File) bool { return dir.Mode&0o002 != 0 && dir.Mode&sys.S_ISVTX == 0 }

// Shared reports whether every user may replace the files of the directory.
func (p *Place) Shared() bool { return shared(p.is) }

// Safe returns why another user may put another file in the place of this one; nil: none may.
func (p *Place) Safe() error {
	if err := p.unsafe(p.is); err != nil && !p.proc {
		return p.fault(err)
	}
	return nil
}

// Several users may write a file: every user of this machine, or users that cannot be found out.
const Several = -1

// Foreign returns why another user may change the file of a path, or put another one in its place, and this user or
// [Several]: the error wraps [ErrUnsafe]. nil: none may, or it cannot be found out.
func Foreign(path string) (writer int, why error) {
	type finding struct {
		writer int
		why    error
	}
	found, _ := Within(path, func() finding {
		p, err := At(path)
		if err != nil {
			return finding{Several, err}
		}
		defer p.Close()
		is, err := sys.Fstatat(p.dir, p.name)
		switch {
		case err == nil && is.Mode&0o002 != 0 && !p.proc:
			return finding{Several, p.fault(fmt.Errorf("%w: every user may write it (mode %04o): chmod o-w", ErrUnsafe, is.Mode&0o7777))}
		case p.Shared():
			return finding{Several, p.Safe()}
		case err == nil && !p.trusts(is.UID):
			return finding{int(is.UID), p.fault(fmt.Errorf("%w: it belongs to uid %d: chown it to %s", ErrUnsafe, is.UID, trusted()))}
		}
		if why := p.Safe(); why != nil {
			return finding{int(p.is.UID), why}
		}
		if !p.proc && (err == nil && p.grouped(p.name, is) || p.is.Mode&sys.S_ISVTX == 0 && p.grouped(".", p.is)) {
			return finding{Several, p.fault(fmt.Errorf("%w: a group, or an entry of an ACL, may write it or its directory: chmod g-w, or setfacl -b", ErrUnsafe))}
		}
		return finding{}
	})
	if errors.Is(found.why, ErrUnsafe) {
		return found.writer, found.why
	}
	return 0, nil
}

// Fixed returns why another user could have the path lead to another directory later; nil: none can.
func (p *Place) Fixed() error {
	if p.chain != nil {
		return p.fault(p.chain)
	}
	return nil
}

// grouped reports whether another group than root's and this process's may write to a file of the directory, or somebody else
// by its ACL.
func (p *Place) grouped(name string, is sys.File) bool {
	return is.Mode&0o020 != 0 && (is.GID != 0 && int(is.GID) != os.Getegid() || sys.HasACL(p.dir, name))
}

// Open opens the file of the place, as [sys.OpenFileAt] does. If others may make files in the directory, the file must belong to
// root or this user, and have no other name. The caller owns the descriptor.
func (p *Place) Open(flags int, mode uint32) (fd int, err error) {
	if err := p.Safe(); err != nil {
		return -1, err
	}
	if err := p.named(); err != nil {
		return -1, err
	}
	if p.proc {
		fd, err = sys.OpenMagic(p.dir, p.name, flags&^(syscall.O_CREAT|syscall.O_EXCL|syscall.O_TRUNC))
	} else {
		fd, err = sys.OpenFileAt(p.dir, p.name, flags, mode)
	}
	if err != nil {
		return -1, p.fault(err)
	}
	is, err := sys.Fstat(fd)
	if err == nil {
		err = p.judge(is)
	}
	if err != nil {
		return -1, errors.Join(p.fault(err), sys.Close(fd))
	}
	return fd, nil
}

// Refused returns why this process does not write the file of a path, or make a socket there, because another user has a say; nil: it
// does, or it cannot be found out. A directory of another user is no reason: the process may run as that user.
func Refused(path string, socket bool) error {
	why, _ := Within(path, func() error {
		find := At
		if socket {
			find = Beside
		}
		p, err := find(path)
		if err != nil {
			return err
		}
		defer p.Close()
		if socket {
			return p.Fixed()
		}
		return p.named()
	})
	if errors.Is(why, ErrUnsafe) {
		return why
	}
	return nil
}

// named returns why the file that has the name now is not to be written to. It may be another file when it is opened.
func (p *Place) named() error {
	is, err := sys.Fstatat(p.dir, p.name)
	if err == nil {
		err = p.judge(is)
	}
	if errors.Is(err, ErrUnsafe) {
		return p.fault(err)
	}
	return nil // opening it has the other errors
}

// Names reports whether the place has the file of this descriptor, and not another one or none.
func (p *Place) Names(fd int) (bool, error) {
	is, err := sys.Fstat(fd)
	if err != nil {
		return false, p.fault(err)
	}
	named, err := sys.Fstatat(p.dir, p.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, p.fault(err)
	}
	return named.Same(is), nil
}

// judge returns why a file of the directory is not to be written to.
func (p *Place) judge(file sys.File) error {
	switch {
	case p.proc || p.is.Mode&0o022 == 0:
	case p.is.Mode&0o002 != 0 && !p.trusts(file.UID) && file.Mode&sys.S_IFMT == sys.S_IFSOCK:
		return fmt.Errorf("%w: it belongs to uid %d, and every user may write in its directory: remove the socket, or name a socket of %s", ErrUnsafe, file.UID, trusted())
	case p.is.Mode&0o002 != 0 && !p.trusts(file.UID):
		return fmt.Errorf("%w: it belongs to uid %d, and every user may write in its directory: remove the file", ErrUnsafe, file.UID)
	case file.Mode&sys.S_IFMT == sys.S_IFREG && file.Links > 1:
		return fmt.Errorf("%w: it has %d hard links, and another user may have made one of them: remove the file", ErrUnsafe, file.Links)
	}
	return nil
}

// Rename gives the file another name in the directory.
func (p *Place) Rename(name string) error {
	if err := sys.Renameat(p.dir, p.name, name); err != nil {
		return &os.LinkError{Op: "rename", Old: p.path, New: name, Err: err}
	}
	return nil
}

// Replace makes the file, or replaces it at once by a file that is complete on the disk. keep is called with the new file
// before it gets its name, to change its owner or mode, which is 0600; nil: it is not. Nothing is written through a link,
// even in a directory of another user: where that matters, ask [Place.Safe] first.
func (p *Place) Replace(data []byte, keep func(*os.File) error) error {
	return p.replace(data, keep, func(temp string) error { return sys.Renameat(p.dir, temp, p.name) })
}

// Edit replaces the contents before by the contents after, as [Place.Replace] does. A file that another program has
// changed stays, and Edit fails.
func (p *Place) Edit(before, after []byte, keep func(*os.File) error) error {
	return p.replace(after, keep, func(temp string) error {
		if !bytes.Equal(p.contents(p.name), before) {
			return p.changed()
		}
		return p.exchange(temp, before, after)
	})
}

// exchange gives the place's name to the file temp, which has the contents after. The file that had the name gets it
// back if its contents differ from before.
func (p *Place) exchange(temp string, before, after []byte) error {
	var changed error
	for expected, put := before, after; ; {
		switch err := sys.Exchange(p.dir, temp, p.name); {
		case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOSYS):
			return sys.Renameat(p.dir, temp, p.name)
		case err != nil:
			return err
		}
		out := p.contents(temp)
		if bytes.Equal(out, expected) {
			return changed
		}
		expected, put, changed = put, out, p.changed() // if a still later file comes out next time, it gets the name back
	}
}

func (p *Place) changed() error {
	return &fs.PathError{Op: "replace", Path: p.path, Err: errors.New("another program changed it meanwhile: look at it, and try again")}
}

// contents returns the contents of a file of the directory, or nil if it cannot be read.
func (p *Place) contents(name string) []byte {
	fd, err := sys.OpenFileAt(p.dir, name, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	data, _ := readAll(os.NewFile(uintptr(fd), p.path), p.path, math.MaxInt32)
	return data
}

// replace makes a file that is complete on the disk, and calls put to give it the place's name.
func (p *Place) replace(data []byte, keep func(*os.File) error, put func(temp string) error) error {
	temp := "." + p.name + "." + rand.Text()
	fd, err := sys.OpenFileAt(p.dir, temp, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL, 0o600)
	if err != nil {
		return p.fault(err)
	}
	f := os.NewFile(uintptr(fd), p.path)
	defer sys.Unlinkat(p.dir, temp) // unless it has got the place's name
	if _, err = f.Write(data); err == nil && keep != nil {
		err = keep(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = put(temp)
	}
	if err != nil {
		return p.fault(err)
	}
	return p.sync()
}

// sync writes the names of the directory to the disk.
func (p *Place) sync() error {
	fd, err := sys.Openat(p.dir, ".", sys.O_DIRECTORY)
	if err != nil {
		return p.fault(err)
	}
	d := os.NewFile(uintptr(fd), p.path)
	return errors.Join(d.Sync(), d.Close())
}

// Append opens a file, FIFO or terminal to append to it, without waiting (O_NONBLOCK). If it is not there, a file is
// made with that mode. ENXIO: no process reads the FIFO (fifo(7)). The error of a path at which another user has a
// say wraps [ErrUnsafe]. The caller owns the descriptor.
func Append(path string, mode uint32) (fd int, err error) {
	p, err := At(path)
	if err != nil {
		return -1, err
	}
	defer p.Close()
	return p.Open(syscall.O_WRONLY|syscall.O_APPEND|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CREAT, mode)
}

// Write replaces the file of a path, which then has that mode. A device, a FIFO or a descriptor is written to.
func Write(path string, data []byte, mode fs.FileMode) error {
	p, err := At(path)
	if err != nil {
		return err
	}
	defer p.Close()
	if is, err := sys.Fstatat(p.dir, p.name); p.proc || err == nil && is.Mode&sys.S_IFMT != sys.S_IFREG {
		fd, err := p.Open(syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0) // ENXIO: no process reads the FIFO
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), path)
		_, err = f.Write(data)
		return errors.Join(err, f.Close())
	}
	return p.Replace(data, func(f *os.File) error { return f.Chmod(mode) })
}
