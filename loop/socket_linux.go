package loop

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"

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

func readSocket(fd int, p []byte) (int, error) { return sys.Recv(fd, p, sys.MSG_DONTWAIT) }

// stoppedAtMark reports whether a read of a TCP socket has answered EAGAIN although there are bytes, because a
// signal was pending when the read came to an urgent mark (net/ipv4/tcp.c, tcp_recvmsg_locked).
func stoppedAtMark(fd int) bool {
	events, err := sys.Poll(fd, sys.POLLIN)
	return err == nil && events&sys.POLLIN != 0
}

func sendSocket(fd int, p []byte) (int, error) {
	return sys.Send(fd, p, sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
}

func shutdownWrite(fd int) error { return sys.ShutdownWrite(fd) }

// setOptions sets the options that package net gives a connection: without keepalive, a client that has vanished would keep
// its connection for ever. A unix socket has none of them.
func setOptions(fd int) {
	for _, o := range [][3]int{
		{sys.IPPROTO_TCP, sys.TCP_NODELAY, 1},
		{sys.SOL_SOCKET, sys.SO_KEEPALIVE, 1},
		{sys.IPPROTO_TCP, sys.TCP_KEEPIDLE, 15},
		{sys.IPPROTO_TCP, sys.TCP_KEEPINTVL, 15}, // seconds
	} {
		_ = sys.SetsockoptInt(fd, o[0], o[1], o[2])
	}
}

// localAddr returns the address of a socket's own end, or nil.
func localAddr(fd int) net.Addr {
	a, err := syscall.Getsockname(fd)
	if err != nil {
		return nil
	}
	switch a := a.(type) {
	case *syscall.SockaddrInet4:
		return &net.TCPAddr{IP: append(net.IP(nil), a.Addr[:]...), Port: a.Port}
	case *syscall.SockaddrInet6:
		return &net.TCPAddr{IP: append(net.IP(nil), a.Addr[:]...), Port: a.Port}
	case *syscall.SockaddrUnix:
		return &net.UnixAddr{Net: "unix", Name: a.Name}
	}
	return nil
}

// openSocket makes a socket that is ready to connect. Its errors name the operation; the errors of connect do
// not. The caller closes the socket even after an error, unless fd is -1.
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
	return os.NewSyscallError("bind", sys.Bind(fd, netip.AddrPortFrom(source.Unmap(), 0), scope(source.Zone())))
}

// connect returns the kernel's error number unwrapped.
func connect(fd int, to *Address) error {
	if to.Path != "" {
		return sys.ConnectUnix(fd, to.Path)
	}
	return sys.ConnectNow(fd, to.AddrPort, scope(to.AddrPort.Addr().Zone()))
}

// ephemeralPorts reads net.ipv4.ip_local_port_range (ip(7)), which holds for IPv6, too: the kernel chooses from these ports
// for a socket that connects without a bound port.
var ephemeralPorts = sync.OnceValue(func() (r [2]uint16) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(text), &r[0], &r[1])
	}
	if err != nil {
		return [2]uint16{1, 65535}
	}
	return r
})

func ephemeral(port uint16) bool {
	r := ephemeralPorts()
	return r[0] <= port && port <= r[1]
}

// toItself reports whether a socket that connects to a port is connected to itself.
func toItself(fd int, port uint16) bool {
	local, err := sys.LocalName(fd)
	if err != nil || local.AddrPort.Port() != port {
		return false
	}
	peer, err := sys.PeerName(fd)
	return err == nil && peer == local
}

func localPath(path string) bool { return sys.LocalPath(path) }

// scope returns the index of the interface that a zone names, or 0.
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

// socketError returns the error of a socket that failed to connect (SO_ERROR, socket(7)).
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

// duplicate makes a non-blocking duplicate of a descriptor that the runtime owns.
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
