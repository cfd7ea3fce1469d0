package soak

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// set is a Control of package net: it sets the options that have to be set before a socket is
// connected, or listens.
func (o options) set(_, _ string, c syscall.RawConn) error {
	var err error
	failed := c.Control(func(fd uintptr) { err = o.apply(int(fd)) })
	return errors.Join(failed, err)
}

// apply sets the options on a socket.
func (o options) apply(fd int) error {
	for _, option := range []struct{ level, name, value int }{
		{sys.SOL_SOCKET, syscall.SO_SNDBUF, o.sendBuffer},
		{sys.SOL_SOCKET, syscall.SO_RCVBUF, o.receiveBuffer},
		{sys.IPPROTO_TCP, syscall.TCP_MAXSEG, o.segment},
		{sys.SOL_SOCKET, sys.SO_OOBINLINE, 1},
		{sys.SOL_SOCKET, sys.SO_KEEPALIVE, o.probes},
		{sys.IPPROTO_TCP, sys.TCP_KEEPIDLE, 2 * o.probes},
		{sys.IPPROTO_TCP, sys.TCP_KEEPINTVL, o.probes},
	} {
		if option.value == 0 {
			continue
		}
		if err := sys.SetsockoptInt(fd, option.level, option.name, option.value); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

// dial connects a client.
func (o options) dial(ctx context.Context, address string, patience time.Duration) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: patience, KeepAlive: -1, Control: o.set}
	c, err := d.DialContext(ctx, "tcp4", address)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.TCPConn)
	_ = conn.SetNoDelay(!o.nagle)
	return conn, nil
}

// control calls f with the descriptor of a connection, unless it is closed.
func control(c *net.TCPConn, f func(fd int)) {
	raw, err := c.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
