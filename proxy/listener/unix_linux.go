package listener

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

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

// lockTime is how long a directory may be locked by somebody else, who needs it
// for a moment; lockPause is the time between two looks.
const (
	lockTime  = time.Second
	lockPause = 5 * time.Millisecond
)

// lock locks a directory against others that use this function. One that may not
// be read goes unlocked, and so does one that stays locked: everybody who may read
// it can lock it for ever.
func lock(ctx context.Context, dir string) (unlock func() error, err error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return func() error { return nil }, nil
	case err != nil:
		return nil, err
	}
	end := time.Now().Add(lockTime)
	for {
		err := sys.Flock(int(f.Fd()), sys.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil, err == syscall.EWOULDBLOCK && time.Now().After(end):
			return f.Close, nil
		case err != syscall.EWOULDBLOCK && err != syscall.EINTR:
			f.Close()
			return nil, os.NewSyscallError("flock", err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(lockPause):
		}
	}
}
