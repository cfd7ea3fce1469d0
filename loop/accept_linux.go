package loop

import (
	"net/netip"
	"os"

	"github.com/penstock/penstock/internal/sys"
)

// checkListener refuses a descriptor on which accept4(2) could wait.
func checkListener(fd int) error {
	flags, err := sys.GetFl(fd)
	switch {
	case err != nil:
		return os.NewSyscallError("fcntl", err)
	case flags&sys.O_NONBLOCK == 0:
		return errBlocking
	}
	return nil
}

// accept returns the kernel's error number unwrapped.
func accept(fd int) (int, netip.AddrPort, error) { return sys.AcceptSocket(fd) }
