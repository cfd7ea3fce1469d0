package relay_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/relay"
)

// leases returns how often the default relay has leased a pipe.
func leases(t *testing.T) int64 {
	t.Helper()
	r, err := relay.Default()
	if err != nil {
		t.Fatal(err)
	}
	s := r.Stats().Pipes
	return int64(s.Made + s.Reused)
}

// TestDefault: the functions of the package join and copy by one relay.
func TestDefault(t *testing.T) {
	t.Parallel()

	pipequota.Share(t)
	in, near := tcp(t)
	out, far := tcp(t)
	done := make(chan error, 1)
	go func() { _, err := relay.Join(context.Background(), near, far); done <- err }()
	if err := ping(in, out, 100); err != nil {
		t.Fatal(err)
	}
	in.CloseWrite()
	out.CloseWrite()
	if err := <-done; err != nil {
		t.Error(err)
	}
	src, end := sending(t)
	n, err := relay.CopyN(io.Discard, src, 10)
	if n != 10 || err != nil {
		t.Errorf("CopyN: %d, %v", n, err)
	}
	n, err = relay.Copy(io.Discard, src)
	if n != int64(len(filler()))-10 || err != nil {
		t.Errorf("Copy: %d, %v", n, err)
	}
	end()
}

// sending returns a connection from which the filler comes, and an end of file.
func sending(t *testing.T) (near net.Conn, end func()) {
	far, near := tcp(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = far.Write(filler())
		_ = far.CloseWrite()
	}()
	return near, func() { <-done }
}

// TestWrap: io.Copy from a wrapped connection, to one, and between two takes pipes of the default relay,
// and so does io.CopyN.
func TestWrap(t *testing.T) {
	t.Parallel()

	pipequota.Share(t)
	size := int64(len(filler()))
	for name, copying := range map[string]func(dst, src net.Conn) (int64, error){
		"from":    func(dst, src net.Conn) (int64, error) { return io.Copy(dst, relay.Wrap(src)) },
		"to":      func(dst, src net.Conn) (int64, error) { return io.Copy(relay.Wrap(dst), src) },
		"between": func(dst, src net.Conn) (int64, error) { return io.Copy(relay.Wrap(dst), relay.Wrap(src)) },
		"n":       func(dst, src net.Conn) (int64, error) { return io.CopyN(relay.Wrap(dst), relay.Wrap(src), size) },
		"twice": func(dst, src net.Conn) (int64, error) {
			return io.Copy(relay.Wrap(relay.Wrap(dst)), relay.Wrap(relay.Wrap(src)))
		},
	} {
		src, end := sending(t)
		out, dst := tcp(t)
		got := make(chan []byte, 1)
		go func() { b, _ := io.ReadAll(out); got <- b }()
		before := leases(t)
		n, err := copying(dst, src)
		_ = dst.(*net.TCPConn).CloseWrite()
		if b := <-got; n != size || err != nil || !bytes.Equal(b, filler()) {
			t.Errorf("%s: %d, %v, %d bytes came", name, n, err, len(b))
		}
		if leases(t) == before {
			t.Errorf("%s: no pipe of the default relay was leased", name)
		}
		end()
	}
	if relay.Wrap(nil) != nil {
		t.Error("nothing was wrapped")
	}
}
