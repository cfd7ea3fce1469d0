package sockopt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/pathcall"
	"github.com/penstock/penstock/internal/sys"
)

// ErrSelfConnect is the error of a connection that had the same socket at both ends, and was reset. Nothing listens
// there, so the error is a syscall.ECONNREFUSED.
var ErrSelfConnect = fmt.Errorf("%w (self-connect: nothing listens on this port)", syscall.ECONNREFUSED)

// queuePause is the time between attempts to connect to a full accept queue. The kernel does not tell when it has room (connect(2), EAGAIN).
const queuePause = 5 * time.Millisecond

// Dial connects as [net.Dialer.DialContext] does, to the addresses of a host in turn, in the order of [ResolveOrLast].
// The caller owns the connection.
//
// If a port of this machine is dialed, the kernel may choose this port for the socket itself, which is then connected
// to itself. Dial resets such a socket, and returns [ErrSelfConnect]. An orderly close would keep the port from its
// server for a minute (TIME-WAIT).
//
// While the file system of a unix socket does not answer, or its accept queue is full, Dial waits no longer than for an address. A symbolic link is
// followed only if it belongs to root, to the user of this process or to the owner of the socket.
func Dial(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	if strings.HasPrefix(network, "unix") {
		return dialPath(ctx, d, network, address)
	}
	host, port, err := net.SplitHostPort(address)
	if _, literal := netip.ParseAddr(host); err != nil || literal == nil || host == "" || !strings.HasPrefix(network, "tcp") {
		return dial(ctx, d, network, address)
	}
	ips, err := ResolveOrLast(ctx, host)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	var failed error
	for i, ip := range ips {
		conn, err := dialOne(ctx, d, network, net.JoinHostPort(ip.Unmap().String(), port), len(ips)-i)
		if err == nil {
			return conn, nil
		}
		if failed == nil {
			failed = err
		}
	}
	return nil, failed
}

// dialPath connects to a unix socket on a goroutine, which closes a connection that comes too late.
func dialPath(ctx context.Context, d *net.Dialer, network, path string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		var is result
		for again := true; again; again = errors.Is(is.err, syscall.EAGAIN) {
			if is.err != nil {
				select {
				case <-time.After(queuePause):
				case <-ctx.Done():
					return
				}
			}
			if err := pathcall.Do(ctx, path, func() { is.conn, is.err = dialUnix(ctx, d, network, path) }); err != nil {
				return
			}
		}
		select {
		case done <- is:
		case <-ctx.Done():
			if is.err == nil {
				is.conn.Close()
			}
		}
	}()
	select {
	case is := <-done:
		return is.conn, is.err
	case <-ctx.Done():
	}
	err := ctx.Err()
	if errors.Is(err, context.DeadlineExceeded) {
		err = os.ErrDeadlineExceeded
	}
	return nil, &net.OpError{Op: "dial", Net: network, Addr: &net.UnixAddr{Net: network, Name: path}, Err: err}
}

func dialUnix(ctx context.Context, d *net.Dialer, network, path string) (conn net.Conn, err error) {
	err = sys.AtFile(path, func(name string) (err error) {
		conn, err = d.DialContext(ctx, network, name)
		return err
	})
	if err == nil {
		return conn, nil
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	} else {
		err = os.NewSyscallError("connect", err)
	}
	return nil, &net.OpError{Op: "dial", Net: network, Addr: &net.UnixAddr{Net: network, Name: path}, Err: err}
}

// dialOne connects to the first of some addresses, in its part of the time that is left.
func dialOne(ctx context.Context, d *net.Dialer, network, address string, left int) (net.Conn, error) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(left))
		defer cancel()
	}
	return dial(ctx, d, network, address)
}

// dial connects to an address that is not looked up.
func dial(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	with := *d
	// Package net keeps the number of an interface for a minute, and the interface may have been made again.
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().Zone() != "" {
		address = netip.AddrPortFrom(Canonical(at.Addr()), at.Port()).String()
	}
	if local, ok := d.LocalAddr.(*net.TCPAddr); ok && local.Zone != "" {
		with.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(Canonical(local.AddrPort().Addr()), local.AddrPort().Port()))
	}
	with.Control = func(network, address string, c syscall.RawConn) error {
		var first error
		if d.Control != nil {
			first = d.Control(network, address, c)
		}
		if first != nil || !strings.HasPrefix(network, "tcp") {
			return first
		}
		return c.Control(func(fd uintptr) {
			if d.LocalAddr != nil { // its port, if any, is left to connect: it need not be free towards other destinations
				_ = sys.SetsockoptInt(int(fd), sys.IPPROTO_IP, sys.IP_BIND_ADDRESS_NO_PORT, 1)
			}
			_ = sys.AbortOnClose(int(fd)) // net.Dialer itself closes such a socket, and tries again
		})
	}
	conn, err := with.DialContext(ctx, network, address)
	tcp, ok := conn.(*net.TCPConn)
	if err != nil || !ok {
		return conn, err
	}
	if local := tcp.LocalAddr(); local.String() == tcp.RemoteAddr().String() {
		tcp.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Addr: local, Err: os.NewSyscallError("connect", ErrSelfConnect)}
	}
	if err := tcp.SetLinger(-1); err != nil { // close is again as usual
		tcp.Close()
		return nil, err
	}
	return tcp, nil
}
