package tlsterm

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
)

// ErrTorn is the error of reading a stream that has ended without close_notify: the received bytes
// may be a part of the sent bytes, cut off by any host that can end a TCP connection (RFC 8446,
// 6.1). It is a syscall.ECONNRESET.
var ErrTorn error = torn{}

type torn struct{}

func (torn) Error() string { return "the TLS stream ended without close_notify" }

func (torn) Is(target error) bool { return target == syscall.ECONNRESET }

// A Conn is a TLS connection like [tls.Conn], except that its Read returns [io.EOF] only if the peer has sent close_notify, or
// ends the connection beneath between two records after CloseWrite: servers such as nginx end so then.
// A tls.Conn also returns it without a CloseWrite.
type Conn struct {
	*tls.Conn
	beneath *limitedConn
	by      *state // the state that accepted it; belongs to the goroutine of the handshake
	first   []byte // bytes that Await has read, for the next Read
	closed  atomic.Bool
}

// firstSize is the most bytes that Await reads; the rest of a record waits in crypto/tls.
const firstSize = 4096

// Await waits until the peer has sent a byte, and keeps the byte for the next Read. It fails as Read does, and must not
// be called again.
func (c *Conn) Await() error {
	b := make([]byte, firstSize)
	n, err := c.Read(b)
	c.first = b[:n]
	if n > 0 {
		return nil
	}
	return err
}

// Over replaces the connection beneath, once the handshake is over: on a loop the new connection does not wait. After a
// Temporary error such as syscall.EAGAIN, the next Read continues where the failed one stopped.
func (c *Conn) Over(beneath net.Conn) { c.beneath.Conn = beneath }

// Beneath returns the connection that carries TLS.
func (c *Conn) Beneath() net.Conn { return c.beneath.Conn }

// CloseWrite sends close_notify.
func (c *Conn) CloseWrite() error {
	c.closed.Store(true) // before the peer can answer
	return c.Conn.CloseWrite()
}

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		if c.first = c.first[n:]; len(c.first) == 0 {
			c.first = nil
		}
		return n, nil
	}
	n, err := c.Conn.Read(p)
	// crypto/tls reads no further than the record that it needs, so if the connection beneath has ended, the end came
	// before any close_notify.
	if c.beneath.ended && (err == io.EOF && !c.closed.Load() || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = ErrTorn
	}
	return n, err
}
