package relay_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/relay"
)

// TestMissingEnds: ends that are nil of their type, closed, or hollow are errors of a copy, and never a panic.
func TestMissingEnds(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	file := func() *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	closed := func(c io.Closer) { _ = c.Close() }
	ends := map[string]func() io.ReadWriter{
		"nil os.File":       func() io.ReadWriter { return (*os.File)(nil) },
		"nil TCPConn":       func() io.ReadWriter { return (*net.TCPConn)(nil) },
		"nil UnixConn":      func() io.ReadWriter { return (*net.UnixConn)(nil) },
		"nil UDPConn":       func() io.ReadWriter { return (*net.UDPConn)(nil) },
		"nil tls.Conn":      func() io.ReadWriter { return (*tls.Conn)(nil) },
		"zero TCPConn":      func() io.ReadWriter { return new(net.TCPConn) },
		"zero UnixConn":     func() io.ReadWriter { return new(net.UnixConn) },
		"zero UDPConn":      func() io.ReadWriter { return new(net.UDPConn) },
		"closed os.File":    func() io.ReadWriter { f := file(); closed(f); return f },
		"closed TCPConn":    func() io.ReadWriter { c, _ := tcp(t); closed(c); return c },
		"closed Unix":       func() io.ReadWriter { c, _ := unixStream(t); closed(c); return c },
		"Stream of a nil":   func() io.ReadWriter { return relay.Stream((*os.File)(nil)) },
		"of a nil beneath":  func() io.ReadWriter { return &named{} },
		"Wrap of a closed":  func() io.ReadWriter { c, _ := tcp(t); closed(c); return relay.Wrap(c) },
		"Meter of a closed": func() io.ReadWriter { c, _ := tcp(t); closed(c); return relay.Metered(c, new(relay.Meter)) },
	}
	for name, missing := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			far, near := tcp(t)
			_, _ = far.Write([]byte("x"))
			_ = far.CloseWrite()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			for way, f := range map[string]func() error{
				"source":       func() error { _, err := r.Copy(near, missing()); return err },
				"source file":  func() error { _, err := r.Copy(file(), missing()); return err },
				"source, n":    func() error { _, err := r.CopyN(near, missing(), 10); return err },
				"source, ctx":  func() error { _, err := r.CopyContext(ctx, near, missing()); return err },
				"source, Move": func() error { _, err := r.Move(near, missing()); return err },
				"both":         func() error { _, err := r.Copy(missing(), missing()); return err },
				"sink":         func() error { _, err := r.Copy(missing(), bytes.NewReader([]byte("x"))); return err },
				"sink, tcp":    func() error { _, err := r.Copy(missing(), near); return err },
			} {
				if err := f(); err == nil {
					t.Errorf("%s: no error", way)
				}
			}
			if c, ok := missing().(net.Conn); ok && name != "of a nil beneath" { // whose own methods panic
				a, b := tcp(t)
				res, err := r.Join(context.Background(), c, a)
				if err == nil {
					t.Errorf("joined: %+v", res)
				}
				if _, err := r.Join(context.Background(), b, c); err == nil {
					t.Error("joined as b")
				}
			}
		})
	}
}

// TestNilEnds: an end that is nil of its type is named, as one without a type is.
func TestNilEnds(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	for _, end := range []io.ReadWriter{(*os.File)(nil), (*net.TCPConn)(nil), (*net.UnixConn)(nil), (*tls.Conn)(nil)} {
		t.Run(fmt.Sprintf("%T", end), func(t *testing.T) {
			if _, err := r.Copy(end, bytes.NewReader([]byte("x"))); !errors.Is(err, os.ErrInvalid) {
				t.Error(err)
			}
			if _, err := r.Copy(io.Discard, end); !errors.Is(err, os.ErrInvalid) {
				t.Error(err)
			}
		})
	}
}
