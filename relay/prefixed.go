package relay

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// Prefixed returns conn with a head: bytes that were read from it already, and that every reader of the
// result gets first. They stay the result's. Everything else is conn's, which the result owns. It is an
// [Unwrapper]: a relay moves what follows the head beneath it.
//
// Like those of conn, its methods may be called by several goroutines, but Read by one at a time.
func Prefixed(conn net.Conn, head []byte) net.Conn {
	if isNil(conn) {
		return nil
	}
	return &prefixed{beneath{conn}, head}
}

type prefixed struct {
	beneath
	head []byte
}

func (c *prefixed) Read(p []byte) (int, error) {
	if len(c.head) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.head)
	c.take(n)
	return n, nil
}

// take removes n bytes from the head, which is let go with the last one.
func (c *prefixed) take(n int) (taken []byte) {
	taken = c.head[:n:n]
	if c.head = c.head[n:]; len(c.head) == 0 {
		c.head = nil
	}
	return taken
}

// RelayReader implements [Unwrapper].
func (c *prefixed) RelayReader(_ context.Context, max int) (io.Reader, []byte, error) {
	return c.Conn, c.take(min(max, len(c.head))), nil
}

// Buffered returns conn as it is read through r, which reads from conn: bytes that r has buffered come
// first. It is an [Unwrapper]: a session moves what follows them beneath, and lets r go, which must not
// be used beside it then. Everything else is conn's, which the result owns.
//
// Like those of conn, its methods may be called by several goroutines, but Read by one at a time.
func Buffered(conn net.Conn, r *bufio.Reader) net.Conn {
	if isNil(conn) {
		return nil
	}
	return &buffered{beneath{conn}, r}
}

type buffered struct {
	beneath
	r *bufio.Reader // nil: a session has taken its bytes
}

func (c *buffered) Read(p []byte) (int, error) {
	if c.r == nil {
		return c.Conn.Read(p)
	}
	return c.r.Read(p)
}

// RelayReader implements [Unwrapper].
func (c *buffered) RelayReader(_ context.Context, max int) (io.Reader, []byte, error) {
	if c.r == nil {
		return c.Conn, nil, nil
	}
	n := min(max, c.r.Buffered())
	head, _ := c.r.Peek(n) // they are there
	_, _ = c.r.Discard(n)  // and stay where they are until r reads again
	if c.r.Buffered() == 0 && max > n {
		c.r = nil
	}
	return c.Conn, head, nil
}

// beneath is a connection with the methods that a relay, and others, look for beside those of
// [net.Conn].
type beneath struct{ net.Conn }

// NetConn returns the connection itself, as that of a [*tls.Conn] does.
func (c beneath) NetConn() net.Conn { return c.Conn }

// RelayWriter implements [Unwrapper].
func (c beneath) RelayWriter() io.Writer { return c.Conn }

// CloseWrite passes on an end of file; errors.ErrUnsupported says that the connection cannot.
func (c beneath) CloseWrite() error {
	if half, ok := c.Conn.(closeWriter); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// CloseRead is the CloseRead of the connection, if it has one.
func (c beneath) CloseRead() error {
	if half, ok := c.Conn.(interface{ CloseRead() error }); ok {
		return half.CloseRead()
	}
	return errors.ErrUnsupported
}

// SetLinger sets the effect of Close, see [net.TCPConn.SetLinger]; errors.ErrUnsupported says that it is
// no connection of TCP, as with the methods that follow.
func (c beneath) SetLinger(seconds int) error {
	if tcp, ok := c.Conn.(interface{ SetLinger(int) error }); ok {
		return tcp.SetLinger(seconds)
	}
	return errors.ErrUnsupported
}

// SetNoDelay is [net.TCPConn.SetNoDelay].
func (c beneath) SetNoDelay(noDelay bool) error {
	if tcp, ok := c.Conn.(interface{ SetNoDelay(bool) error }); ok {
		return tcp.SetNoDelay(noDelay)
	}
	return errors.ErrUnsupported
}

// SetKeepAlive is [net.TCPConn.SetKeepAlive].
func (c beneath) SetKeepAlive(keepalive bool) error {
	if tcp, ok := c.Conn.(interface{ SetKeepAlive(bool) error }); ok {
		return tcp.SetKeepAlive(keepalive)
	}
	return errors.ErrUnsupported
}

// SetKeepAlivePeriod is [net.TCPConn.SetKeepAlivePeriod].
func (c beneath) SetKeepAlivePeriod(d time.Duration) error {
	if tcp, ok := c.Conn.(interface{ SetKeepAlivePeriod(time.Duration) error }); ok {
		return tcp.SetKeepAlivePeriod(d)
	}
	return errors.ErrUnsupported
}

// SetKeepAliveConfig is [net.TCPConn.SetKeepAliveConfig].
func (c beneath) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	if tcp, ok := c.Conn.(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}); ok {
		return tcp.SetKeepAliveConfig(config)
	}
	return errors.ErrUnsupported
}

// SetReadBuffer sets the size of the receive buffer, of other sockets than TCP's too.
func (c beneath) SetReadBuffer(bytes int) error {
	if socket, ok := c.Conn.(interface{ SetReadBuffer(int) error }); ok {
		return socket.SetReadBuffer(bytes)
	}
	return errors.ErrUnsupported
}

// SetWriteBuffer sets the size of the send buffer, of other sockets than TCP's too.
func (c beneath) SetWriteBuffer(bytes int) error {
	if socket, ok := c.Conn.(interface{ SetWriteBuffer(int) error }); ok {
		return socket.SetWriteBuffer(bytes)
	}
	return errors.ErrUnsupported
}

// A whole connection is one beneath which no byte was read ahead, so its socket may be shown.
type whole struct{ beneath }

// SyscallConn is the SyscallConn of the connection, whose bytes a meter does not see if they are read or written by it.
func (c whole) SyscallConn() (syscall.RawConn, error) {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	// Without the methods by which package os would splice past this wrapper (os.File.ReadFrom).
	return struct{ syscall.RawConn }{raw}, nil
}
