package hello

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Parse reads the ClientHello at the beginning of b, of which [Length] has said that
// it is whole. What follows it is not looked at. Errors are those of Length,
// ErrIncomplete, and ErrMalformed if crypto/tls does not accept it.
func Parse(b []byte) (Info, error) {
	need, err := Length(b)
	if err != nil {
		return Info{}, err
	}
	if need > len(b) {
		return Info{}, fmt.Errorf("%w: %d bytes of at least %d", ErrIncomplete, len(b), need)
	}
	if info, ok := plain(b[:need]); ok {
		return info, nil
	}
	return full(b[:need])
}

// full has crypto/tls read a hello, whatever it is.
func full(b []byte) (Info, error) {
	conn := &peeked{rest: b}
	// The answer would be an alert, which goes nowhere.
	err := tls.Server(conn, teller).HandshakeContext(context.Background())
	if !conn.told {
		return Info{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	conn.info.Full = true
	return conn.info, nil
}

var errTold = errors.New("told")

// teller ends the handshake when the hello has been parsed, before anything is
// answered, and before anything that costs more than parsing is done.
var teller = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	conn := hello.Conn.(*peeked)
	conn.told = true
	conn.info = Info{
		ServerName: strings.ToLower(hello.ServerName),
		ALPN:       hello.SupportedProtos,
	}
	return nil, errTold
}}

// peeked is a connection whose peer has sent rest so far, and hears nothing.
type peeked struct {
	rest []byte
	info Info
	told bool
}

func (c *peeked) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *peeked) Write(p []byte) (int, error)      { return len(p), nil }
func (c *peeked) Close() error                     { return nil }
func (c *peeked) LocalAddr() net.Addr              { return nil }
func (c *peeked) RemoteAddr() net.Addr             { return nil }
func (c *peeked) SetDeadline(time.Time) error      { return nil }
func (c *peeked) SetReadDeadline(time.Time) error  { return nil }
func (c *peeked) SetWriteDeadline(time.Time) error { return nil }
