// Package clienthello makes the first bytes of a TLS client.
package clienthello

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// Of returns the bytes that a client of crypto/tls sends before there is an answer: one
// record.
func Of(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	var sent recorder
	if err := tls.Client(&sent, cfg).Handshake(); !errors.Is(err, io.EOF) {
		t.Fatalf("the client failed otherwise than for want of an answer: %v", err)
	}
	return sent.Bytes()
}

// Named is [Of] for a client that wants a server of that name, and one of these protocols.
func Named(t testing.TB, name string, protocols ...string) []byte {
	t.Helper()
	return Of(t, &tls.Config{ServerName: name, NextProtos: protocols})
}

// A recorder is a connection with a peer that never sends.
type recorder struct{ bytes.Buffer }

func (r *recorder) Read([]byte) (int, error)         { return 0, io.EOF }
func (r *recorder) Close() error                     { return nil }
func (r *recorder) LocalAddr() net.Addr              { return nil }
func (r *recorder) RemoteAddr() net.Addr             { return nil }
func (r *recorder) SetDeadline(time.Time) error      { return nil }
func (r *recorder) SetReadDeadline(time.Time) error  { return nil }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }
