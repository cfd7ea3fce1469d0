package relay_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/penstock/penstock/relay"
)

// writerFunc is a Write.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestCopyErrorsAsIO: an error of a plain reader or writer is returned as it is, as by [io.Copy].
func TestCopyErrorsAsIO(t *testing.T) {
	t.Parallel()

	r, mine := newRelay(t, nil), errors.New("mine")
	plain := func() io.Reader { return struct{ io.Reader }{strings.NewReader("hello")} }
	for name, c := range map[string]struct {
		dst io.Writer
		src func() io.Reader
	}{
		"read":          {new(bytes.Buffer), func() io.Reader { return iotest.ErrReader(mine) }},
		"read, plain":   {struct{ io.Writer }{new(bytes.Buffer)}, func() io.Reader { return io.MultiReader(plain(), iotest.ErrReader(mine)) }},
		"write":         {writerFunc(func([]byte) (int, error) { return 0, mine }), plain},
		"short write":   {writerFunc(func(p []byte) (int, error) { return len(p) - 1, nil }), plain},
		"invalid write": {writerFunc(func(p []byte) (int, error) { return len(p) + 1, nil }), plain},
		"less than 0":   {writerFunc(func([]byte) (int, error) { return -1, nil }), plain},
		"and an error":  {writerFunc(func(p []byte) (int, error) { return len(p) + 1, mine }), plain},
	} {
		wantN, want := io.Copy(c.dst, c.src())
		if n, err := r.Copy(c.dst, c.src()); n != wantN || err != want {
			t.Errorf("%s: %d, %v, want %d, %v", name, n, err, wantN, want)
		}
	}
}

// TestCopyFileErrors: an error of a file is one of package os.
func TestCopyFileErrors(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path) // not to be written
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, src := tcp(t)
	_, _ = in.Write([]byte("x"))
	for _, e := range engines {
		_, err := newRelay(t, &relay.Config{Engine: e}).Copy(f, src)
		var pathErr *os.PathError
		if !errors.As(err, &pathErr) || pathErr.Path != path {
			t.Errorf("%v: %v, want an error of %s", e, err, path)
		}
		_, _ = in.Write([]byte("x"))
	}
}

// TestTimeoutErrors: each error that is a timeout is known as one by every way to ask.
func TestTimeoutErrors(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	_, src := tcp(t)
	dst, _ := tcp(t)
	_ = src.SetReadDeadline(longPast)
	_, atRead := r.Copy(dst, src)
	in, src := tcp(t)
	_, _ = in.Write([]byte("x"))
	_ = dst.SetWriteDeadline(longPast)
	_, atWrite := r.Copy(dst, src)

	clocked, clock := clockedRelay(t, relay.Config{IdleTimeout: time.Second})
	g := newRig(t, clocked, tcp, tcp)
	g.echo(t)
	clock.advance(2 * time.Second)
	_, idle := g.wait()
	for name, err := range map[string]error{"read": atRead, "write": atWrite, "idle": idle} {
		if e, ok := err.(net.Error); !ok || !e.Timeout() || !os.IsTimeout(err) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %#v (%[2]v)", name, err)
		}
	}
}
