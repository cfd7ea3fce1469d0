package upstream

import (
	"os"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// bindLate lets bind(2) choose no port, but connect(2), which knows the peer: there
// may be as many connections to each target as there are ports
// (IP_BIND_ADDRESS_NO_PORT, ip(7)).
func bindLate(c syscall.RawConn) error {
	var err error
	cause := c.Control(func(fd uintptr) {
		err = sys.SetsockoptInt(int(fd), sys.IPPROTO_IP, sys.IP_BIND_ADDRESS_NO_PORT, 1)
	})
	if cause != nil {
		return cause
	}
	return os.NewSyscallError("setsockopt", err)
}
