package sockets

import (
	"errors"
	"strconv"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
)

// Port returns a port on which nothing listens, and which the kernel gives to no process at any address until
// the test ends: a socket that does not listen is bound to it, with SO_REUSEADDR. Connections to it are refused
// until a listener asks for it by number and with that option, as package net and Penstock do
// (net/ipv4/inet_connection_sock.c, inet_csk_get_port).
func Port(t testing.TB) string {
	t.Helper()
	const everywhere = syscall.SOCK_STREAM | syscall.SOCK_CLOEXEC
	fd, err := syscall.Socket(syscall.AF_INET6, everywhere, 0)
	var at syscall.Sockaddr = new(syscall.SockaddrInet6)
	if errors.Is(err, syscall.EAFNOSUPPORT) {
		fd, err = syscall.Socket(syscall.AF_INET, everywhere, 0)
		at = new(syscall.SockaddrInet4)
	}
	must.Do(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	err = errors.Join(
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1),
		syscall.Bind(fd, at),
	)
	name, unnamed := syscall.Getsockname(fd)
	must.Do(t, errors.Join(err, unnamed))
	if v6, ok := name.(*syscall.SockaddrInet6); ok {
		return strconv.Itoa(v6.Port)
	}
	return strconv.Itoa(name.(*syscall.SockaddrInet4).Port)
}
