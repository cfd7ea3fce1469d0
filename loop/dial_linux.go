package loop

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// openSocket makes a socket that is ready to connect. Unlike that of connect, its errors name
// the operation. The socket is -1, or the caller's even so.
func openSocket(to *Address, cfg *DialConfig) (fd int, err error) {
	network := "unix"
	switch {
	case to.Path != "":
		fd, err = sys.UnixStreamSocket()
	case to.AddrPort.Addr().Is4():
		network = "tcp4"
		fd, err = sys.StreamSocket(to.AddrPort.Addr())
	default:
		network = "tcp6"
		fd, err = sys.StreamSocket(to.AddrPort.Addr())
	}
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if cfg.Control != nil {
		if err := cfg.Control(fd, network); err != nil {
			return fd, err
		}
	}
	if to.Path != "" || !cfg.Source.IsValid() {
		return fd, nil
	}
	return fd, bind(fd, cfg.Source)
}

func bind(fd int, source netip.Addr) error {
	if err := sys.SetsockoptInt(fd, sys.IPPROTO_IP, sys.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	return os.NewSyscallError("bind", sys.Bind(fd, netip.AddrPortFrom(source.Unmap(), 0)))
}

// connect returns the kernel's error number unwrapped.
func connect(fd int, to *Address) error {
	if to.Path != "" {
		return sys.ConnectUnix(fd, to.Path)
	}
	return sys.ConnectNow(fd, to.AddrPort, scope(to.AddrPort.Addr().Zone()))
}

// scope is the index of the interface that a zone names, 0 if there is none.
func scope(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	i, err := net.InterfaceByName(zone)
	if err != nil {
		return 0
	}
	return uint32(i.Index)
}

// socketError takes the error of a socket that was to be connected (SO_ERROR,
// socket(7)).
func socketError(fd int) error {
	errno, err := sys.GetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_ERROR)
	switch {
	case err != nil:
		return os.NewSyscallError("getsockopt", err)
	case errno != 0:
		return os.NewSyscallError("connect", syscall.Errno(errno))
	}
	return nil
}

func abortOnClose(fd int) { _ = sys.AbortOnClose(fd) }

func closeSocket(fd int) { _ = sys.Close(fd) }
