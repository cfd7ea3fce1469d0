package loop

import (
	"os"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// A netpollWake makes the runtime look at its poller: a goroutine that waits there for a ready
// descriptor is found by the same look as all the others. Until then goroutines that are ready
// run.
type netpollWake struct {
	file    *os.File // an eventfd, owned; nil until it is needed
	raw     syscall.RawConn
	once    func(fd uintptr) (done bool) // made once
	knocked bool
}

// wait returns when the runtime has looked. It does nothing if there is no descriptor to
// be had.
func (k *netpollWake) wait() {
	if k.file == nil && k.open() != nil {
		return
	}
	k.knocked = false
	_ = k.raw.Read(k.once) // it fails only for files that cannot wait
}

func (k *netpollWake) open() error {
	fd, err := sys.Eventfd()
	if err != nil {
		return err
	}
	k.file = os.NewFile(uintptr(fd), "eventfd")
	if k.raw, err = k.file.SyscallConn(); err != nil {
		return err
	}
	k.once = func(fd uintptr) bool {
		if k.knocked {
			return true
		}
		k.knocked = true
		wake(int(fd)) // an edge, also as it is never read
		return false
	}
	return nil
}

func (k *netpollWake) close() error {
	if k.file == nil {
		return nil
	}
	err := k.file.Close()
	k.file = nil
	return err
}
