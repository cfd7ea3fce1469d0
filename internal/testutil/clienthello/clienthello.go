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

// Of returns the bytes that a client of crypto/tls sends before it gets an answer: one record.
func Of(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	var sent Recorder
	if err := tls.Client(&sent, cfg).Handshake(); !errors.Is(err, io.EOF) {
		t.Fatalf("the client failed otherwise than for want of an answer: %v", err)
	}
	return sent.Bytes()
}

// Named is [Of] for a client that asks for a server name, and for one of some protocols.
func Named(t testing.TB, name string, protocols ...string) []byte {
	t.Helper()
	return Of(t, &tls.Config{ServerName: name, NextProtos: protocols})
}

// A Recorder is a connection with a peer that never sends.
type Recorder struct{ bytes.Buffer }

// Read returns io.EOF.
func (r *Recorder) Read([]byte) (int, error) { return 0, io.EOF }

// Close does nothing.
func (r *Recorder) Close() error { return nil }

// LocalAddr returns nil.
func (r *Recorder) LocalAddr() net.Addr { return nil }

// RemoteAddr returns nil.
func (r *Recorder) RemoteAddr() net.Addr { return nil }

// SetDeadline does nothing.
func (r *Recorder) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (r *Recorder) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (r *Recorder) SetWriteDeadline(time.Time) error { return nil }
