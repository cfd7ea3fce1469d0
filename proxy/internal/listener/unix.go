package listener

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/internal/file"
)

// answerTime is how long a process gets to answer on a path that is in the way.
const answerTime = time.Second

// listenUnix binds under a lock on the directory, so that of two processes that find the same
// stale path one gets it, and the other gets an error.
func (l *Listener) listenUnix(ctx context.Context) error {
	if l.addr.Abstract() {
		return l.bindUnix(ctx)
	}
	p, err := newUnixPath(l.addr.Name, l.cfg.Own)
	if err != nil {
		return err
	}
	if err = l.listenAt(ctx, p); err != nil {
		return errors.Join(err, p.close())
	}
	return nil
}

// listenAt listens at a path, which is the listener's unless there is an error.
func (l *Listener) listenAt(ctx context.Context, p *unixPath) error {
	unlock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = l.bindUnix(ctx)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err := p.removeStale(ctx); err != nil {
			return err
		}
		err = l.bindUnix(ctx)
	}
	if err != nil {
		return err
	}
	return l.take(p)
}

// bindUnix binds and listens. The path does not have its mode yet, but [beginning].
func (l *Listener) bindUnix(ctx context.Context) error {
	lc := net.ListenConfig{Control: l.restrict}
	ln, err := lc.Listen(ctx, "unix", l.addr.Name)
	if err != nil {
		return err
	}
	sock := ln.(*net.UnixListener)
	sock.SetUnlinkOnClose(false) // it would unlink whatever has the name by then
	l.sock = sock
	return nil
}

// take makes a path the listener's, which has just bound it, and gives it its mode. After an
// error the socket is closed.
func (l *Listener) take(p *unixPath) error {
	err := p.take(l.addr.Mode)
	if err == nil {
		l.path = p
		return nil
	}
	return errors.Join(err, p.remove(), l.sock.Close())
}

// inUse is the error for a path that is in the way and stays there.
func inUse(why error) error {
	return fmt.Errorf("%w, and cannot be taken over: %w", syscall.EADDRINUSE, cause(why))
}

// An unixPath is the name of a bound unix socket in the file system. The directory may belong
// to another user, who can put anything in the place of the socket, or of the directory, at
// any time. So nothing is done by name but bind(2), which follows no link in the place of the
// socket (net/unix/af_unix.c, unix_bind_bsd: it creates the file, or fails). Before a later
// change the file is opened, and changed only if it is the one that bind has created.
type unixPath struct {
	name string // in the directory

	mu   sync.Mutex
	dir  int      // owned, opened with O_PATH; -1 once it was closed
	file sys.File // identifies the bound file; zero before take
}

// newUnixPath opens the directory of a path. Another user may have it, unless own is set, and may not move it away.
func newUnixPath(name string, own bool) (*unixPath, error) {
	at, err := file.Beside(name)
	if err != nil {
		return nil, err
	}
	if err := at.Fixed(); err != nil { // bind(2) has the path alone
		return nil, errors.Join(err, at.Close())
	}
	if own {
		if err := at.Safe(); err != nil {
			return nil, errors.Join(err, at.Close())
		}
	}
	p := new(unixPath)
	p.dir, p.name = at.Take()
	return p, nil
}

// The modes that a path begins with, between bind(2) and the change to the configured one. The
// sticky bit, which means nothing on a socket, marks it meanwhile: a socket with that bit is
// one that this function's caller has just bound, or one without a listener whose process was
// killed right then. No user who is to be kept out is let in for a moment: it is the owner's
// alone. Without a mode it has the mode that bind(2) gives it, with the umask or the
// directory's default ACL.
const (
	beginsClosed = sys.S_ISVTX | 0o200
	beginsOpen   = sys.S_ISVTX | 0o777
)

// beginning is the mode that the path begins with which is to have another.
func beginning(mode fs.FileMode) uint32 {
	if mode == 0 {
		return beginsOpen
	}
	return beginsClosed
}

// restrict has bind(2) create the path with the mode that it begins with: that is the mode of
// the socket, less the umask (net/unix/af_unix.c, unix_bind_bsd).
func (l *Listener) restrict(_, _ string, conn syscall.RawConn) error {
	if l.addr.Abstract() {
		return nil
	}
	var err error
	ctlErr := conn.Control(func(fd uintptr) { err = sys.Fchmod(int(fd), beginning(l.addr.Mode)) })
	return errors.Join(ctlErr, os.NewSyscallError("fchmod", err))
}

// errNotOurs is the error for a name that leads to another file than the bound one.
var errNotOurs = errors.New("another process has put another file there")

// take finds the socket that was just bound, and gives it its mode, 0 for all permissions less
// the umask.
func (p *unixPath) take(mode fs.FileMode) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	fd, file, err := p.open()
	if err != nil {
		return err
	}
	defer sys.Close(fd)
	begins := beginning(mode)
	isNew := file.Mode&sys.S_IFMT == sys.S_IFSOCK && file.Mode&sys.S_ISVTX != 0 &&
		file.Mode&^sys.S_IFMT&^begins == 0 && file.UID == uint32(os.Geteuid())
	if !isNew {
		return errNotOurs
	}
	if mode == 0 {
		mode = fs.FileMode(file.Mode) & fs.ModePerm
	}
	p.file = file
	return os.NewSyscallError("chmod", sys.ChmodOpen(fd, uint32(mode)))
}

// open opens the file of that name, and describes it. A symbolic link is opened itself.
func (p *unixPath) open() (fd int, file sys.File, err error) {
	if p.dir < 0 {
		return -1, file, net.ErrClosed
	}
	fd, err = sys.Openat(p.dir, p.name, sys.O_PATH)
	if err != nil {
		return -1, file, os.NewSyscallError("openat", err)
	}
	if file, err = sys.Fstat(fd); err != nil {
		sys.Close(fd)
		return -1, file, os.NewSyscallError("fstat", err)
	}
	return fd, file, nil
}

// chmod changes the permissions; 0 is all permissions less the umask, as if it were bound now.
func (p *unixPath) chmod(mode fs.FileMode) error {
	if mode == 0 {
		umask, err := sys.Umask()
		if err != nil {
			return fmt.Errorf("umask: %w", err)
		}
		mode = fs.ModePerm &^ fs.FileMode(umask)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fd, file, err := p.open()
	if err != nil {
		return err
	}
	defer sys.Close(fd)
	if !file.Same(p.file) {
		return errNotOurs
	}
	return os.NewSyscallError("chmod", sys.ChmodOpen(fd, uint32(mode)))
}

// remove unlinks the path unless another file has the name by now, and closes the directory.
// The socket must still be open: it keeps the inode from being used again. A nil path, or one
// that was removed, is left alone.
func (p *unixPath) remove() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir < 0 {
		return nil
	}
	var err error
	file, cause := sys.Fstatat(p.dir, p.name)
	if cause == nil && file.Same(p.file) {
		err = os.NewSyscallError("unlinkat", sys.Unlinkat(p.dir, p.name))
	}
	return errors.Join(notThere(err), p.closeDirectory())
}

// gone reports whether no file has the name any more. A nil path is none that could be gone.
func (p *unixPath) gone() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir < 0 {
		return true
	}
	_, err := sys.Fstatat(p.dir, p.name)
	return errors.Is(err, fs.ErrNotExist)
}

// notThere is nil for the error that a file is gone.
func notThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// close closes the directory, and leaves its files alone. It may follow remove.
func (p *unixPath) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closeDirectory()
}

// closeDirectory closes the directory, once. p.mu is held.
func (p *unixPath) closeDirectory() error {
	if p.dir < 0 {
		return nil
	}
	fd := p.dir
	p.dir = -1
	return os.NewSyscallError("close", sys.Close(fd))
}

// removeStale removes a path that a process left behind. A path at which a process answers, or
// that is no socket, is in use.
func (p *unixPath) removeStale(ctx context.Context) error {
	fd, file, err := p.open()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	defer sys.Close(fd)
	if file.Mode&sys.S_IFMT != sys.S_IFSOCK {
		return fmt.Errorf("%w, by a file that is no socket", syscall.EADDRINUSE)
	}
	dialer := net.Dialer{Timeout: answerTime}
	conn, err := dialer.DialContext(ctx, "unix", sys.OpenName(fd)) // the very file, whatever has the name by now
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("%w, another process listens there", syscall.EADDRINUSE)
	case !errors.Is(err, syscall.ECONNREFUSED):
		return inUse(err)
	}
	if now, err := sys.Fstatat(p.dir, p.name); err != nil || !now.Same(file) {
		return nil // bind(2) reports what is there now
	}
	if err := notThere(sys.Unlinkat(p.dir, p.name)); err != nil {
		return inUse(err)
	}
	return nil
}

// lockTime is how long a directory may be locked by another process, which needs it for a
// moment; lockPause is the time between two looks.
const (
	lockTime  = time.Second
	lockPause = 5 * time.Millisecond
)

// lock locks the directory against others that use this function. One that may not be read
// goes unlocked, and so does one that stays locked: every user who may read it can lock it for
// ever.
func (p *unixPath) lock(ctx context.Context) (unlock func() error, err error) {
	fd, err := sys.Openat(p.dir, ".", sys.O_DIRECTORY)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return func() error { return nil }, nil
	case err != nil:
		return nil, os.NewSyscallError("openat", err)
	}
	unlock = func() error { return sys.Close(fd) }
	end := time.Now().Add(lockTime)
	for {
		err := sys.Flock(fd, sys.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil, err == syscall.EWOULDBLOCK && time.Now().After(end):
			return unlock, nil
		case err != syscall.EWOULDBLOCK && err != syscall.EINTR:
			return nil, errors.Join(os.NewSyscallError("flock", err), unlock())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), unlock())
		case <-time.After(lockPause):
		}
	}
}
