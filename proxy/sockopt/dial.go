package sockopt

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// ErrSelfConnect is the error of a connection that had the same socket at both ends; it was
// reset. There is no listener: it is a syscall.ECONNREFUSED.
var ErrSelfConnect = fmt.Errorf("%w (self-connect: nothing listens on this port)", syscall.ECONNREFUSED)

// Dial connects as [net.Dialer.DialContext] does; the caller owns the connection. The kernel may
// choose the port that is dialed, if it is one of this host, for the socket itself, which is then
// connected to itself. That is [ErrSelfConnect]. The socket is reset: closed in order it would
// keep the port from its server for a minute (TIME-WAIT).
func Dial(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	with := *d
	with.Control = func(network, address string, c syscall.RawConn) error {
		var first error
		if d.Control != nil {
			first = d.Control(network, address, c)
		}
		if first != nil || !strings.HasPrefix(network, "tcp") {
			return first
		}
		// net.Dialer itself closes such a socket, and tries again.
		return c.Control(func(fd uintptr) { _ = sys.AbortOnClose(int(fd)) })
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
