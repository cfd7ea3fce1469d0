//go:build !linux

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
)

// restrict does nothing: here a path has the mode that the umask leaves.
func (l *Listener) restrict(_, _ string, _ syscall.RawConn) error { return nil }

// A path is the name of a bound unix socket in the file system.
type path struct {
	name string
	info fs.FileInfo // says whether it is still ours; nil before take
	once sync.Once
	err  error
}

func newPath(name string) (*path, error) { return &path{name: name}, nil }

// take notes what was bound.
func (p *path) take(mode fs.FileMode) (err error) {
	if mode != 0 {
		return p.chmod(mode)
	}
	p.info, err = os.Lstat(p.name)
	return err
}

// chmod fails: it would follow a symbolic link that somebody else has put there.
func (p *path) chmod(fs.FileMode) error {
	return fmt.Errorf("the mode of a path: %w", errors.ErrUnsupported)
}

// remove unlinks the path unless somebody else has it by now. A nil path, or one that was
// removed, is left alone.
func (p *path) remove() error {
	if p == nil {
		return nil
	}
	p.once.Do(func() {
		info, err := os.Lstat(p.name)
		if err != nil || p.info != nil && !os.SameFile(info, p.info) {
			return
		}
		if err := os.Remove(p.name); !errors.Is(err, fs.ErrNotExist) {
			p.err = err
		}
	})
	return p.err
}

// close does nothing: nothing is open.
func (p *path) close() error { return nil }

// removeStale removes a path that a process left behind. A path on which somebody
// answers, or that is no socket, is in use.
func (p *path) removeStale(ctx context.Context) error {
	info, err := os.Lstat(p.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%w, by a file that is no socket", syscall.EADDRINUSE)
	}
	dialer := net.Dialer{Timeout: answerTime}
	conn, err := dialer.DialContext(ctx, "unix", p.name)
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("%w, somebody answers there", syscall.EADDRINUSE)
	case errors.Is(err, syscall.ECONNREFUSED):
		err = os.Remove(p.name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return inUse(err)
	}
	return nil
}

// lock locks nothing: two processes that take over the same path at the same time
// may both believe to have it.
func (p *path) lock(context.Context) (unlock func() error, err error) {
	return func() error { return nil }, nil
}
