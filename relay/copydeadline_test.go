package relay_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

var longPast = time.Unix(1, 0)

// copySources are ends that a copy may have more bytes from than any test takes.
var copySources = map[string]func(t *testing.T) io.Reader{
	"tcp":  func(t *testing.T) io.Reader { return flowing(t, tcp) },
	"unix": func(t *testing.T) io.Reader { return flowing(t, unixStream) },
	"wrapped": func(t *testing.T) io.Reader {
		return struct{ io.Reader }{flowing(t, tcp)}
	},
	"file": func(t *testing.T) io.Reader { return sparseFile(t, 1<<40) },
}

// flowing returns a connection whose peer sends until the test ends.
func flowing(t *testing.T, n network) net.Conn {
	far, near := n(t)
	go func() {
		for block := filler(); ; {
			if _, err := far.Write(block); err != nil {
				return
			}
		}
	}()
	return near
}

func sparseFile(t *testing.T, size int64) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f
}

// eachCopy runs a test of a copy from each kind of source to TCP, by each engine.
func eachCopy(t *testing.T, test func(t *testing.T, r *relay.Relay, src io.Reader)) {
	for _, e := range engines {
		for name, source := range copySources {
			t.Run(e.String()+"/"+name, func(t *testing.T) {
				test(t, newRelay(t, &relay.Config{Engine: e}), source(t))
			})
		}
	}
}

// timedOut fails unless an error is a timeout at an operation, in each of the ways to find out.
func timedOut(t *testing.T, err error, op string) {
	t.Helper()
	var opErr *net.OpError
	var netErr net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &netErr) || !netErr.Timeout() || !errors.As(err, &opErr) {
		t.Fatalf("got %v, want a timeout of package net", err)
	}
	if opErr.Op != op {
		t.Errorf("%v: at %q, want %q", err, opErr.Op, op)
	}
}

// TestCopyPastWriteDeadline: a copy whose destination's deadline has passed writes nothing.
func TestCopyPastWriteDeadline(t *testing.T) {
	t.Parallel()

	eachCopy(t, func(t *testing.T, r *relay.Relay, src io.Reader) {
		dst, _ := tcp(t)
		_ = dst.SetWriteDeadline(longPast)
		n, err := r.CopyN(dst, src, 1<<30)
		timedOut(t, err, "write")
		if n != 0 {
			t.Errorf("%d bytes written", n)
		}
	})
}

// TestCopyWriteDeadline: a write deadline that passes ends a copy whose source and destination never
// block.
func TestCopyWriteDeadline(t *testing.T) {
	t.Parallel()

	eachCopy(t, func(t *testing.T, r *relay.Relay, src io.Reader) {
		dst, out := tcp(t)
		go io.Copy(io.Discard, out)
		_ = dst.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		_, err := r.Copy(dst, src)
		timedOut(t, err, "write")
	})
}
