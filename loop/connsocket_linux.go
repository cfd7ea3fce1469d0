package loop

import (
	"net"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

func readSocket(fd int, p []byte) (int, error) { return sys.Recv(fd, p, sys.MSG_DONTWAIT) }

func sendSocket(fd int, p []byte) (int, error) {
	return sys.Send(fd, p, sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
}

func shutdownWrite(fd int) error { return sys.ShutdownWrite(fd) }

// setNoDelay sets TCP_NODELAY, as package net does. A unix socket has none.
func setNoDelay(fd int) { _ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1) }

// localAddr returns the address of a socket's own end, nil if it has none.
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
