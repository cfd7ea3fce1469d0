package bench

import (
	"crypto/tls"
	"errors"
	"net"
)

// errCaptured ends a handshake of which only the beginning is wanted.
var errCaptured = errors.New("that is all")

// capture is a connection that keeps the first bytes written to it.
type capture struct {
	net.Conn
	first []byte
}

func (c *capture) Write(b []byte) (int, error) {
	c.first = append(c.first, b...)
	return 0, errCaptured
}

// ClientHello returns the record by which a TLS client of the standard library begins
// to talk to a server of that name.
func ClientHello(serverName string) []byte {
	c := new(capture)
	_ = tls.Client(c, &tls.Config{ServerName: serverName}).Handshake() // ends with errCaptured
	return c.first
}
