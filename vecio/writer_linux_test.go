package vecio_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/vecio"
)

// random returns n bytes that are always the same.
func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func newWriter(t testing.TB, dst io.Writer, cfg *vecio.Config) *vecio.Writer {
	t.Helper()
	w, err := vecio.New(dst, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func newSocket(t testing.TB, c syscall.Conn, cfg *vecio.Config) *vecio.Writer {
	t.Helper()
	w, err := vecio.NewSocket(sockets.FD(t, c), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// received reads n bytes from c.
func received(t testing.TB, c io.Reader, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// count is a Releaser that counts.
type count struct {
	n     int
	bytes int
}

func (c *count) Release(p []byte) { c.n++; c.bytes += len(p) }

// wrapped is a connection in a wrapper, as programs make them.
type wrapped struct{ net.Conn }

// embedded has SyscallConn and everything else of *net.TCPConn, but a Write of its own.
type embedded struct {
	*net.TCPConn
	writes int
}

func (e *embedded) Write(p []byte) (int, error) {
	e.writes++
	return e.TCPConn.Write(p)
}

// TestPaths: the path of the bytes depends on the destination, and is reported.
func TestPaths(t *testing.T) {
	payload := random(100_000)
	for _, c := range []struct {
		name  string
		path  vecio.Path
		calls int64
		make  func(t *testing.T) (w *vecio.Writer, peer io.Reader)
	}{
		{"a TCP connection", vecio.PathConn, 1, func(t *testing.T) (*vecio.Writer, io.Reader) {
			a, b := sockets.TCPPair(t)
			return newWriter(t, a, nil), b
		}},
		{"a unix connection", vecio.PathConn, 1, func(t *testing.T) (*vecio.Writer, io.Reader) {
			a, b := sockets.UnixPair(t)
			must(t, a.SetWriteBuffer(1<<20))
			return newWriter(t, a, nil), b
		}},
		{"a borrowed descriptor", vecio.PathSocket, 1, func(t *testing.T) (*vecio.Writer, io.Reader) {
			a, b := sockets.TCPPair(t)
			return newSocket(t, a, nil), b
		}},
		{"a wrapper", vecio.PathCoalesced, 1, func(t *testing.T) (*vecio.Writer, io.Reader) {
			a, b := sockets.TCPPair(t)
			return newWriter(t, wrapped{a}, nil), b
		}},
		{"a wrapper that has SyscallConn", vecio.PathCoalesced, 1, func(t *testing.T) (*vecio.Writer, io.Reader) {
			a, b := sockets.TCPPair(t)
			e := &embedded{TCPConn: a}
			t.Cleanup(func() {
				if e.writes != 1 {
					t.Errorf("%d writes of the wrapper", e.writes)
				}
			})
			return newWriter(t, e, nil), b
		}},
		{"a buffer", vecio.PathCoalesced, 1, func(t *testing.T) (*vecio.Writer, io.Reader) {
			b := new(bytes.Buffer)
			return newWriter(t, b, nil), b
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, peer := c.make(t)
			var back count
			must(t, w.AppendString("header"), w.Own(payload, &back), w.Append(nil), w.Append([]byte("trailer")), w.Flush())
			if w.Pending() != 0 || back.n != 1 {
				t.Errorf("%d bytes pending, %d pieces given back", w.Pending(), back.n)
			}
			want := "header" + string(payload) + "trailer"
			if got := received(t, peer, len(want)); string(got) != want {
				t.Error("the peer got something else")
			}
			s := w.Stats()
			if s.Path != c.path || s.Calls != c.calls {
				t.Errorf("%d calls on path %v, want %d on %v", s.Calls, s.Path, c.calls, c.path)
			}
			if s.Pieces != 4 || s.Copied != 3 || s.CopiedBytes != 13 || s.Refs != 1 || s.RefBytes != 100_000 || s.Written != int64(len(want)) || s.Releases != 1 {
				t.Errorf("%+v", s)
			}
			if copied := s.Coalesced != 0; copied != (c.path == vecio.PathCoalesced) {
				t.Errorf("%d bytes were coalesced", s.Coalesced)
			}
			must(t, w.Close())
			if err := w.Append([]byte{1}); err != vecio.ErrClosed {
				t.Errorf("after Close: %v", err)
			}
			if err := w.Close(); err != vecio.ErrClosed {
				t.Errorf("a second Close: %v", err)
			}
		})
	}
}

// TestManyPieces: more than IOV_MAX pieces take more calls, and arrive.
func TestManyPieces(t *testing.T) {
	a, b := sockets.TCPPair(t)
	w := newWriter(t, a, &vecio.Config{CopyBelow: -1})
	data := random(5000 * 7)
	for i := range 5000 {
		must(t, w.Append(data[i*7:][:7]), w.Append(nil))
	}
	must(t, w.Flush())
	if got := received(t, b, len(data)); !bytes.Equal(got, data) {
		t.Error("the peer got something else")
	}
	if s := w.Stats(); s.Calls != 5 || s.Refs != 10_000 || s.Copied != 0 {
		t.Errorf("%+v", s)
	}
}

// TestBlocked: a writer that never waits reports ErrBlocked, and continues at the byte
// where it was.
func TestBlocked(t *testing.T) {
	a, b := sockets.TCPPair(t)
	w := newSocket(t, a, &vecio.Config{High: 64 << 20})
	data, back := random(16<<20), count{}
	for i := 0; i < len(data); i += 1 << 20 {
		must(t, w.Own(data[i:][:1<<20], &back))
	}
	if err := w.Flush(); err != vecio.ErrBlocked {
		t.Fatalf("16 MiB without a reader: %v", err)
	}
	if s := w.Stats(); s.Written == 0 || int64(w.Pending()) != 16<<20-s.Written || int64(back.n) != s.Written>>20 || s.Blocked != 1 {
		t.Errorf("%d bytes pending, %d pieces back, %+v", w.Pending(), back.n, s)
	}
	var got []byte
	chunk := make([]byte, 1<<20)
	for len(got) < len(data) {
		n, err := b.Read(chunk)
		must(t, err)
		got = append(got, chunk[:n]...)
		if err := w.Flush(); err != nil && err != vecio.ErrBlocked {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, data) {
		t.Error("the peer got something else")
	}
	if back.n != 16 || back.bytes != len(data) || w.Pending() != 0 {
		t.Errorf("%d pieces of %d bytes back, %d pending", back.n, back.bytes, w.Pending())
	}
}

// TestMadeBlocking: a writer that never waits does not wait either after its descriptor
// was made blocking.
func TestMadeBlocking(t *testing.T) {
	for _, below := range []int{-1, 1 << 20} {
		a, b := sockets.TCPPair(t)
		w := newSocket(t, a, &vecio.Config{CopyBelow: below})
		must(t, syscall.SetNonblock(sockets.FD(t, a), false))
		giveUp := time.AfterFunc(10*time.Second, func() { _ = b.SetLinger(0); b.Close() })
		piece := make([]byte, 60_000)
		err := error(nil)
		for err == nil {
			must(t, w.Append(piece))
			err = w.Flush()
		}
		if !giveUp.Stop() || err != vecio.ErrBlocked {
			t.Errorf("copied below %d: %v", below, err)
		}
		must(t, syscall.SetNonblock(sockets.FD(t, a), true))
	}
}

// TestDeadline: a write that a deadline has interrupted continues where it was.
func TestDeadline(t *testing.T) {
	for name, wrap := range map[string]func(c *net.TCPConn) io.Writer{
		"conn":      func(c *net.TCPConn) io.Writer { return c },
		"coalesced": func(c *net.TCPConn) io.Writer { return wrapped{c} },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := sockets.TCPPair(t)
			w := newWriter(t, wrap(a), &vecio.Config{High: 64 << 20})
			data, back := random(16<<20), count{}
			must(t, w.AppendString("header"), w.Own(data, &back))
			must(t, a.SetWriteDeadline(time.Now().Add(500*time.Millisecond)))
			err := w.Flush()
			var failed *vecio.WriteError
			if !errors.As(err, &failed) || !failed.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("16 MiB without a reader: %v", err)
			}
			if failed.Written == 0 || failed.Written != w.Stats().Written || failed.Piece != 1 || failed.Offset != failed.Written-6 || failed.Pieces != 2 {
				t.Errorf("%+v of %+v", failed, w.Stats())
			}
			if back.n != 0 || w.Pending() == 0 {
				t.Errorf("%d pieces back, %d bytes pending", back.n, w.Pending())
			}
			if err := w.Flush(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the deadline is still over: %v", err)
			}
			must(t, a.SetWriteDeadline(time.Time{}))
			got := make(chan []byte)
			go func() {
				b, _ := io.ReadAll(b)
				got <- b
			}()
			must(t, w.Flush(), a.CloseWrite())
			if b := <-got; string(b) != "header"+string(data) {
				t.Error("the peer got something else")
			}
			if back.n != 1 {
				t.Errorf("%d pieces back", back.n)
			}
		})
	}
}

// TestClosedMeanwhile: a Flush that waits ends when the connection is closed.
func TestClosedMeanwhile(t *testing.T) {
	a, _ := sockets.TCPPair(t)
	w := newWriter(t, a, nil)
	var back count
	must(t, w.Own(make([]byte, 64<<20), &back))
	done := make(chan error)
	go func() { done <- w.Flush() }()
	time.AfterFunc(20*time.Millisecond, func() { a.Close() }) // before or after it waits
	if err := <-done; !errors.Is(err, net.ErrClosed) || back.n != 1 || w.Pending() != 0 {
		t.Errorf("%v, %d pieces back, %d bytes pending", err, back.n, w.Pending())
	}
	if err := w.Append(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("later: %v", err)
	}
	must(t, w.Close())
}

// TestReset: a writer that has failed, or has something pending, is as new.
func TestReset(t *testing.T) {
	a, b := sockets.TCPPair(t)
	c, d := sockets.UnixPair(t)
	w := newWriter(t, a, nil)
	var back count
	must(t, w.Own([]byte("never written"), &back), w.Reset(c))
	if back.n != 1 || w.Pending() != 0 || w.Stats().Pieces != 0 {
		t.Errorf("%d back, %d pending, %+v", back.n, w.Pending(), w.Stats())
	}
	must(t, w.AppendString("one"), w.Flush(), w.Close(), w.ResetSocket(sockets.FD(t, a)), w.AppendString("two"), w.Flush())
	if got := string(received(t, d, 3)) + string(received(t, b, 3)); got != "onetwo" {
		t.Errorf("got %q", got)
	}
	for _, none := range []io.Writer{nil, (*net.TCPConn)(nil), (*net.UnixConn)(nil), (*os.File)(nil)} {
		if _, err := vecio.New(none, nil); err == nil || !strings.Contains(err.Error(), "nil is no writer") {
			t.Errorf("%T: %v", none, err)
		}
	}
	if err := w.Reset(nil); err == nil || w.Flush() == nil {
		t.Error("a writer to nil")
	}
	must(t, w.Reset(a))
}

// TestNothingToWriteTo: a writer that was never opened returns errors. After Reset it
// writes.
func TestNothingToWriteTo(t *testing.T) {
	var w vecio.Writer
	var back count
	for what, err := range map[string]error{
		"Append": w.Append(make([]byte, 5000)), "AppendString": w.AppendString("x"), "Own": w.Own([]byte("x"), &back),
		"Flush": w.Flush(), "End": w.End(),
	} {
		if err == nil {
			t.Errorf("%s of a writer to nothing is fine", what)
		}
	}
	if w.Room() != 0 || w.Pending() != 0 || back.n != 1 {
		t.Errorf("room for %d bytes, %d pending, %d pieces back", w.Room(), w.Pending(), back.n)
	}
	var b bytes.Buffer
	must(t, w.Reset(&b), w.AppendString("hello"), w.AppendString(", world"), w.Flush())
	if s := w.Stats(); b.String() != "hello, world" || s.Copied != 2 || s.Calls != 1 {
		t.Errorf("%q, %+v", b.String(), s)
	}
	must(t, w.Close())
}

// TestNoReleaser: an owned piece without a Releaser is refused.
func TestNoReleaser(t *testing.T) {
	var b bytes.Buffer
	w := newWriter(t, &b, nil)
	for _, r := range []vecio.Releaser{nil, vecio.Pooled(nil)} {
		if err := w.Own([]byte("x"), r); err == nil {
			t.Errorf("%v is a Releaser", r)
		}
	}
	must(t, w.Own([]byte("y"), vecio.ReleaseFunc(nil)), w.Flush(), w.Close())
	if err := w.Own(nil, nil); b.String() != "y" || err != vecio.ErrClosed {
		t.Errorf("%q, %v after Close", b.String(), err)
	}
}

// TestUnsent: Close reports the bytes that it drops.
func TestUnsent(t *testing.T) {
	a, _ := sockets.TCPPair(t)
	w := newWriter(t, a, nil)
	var back count
	must(t, w.AppendString("one"), w.Flush(), w.AppendString("two"), w.Own(make([]byte, 5000), &back))
	var failed *vecio.WriteError
	if err := w.Close(); !errors.As(err, &failed) || failed.Piece != 1 || failed.Offset != 0 || failed.Written != 3 || failed.Pieces != 3 {
		t.Errorf("%v", err)
	}
	if back.n != 1 {
		t.Errorf("%d pieces back", back.n)
	}
}

// TestConfig: a configuration or destination that makes no sense is refused with an
// error.
func TestConfig(t *testing.T) {
	for _, c := range []vecio.Config{{High: -1}, {Low: -1}, {High: 10, Low: 11}} {
		if _, err := vecio.New(io.Discard, &c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	must(t, newWriter(t, io.Discard, &vecio.Config{Low: 2 << 20}).Close()) // High follows
	if _, err := vecio.NewSocket(-1, nil); !errors.Is(err, syscall.EBADF) {
		t.Errorf("descriptor -1: %v", err)
	}
	f, err := os.Open(os.DevNull)
	must(t, err)
	defer f.Close()
	if _, err := vecio.NewSocket(sockets.FD(t, f), nil); err == nil {
		t.Error("a descriptor that may block is taken")
	}
	a, _ := sockets.TCPPair(t)
	a.Close()
	if _, err := vecio.New(a, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed connection: %v", err)
	}
}
