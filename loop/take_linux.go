package loop

import (
	"os"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// duplicate makes a non-blocking duplicate of a descriptor of the runtime's.
func duplicate(c syscall.Conn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	controlErr := raw.Control(func(own uintptr) {
		fd, err = sys.Dup(int(own))
		err = os.NewSyscallError("fcntl", err)
	})
	if controlErr != nil {
		return -1, controlErr
	}
	if err != nil {
		return -1, err
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // a file may be blocking
		closeSocket(fd)
		return -1, os.NewSyscallError("fcntl", err)
	}
	return fd, nil
}
