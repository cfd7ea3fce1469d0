package relay

import (
	"context"
	"io"
	"net"
	"sync"
)

var defaultRelay = sync.OnceValues(func() (*Relay, error) { return New(nil) })

// Default returns the relay of [Join], [Copy], [CopyContext], [CopyN] and [Wrap]: one with the defaults of [Config],
// which is made at the first call and serves the whole process. Its Stats are theirs together. It must not
// be closed. The error is that of [New]. It is safe for concurrent use.
func Default() (*Relay, error) { return defaultRelay() }

// Join is [Relay.Join] of the default relay, which has no timeouts: ctx and the connections end a session.
func Join(ctx context.Context, a, b net.Conn) (Result, error) {
	r, err := Default()
	if err != nil {
		return Result{Reason: ReasonError}, err
	}
	return r.Join(ctx, a, b)
}

// Copy is [Relay.Copy] of the default relay: [io.Copy] that splices.
func Copy(dst io.Writer, src io.Reader) (int64, error) {
	r, err := Default()
	if err != nil {
		return 0, err
	}
	return r.Copy(dst, src)
}

// CopyContext is [Relay.CopyContext] of the default relay: [Copy] until ctx ends.
func CopyContext(ctx context.Context, dst io.Writer, src io.Reader) (int64, error) {
	r, err := Default()
	if err != nil {
		return 0, err
	}
	return r.CopyContext(ctx, dst, src)
}

// CopyN is [Relay.CopyN] of the default relay: [io.CopyN] that splices.
func CopyN(dst io.Writer, src io.Reader, n int64) (int64, error) {
	r, err := Default()
	if err != nil {
		return 0, err
	}
	return r.CopyN(dst, src, n)
}

// Wrap returns conn with a WriteTo and a ReadFrom that are [Copy], so that [io.Copy] and io.CopyN from it
// and to it take the default relay, in code that stays as it is. Everything else is conn's, which the
// result owns. It is an [Unwrapper].
//
// The result has the methods of a [*net.TCPConn] that programs look for by an assertion: CloseRead, CloseWrite, SetLinger,
// SetNoDelay, SetKeepAlive, SetKeepAlivePeriod, SetKeepAliveConfig, SetReadBuffer, SetWriteBuffer, SyscallConn, and NetConn, which returns
// conn. They return errors.ErrUnsupported if conn has them not. File and MultipathTCP are conn's alone: ask NetConn().
func Wrap(conn net.Conn) net.Conn {
	if isNil(conn) {
		return nil
	}
	return &wrapped{whole{beneath{conn}}}
}

type wrapped struct{ whole }

// WriteTo implements [io.WriterTo].
func (c *wrapped) WriteTo(dst io.Writer) (int64, error) { return Copy(dst, c.Conn) }

// ReadFrom implements [io.ReaderFrom].
func (c *wrapped) ReadFrom(src io.Reader) (int64, error) { return Copy(c.Conn, withWriteTo(src)) }

// RelayReader implements [Unwrapper].
func (c *wrapped) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return c.Conn, nil, nil
}
