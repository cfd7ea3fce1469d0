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
)

// answerTime is how long a process gets to answer on a path that is in the way.
const answerTime = time.Second

// listenUnix binds under a lock on the directory, so that of two processes that
// find the same stale path one gets it, and the other is told so.
func (l *Listener) listenUnix(ctx context.Context) error {
	if l.addr.Abstract() {
		return l.bindUnix(ctx)
	}
	unlock, err := lock(ctx, filepath.Dir(l.addr.Name))
	if err != nil {
		return err
	}
	defer unlock()
	err = l.bindUnix(ctx)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	if err := removeStale(ctx, l.addr.Name); err != nil {
		return err
	}
	return l.bindUnix(ctx)
}

// bindUnix binds, listens, and gives the path its mode.
func (l *Listener) bindUnix(ctx context.Context) error {
	lc := net.ListenConfig{Control: l.restrict}
	ln, err := lc.Listen(ctx, "unix", l.addr.Name)
	if err != nil {
		return err
	}
	sock := ln.(*net.UnixListener)
	sock.SetUnlinkOnClose(false) // it would unlink whatever has the name by then
	l.sock = sock
	if l.addr.Abstract() {
		return nil
	}
	if l.path, err = newPath(l.addr.Name); err == nil && l.addr.Mode != 0 {
		err = os.Chmod(l.addr.Name, l.addr.Mode) // which the umask does not narrow
	}
	if err != nil {
		return errors.Join(err, l.path.remove(), sock.Close())
	}
	return nil
}

// removeStale removes a path that a process left behind. A path on which somebody
// answers, or that is no socket, is in use.
func removeStale(ctx context.Context, name string) error {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%w, by a file that is no socket", syscall.EADDRINUSE)
	}
	dialer := net.Dialer{Timeout: answerTime}
	conn, err := dialer.DialContext(ctx, "unix", name)
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("%w, somebody answers there", syscall.EADDRINUSE)
	case errors.Is(err, syscall.ECONNREFUSED):
		err = os.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w, and cannot be taken over: %w", syscall.EADDRINUSE, cause(err))
	}
	return nil
}

// A path is the name of a bound unix socket in the file system.
type path struct {
	name string
	info fs.FileInfo // says whether it is still ours
	once sync.Once
	err  error
}

func newPath(name string) (*path, error) {
	info, err := os.Lstat(name)
	return &path{name: name, info: info}, err
}

// chmod changes its permissions, unless somebody else has it by now.
func (p *path) chmod(mode fs.FileMode) error {
	info, err := os.Lstat(p.name)
	if err != nil || !os.SameFile(info, p.info) {
		return err
	}
	return os.Chmod(p.name, mode)
}

// remove unlinks the path unless somebody else has it by now. The socket must
// still be open: it keeps the inode from being used again. A nil path, or one
// that was removed, is left alone.
func (p *path) remove() error {
	if p == nil {
		return nil
	}
	p.once.Do(func() {
		info, err := os.Lstat(p.name)
		if err != nil || !os.SameFile(info, p.info) {
			return
		}
		if err := os.Remove(p.name); !errors.Is(err, fs.ErrNotExist) {
			p.err = err
		}
	})
	return p.err
}
