package worker

import (
	"io"
	"net"

	"github.com/penstock/penstock/relay"
)

// prefixedConn is a client's connection of which something was taken before: that is read first.
type prefixedConn struct {
	net.Conn
	rest []byte
}

var _ relay.Unwrapper = (*prefixedConn)(nil)

func (c *prefixedConn) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// RelayReader implements [relay.Unwrapper].
func (c *prefixedConn) RelayReader() (io.Reader, []byte) {
	rest := c.rest
	c.rest = nil
	return c.Conn, rest
}

// RelayWriter implements [relay.Unwrapper].
func (c *prefixedConn) RelayWriter() io.Writer { return c.Conn }

// NetConn returns the connection itself, for resetting or watching it.
func (c *prefixedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the written direction, as of a connection of TCP or of a unix socket.
func (c *prefixedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// SetLinger sets the effect of Close, see [net.TCPConn.SetLinger]; on others it does nothing.
func (c *prefixedConn) SetLinger(seconds int) error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.SetLinger(seconds)
	}
	return nil
}
