package clienthello

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
	"unicode/utf8"
)

// Parse parses the ClientHello at the beginning of b, which is whole according to [Length]. It
// does not read the bytes after it. Errors are those of Length, ErrIncomplete, and
// ErrMalformed if crypto/tls does not accept the hello.
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

// full parses any hello, with crypto/tls.
func full(b []byte) (Info, error) {
	conn := &peeked{rest: b}
	// The answer would be an alert, which goes nowhere.
	err := tls.Server(conn, parseOnly).HandshakeContext(context.Background())
	if !conn.parsed {
		return Info{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	conn.info.Full = true
	return conn.info, nil
}

var errParsed = errors.New("parsed")

// parseOnly ends the handshake when the hello has been parsed, before an answer is sent, and
// before anything that costs more than parsing.
var parseOnly = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	conn := hello.Conn.(*peeked)
	conn.parsed = true
	conn.info = Info{
		ServerName: lowered(hello.ServerName),
		ALPN:       hello.SupportedProtos,
	}
	return nil, errParsed
}}

// lowered returns a name in lower case. Bytes that are not UTF-8 stay: strings.ToLower would replace them.
func lowered(name string) string {
	if utf8.ValidString(name) {
		return strings.ToLower(name)
	}
	b := []byte(name)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// peeked is a connection that reads rest and then EOF, and discards writes.
type peeked struct {
	rest   []byte
	info   Info
	parsed bool
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
