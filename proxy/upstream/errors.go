package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// ErrSelfConnect is the error of a connection that had the same socket at both
// ends; it was closed. Nobody listens there: it is a syscall.ECONNREFUSED.
var ErrSelfConnect = fmt.Errorf("%w (nobody listens, and the kernel connected the socket to itself)", syscall.ECONNREFUSED)

// ErrOwnListener is the error of a target that is the proxy itself, see
// [Config.Own]: there is no server there. It is a syscall.ECONNREFUSED.
var ErrOwnListener = fmt.Errorf("%w (the proxy itself listens there)", syscall.ECONNREFUSED)

// ErrPortsExhausted is the error of a connect for which the kernel had no local
// port: all of net.ipv4.ip_local_port_range are taken by connections to the same
// address. It is a syscall.EADDRNOTAVAIL.
var ErrPortsExhausted = fmt.Errorf("port exhaustion, no local port is free for this address: %w", syscall.EADDRNOTAVAIL)

// explain says what an error means that was met on the way to an address, without
// the address and the operation, which the caller names.
func (g *Group) explain(a Address, err error) error {
	var op *net.OpError
	var call *os.SyscallError
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer in time (connect timeout %v): %w", g.cfg.ConnectTimeout, context.DeadlineExceeded)
	case errors.Is(err, syscall.EADDRNOTAVAIL) && errors.As(err, &call) && call.Syscall == "bind":
		return ErrSource
	case errors.Is(err, syscall.EADDRNOTAVAIL) && a.AddrPort.IsValid():
		if noSource(a) {
			return fmt.Errorf("this machine has no address to connect from: %w", syscall.EADDRNOTAVAIL)
		}
		return ErrPortsExhausted
	case errors.As(err, &call):
		return call.Err
	case errors.As(err, &op):
		return op.Err
	default:
		return err
	}
}

// noSource tells the other meaning of EADDRNOTAVAIL: no address of this machine
// can reach the remote one at all (IPv6 switched off, as a rule). Connecting a
// datagram socket sends nothing, and needs no TCP port.
func noSource(remote Address) bool {
	conn, err := net.Dial("udp", remote.String())
	if err != nil {
		return errors.Is(err, syscall.EADDRNOTAVAIL)
	}
	conn.Close()
	return false
}
