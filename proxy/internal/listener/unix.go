package listener

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/sockopt"
)

// answerTime is how long a process has to answer at a path that is in the way.
const answerTime = time.Second

// listenUnix gives up a file system that does not answer. A socket that is bound later is closed.
func (l *Listener) listenUnix(ctx context.Context) error {
	if l.addr.Abstract() {
		return l.bindUnix(ctx)
	}
	return l.change(func() error { return l.listenPath(ctx) }, func(struct{}) { _ = errors.Join(l.path.remove(), l.sock.Close()) })
}

// Ask looks at the path of a unix socket, for a caller that will listen there and must not wait then: while the file system
// does not answer, [Listen] fails at once.
func Ask(addr sockopt.Address) {
	l := Listener{addr: addr}
	if !l.TCP() && !addr.Abstract() {
		_ = l.change(func() error { _, err := os.Lstat(addr.Name); return err }, nil)
	}
}

// change lets f change the path, as [file.Change] does. Paths in one directory count as one: a file system that hangs
// may have many.
func (l *Listener) change(f func() error, late func(struct{})) error {
	_, err := file.Change(filepath.Dir(l.addr.Name), func() (struct{}, error) { return struct{}{}, f() }, late)
	return err
}

// listenPath binds under a lock on the directory: if two processes find the same stale path, one gets it, and the
// other gets an error.
func (l *Listener) listenPath(ctx context.Context) error {
	p, err := newUnixPath(l.addr.Name, l.cfg.Own)
	if err != nil {
		return err
	}
	if err = l.listenAt(ctx, p); err != nil {
		return errors.Join(err, p.close())
	}
	return nil
}

// listenAt listens at a path. The path belongs to the listener unless there is an error.
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

// bindUnix binds and listens. The path still has the mode of [beginning].
func (l *Listener) bindUnix(ctx context.Context) error {
	lc := net.ListenConfig{Control: l.restrict}
	ln, err := lc.Listen(ctx, "unix", l.addr.Name)
	if err != nil {
		return err
	}
	sock := ln.(*net.UnixListener)
	sock.SetUnlinkOnClose(false) // it would unlink whichever file has the name by then
	l.sock = sock
	return nil
}

// take gives the path that was just bound to the listener, and sets its mode. After an error the socket is closed.
func (l *Listener) take(p *unixPath) error {
	err := p.take(l.addr.Mode)
	if err == nil {
		l.path = p
		return nil
	}
	return errors.Join(err, p.remove(), l.sock.Close())
}

// inUse returns the error for a path that cannot be taken over.
func inUse(why error) error {
	return fmt.Errorf("%w, and cannot be taken over: %w", syscall.EADDRINUSE, cause(why))
}

// A unixPath is the name of a bound unix socket in the file system. The directory may belong to another user, who can
// replace the socket or the directory at any time. So only bind(2) uses the name; it does not follow a link in the
// place of the socket (net/unix/af_unix.c, unix_bind_bsd: it creates the file, or fails). A later change opens the
// file first, and changes it only if it is the file that bind created.
type unixPath struct {
	name string // in the directory

	mu   sync.Mutex
	dir  int      // owned, opened with O_PATH; -1 after close
	file sys.File // identifies the bound file; zero before take
}

// newUnixPath opens the directory of a path. Another user may own the directory, unless own is set, but no third user may
// move it away or replace its files.
func newUnixPath(name string, own bool) (*unixPath, error) {
	at, err := file.Beside(name)
	if err != nil {
		return nil, err
	}
	if err := at.Fixed(); err != nil { // bind(2) takes nothing but a path
		return nil, errors.Join(err, at.Close())
	}
	if own || at.Shared() {
		if err := at.Safe(); err != nil {
			return nil, errors.Join(err, at.Close())
		}
	}
	p := new(unixPath)
	p.dir, p.name = at.Take()
	return p, nil
}

// The modes of a path between bind(2) and the change to the configured mode. Until then the sticky bit, which has no
// meaning for a socket, marks the path: a socket with this bit was just bound by the caller of this function, or
// belongs to a process that was killed at this moment, and has no listener. Until the change only the owner has
// access, so nobody gets in too early. Without a configured mode the path has the mode that bind(2) gives it, from
// the umask or the directory's default ACL.
const (
	beginsClosed = sys.S_ISVTX | 0o200
	beginsOpen   = sys.S_ISVTX | 0o777
)

// beginning returns the mode that a path has until it gets the configured mode.
func beginning(mode fs.FileMode) uint32 {
	if mode == 0 {
		return beginsOpen
	}
	return beginsClosed
}

// restrict makes bind(2) create the path with its first mode: the mode of the socket less the umask
// (net/unix/af_unix.c, unix_bind_bsd).
func (l *Listener) restrict(_, _ string, conn syscall.RawConn) error {
	if l.addr.Abstract() {
		return nil
	}
	var err error
	ctlErr := conn.Control(func(fd uintptr) { err = sys.Fchmod(int(fd), beginning(l.addr.Mode)) })
	return errors.Join(ctlErr, os.NewSyscallError("fchmod", err))
}

// errNotOurs means that the name leads to a file other than the bound socket.
var errNotOurs = errors.New("another process has put another file at this path")

// take finds the socket that was just bound, and sets its mode. 0 means all permissions less the umask.
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

// open opens and describes the file with the path's name. It opens a symbolic link itself, not its target.
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

// chmod changes the permissions. 0 means all permissions less the umask, as if the socket were bound now.
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

// remove unlinks the path unless another file has the name now, and closes the directory. The socket must still be
// open, or the inode could be used again. remove does nothing after an earlier remove.
func (p *unixPath) remove() error {
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

// gone reports whether no file, or another one, has the name now.
func (p *unixPath) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir < 0 {
		return true
	}
	file, err := sys.Fstatat(p.dir, p.name)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !file.Same(p.file)
}

// notThere turns the error that a file does not exist into nil.
func notThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// close closes the directory, and leaves the files in it alone. It may be called after remove.
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

// removeStale removes a path that a process left behind. If a process answers there, or the file is not a socket, the
// path is in use.
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
		return fmt.Errorf("%w: the path is a file that is not a socket", syscall.EADDRINUSE)
	}
	dialer := net.Dialer{Timeout: answerTime}
	conn, err := dialer.DialContext(ctx, "unix", sys.OpenName(fd)) // this very file, even if the name has changed hands
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("%w, a process listens there", syscall.EADDRINUSE)
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

// lockTime is how long another process may have the directory locked. It needs the lock only for a moment. lockPause
// is the time between two attempts.
const (
	lockTime  = time.Second
	lockPause = 5 * time.Millisecond
)

// lock locks the directory against other callers. A directory that may not be read is not locked, and neither is a
// directory that stays locked: every user who may read it could keep it locked for ever.
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
