package listener

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// restrict keeps the path from being wider than asked for between bind(2) and
// chmod(2): bind gives it the mode of the socket, less the umask.
func (l *Listener) restrict(_, _ string, conn syscall.RawConn) error {
	if l.addr.Mode == 0 {
		return nil
	}
	var err error
	ctlErr := conn.Control(func(fd uintptr) { err = sys.Fchmod(int(fd), uint32(l.addr.Mode)) })
	return errors.Join(ctlErr, os.NewSyscallError("fchmod", err))
}

// lock locks a directory against others that use this function. One that may not
// be read goes unlocked.
func lock(dir string) (unlock func() error, err error) {
	f, err := os.Open(dir)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return func() error { return nil }, nil
	case err != nil:
		return nil, err
	}
	for {
		err := sys.Flock(int(f.Fd()), sys.LOCK_EX)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			f.Close()
			return nil, os.NewSyscallError("flock", err)
		}
		return f.Close, nil
	}
}
