package tlsterm

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
)

// ErrTorn is the error of reading a stream that has ended without close_notify: the received
// bytes may be a part of those that were sent, cut off by any host that can end a TCP
// connection (RFC 8446, 6.1). It is a syscall.ECONNRESET.
var ErrTorn error = torn{}

type torn struct{}

func (torn) Error() string { return "the TLS stream ended without close_notify" }

func (torn) Is(target error) bool { return target == syscall.ECONNRESET }

// A Conn is a connection over which TLS is spoken, as [tls.Conn] is, but for one thing: its
// Read answers [io.EOF] only if the peer has sent close_notify. A tls.Conn answers that as
// well when the connection beneath ends between two records.
type Conn struct {
	*tls.Conn
	beneath *limitedConn
	by      *state // by which it was accepted; belongs to the goroutine of the handshake
}

// Over replaces the connection beneath, once the handshake is over: a session on a loop has one that does not
// wait. A Read that has met an error of it with Temporary, as syscall.EAGAIN is, goes on in the next.
func (c *Conn) Over(beneath net.Conn) { c.beneath.Conn = beneath }

// Beneath returns the connection over which TLS is spoken.
func (c *Conn) Beneath() net.Conn { return c.beneath.Conn }

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	// crypto/tls reads no further than the record that it needs, so an end of the
	// connection that it has met came before any close_notify.
	if c.beneath.ended && (err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = ErrTorn
	}
	return n, err
}
