package core

import (
	"io"
	"net"

	"github.com/penstock/penstock/relay"
)

// early is a client's connection of which something was taken before: that is read first.
type early struct {
	net.Conn
	rest []byte
}

var _ relay.Unwrapper = (*early)(nil)

func (c *early) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// RelayReader implements [relay.Unwrapper].
func (c *early) RelayReader() (io.Reader, []byte) {
	rest := c.rest
	c.rest = nil
	return c.Conn, rest
}

// RelayWriter implements [relay.Unwrapper].
func (c *early) RelayWriter() io.Writer { return c.Conn }

// NetConn returns the connection itself: who resets it, or watches it, asks for it.
func (c *early) NetConn() net.Conn { return c.Conn }

// CloseWrite ends what is written, as of a connection of TCP or of a unix socket.
func (c *early) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// SetLinger says what Close does, see [net.TCPConn.SetLinger]; of others it does nothing.
func (c *early) SetLinger(seconds int) error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.SetLinger(seconds)
	}
	return nil
}
