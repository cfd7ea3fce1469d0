package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// An end of a one-way copy: where bytes are written, and where they come out.
type copyEnd struct {
	name string
	// open returns a writer, the reader of what is written to it, and how the
	// writer's end of file is made known to that reader.
	open func(t *testing.T) (w io.Writer, r io.Reader, end func() error)
	// plain says whether relay may move bytes beneath it.
	plain bool
}

var copyEnds = []copyEnd{
	{"tcp", func(t *testing.T) (io.Writer, io.Reader, func() error) {
		far, near := tcp(t)
		return near, far, near.(halfConn).CloseWrite
	}, true},
	{"unix", func(t *testing.T) (io.Writer, io.Reader, func() error) {
		far, near := unixStream(t)
		return near, far, near.(halfConn).CloseWrite
	}, true},
	{"fifo", func(t *testing.T) (io.Writer, io.Reader, func() error) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return w, r, w.Close
	}, true},
	{"file", func(t *testing.T) (io.Writer, io.Reader, func() error) {
		f := tempFile(t, os.O_RDWR|os.O_CREATE)
		return f, f, func() error { _, err := f.Seek(0, io.SeekStart); return err }
	}, true},
	{"wrapped", func(t *testing.T) (io.Writer, io.Reader, func() error) {
		far, near := wrappedTCP(t)
		return near, struct{ io.Reader }{far}, near.(halfConn).CloseWrite
	}, false},
}

func tempFile(t *testing.T, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "file"), flags, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestCopyMetamorphic copies every kind of end to every kind of end, through
// every engine: the same bytes arrive, and all are counted.
func TestCopyMetamorphic(t *testing.T) {
	t.Parallel()

	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		for _, from := range copyEnds {
			for _, to := range copyEnds {
				t.Run(e.String()+"/"+from.name+"-"+to.name, func(t *testing.T) {
					for _, n := range []int{0, 1, 70_000, 3<<20 + 1} {
						copyThrough(t, r, from, to, n, e)
					}
				})
			}
		}
	}
}

func copyThrough(t *testing.T, r *relay.Relay, from, to copyEnd, n int, e relay.Engine) {
	t.Helper()
	want := content(uint64(n), n)
	in, src, inEnd := from.open(t)
	dst, out, outEnd := to.open(t)
	feed := func() error {
		if _, err := in.Write(want); err != nil {
			return err
		}
		return inEnd()
	}
	fed := make(chan error, 1)
	if from.name == "file" {
		fed <- feed()
	} else {
		go func() { fed <- feed() }()
	}
	type got struct {
		b   []byte
		err error
	}
	read := make(chan got, 1)
	drain := func() {
		b, err := io.ReadAll(out)
		read <- got{b, err}
	}
	if to.name != "file" {
		go drain()
	}
	f, err := r.Move(dst, src)
	if err != nil || f.Bytes() != int64(n) || f.Reason != relay.ReasonEOF || f.Lost != 0 {
		t.Fatalf("%d bytes: %+v, error %v", n, f, err)
	}
	if err := <-fed; err != nil {
		t.Fatal(err)
	}
	if err := outEnd(); err != nil {
		t.Fatal(err)
	}
	if to.name == "file" {
		drain()
	}
	if g := <-read; g.err != nil || !bytes.Equal(g.b, want) {
		t.Fatalf("got %d of %d bytes, error %v", len(g.b), n, g.err)
	}
	if plain := from.plain && to.plain; e == relay.EngineSplice && plain && f.Copied > 0 || (!plain || e == relay.EngineCopy) && f.Spliced > 0 {
		t.Fatalf("%d bytes by engine %v: %+v", n, e, f)
	}
}

// TestCopyLimits: CopyN and LimitedReader take exactly their number of bytes and
// leave the rest in the source.
func TestCopyLimits(t *testing.T) {
	t.Parallel()

	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		in, src := tcp(t)
		dst, out := tcp(t)
		if _, err := in.Write([]byte("0123456789")); err != nil {
			t.Fatal(err)
		}
		if n, err := r.CopyN(dst, src, 4); n != 4 || err != nil {
			t.Fatalf("CopyN: %d, %v", n, err)
		}
		lr := &io.LimitedReader{R: src, N: 3}
		if n, err := r.Copy(dst, lr); n != 3 || err != nil || lr.N != 0 {
			t.Fatalf("LimitedReader: %d, %v, %d left of the limit", n, err, lr.N)
		}
		if n, err := r.Copy(dst, lr); n != 0 || err != nil {
			t.Fatalf("spent LimitedReader: %d, %v", n, err)
		}
		in.CloseWrite()
		lr = &io.LimitedReader{R: src, N: 100}
		if n, err := r.Copy(dst, lr); n != 3 || err != nil || lr.N != 97 {
			t.Fatalf("LimitedReader past the end: %d, %v, %d left of the limit", n, err, lr.N)
		}
		if n, err := r.CopyN(dst, src, 1); n != 0 || err != io.EOF {
			t.Fatalf("CopyN at the end: %d, %v, want EOF", n, err)
		}
		dst.CloseWrite()
		if err := expect(out, []byte("0123456789")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCopyAppend: the kernel refuses to splice into a file opened with O_APPEND
// (splice(2), EINVAL); the bytes are written, at the end, and the reason is kept.
func TestCopyAppend(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	f := tempFile(t, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if _, err := f.WriteString("before "); err != nil {
		t.Fatal(err)
	}
	in, src := tcp(t)
	go send(in, []byte("after"), 5)
	flow, err := r.Move(f, src)
	if err != nil || flow.Copied != 5 || flow.Fallbacks[relay.FallbackRefused] != 1 {
		t.Fatalf("%+v, error %v", flow, err)
	}
	if b, err := os.ReadFile(f.Name()); err != nil || string(b) != "before after" {
		t.Fatalf("file holds %q, %v", b, err)
	}
}

// TestCopyProc: a file of /proc says it has no bytes, and sends none by sendfile.
func TestCopyProc(t *testing.T) {
	t.Parallel()

	want, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	r := newRelay(t, nil)
	for _, to := range copyEnds {
		f, err := os.Open("/proc/version")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		dst, out, end := to.open(t)
		if n, err := r.Copy(dst, f); err != nil || n != int64(len(want)) {
			t.Fatalf("to %s: %d bytes, %v", to.name, n, err)
		}
		end()
		if got, err := io.ReadAll(out); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("to %s: %q, %v", to.name, got, err)
		}
	}
}

// TestCopyDeadline: deadlines of the caller apply, and the error says so.
func TestCopyDeadline(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	_, src := tcp(t)
	dst, _ := tcp(t)
	_ = src.SetReadDeadline(time.Unix(1, 0))
	if _, err := r.Copy(dst, src); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
}

// TestCopyErrors: a failure names the operation and the connection.
func TestCopyErrors(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	in, src := tcp(t)
	dst, _ := tcp(t)
	abort(t, in)
	_, err := r.Copy(dst, src)
	var op *net.OpError
	if !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &op) || op.Net != "tcp" || op.Addr == nil {
		t.Fatalf("error %#v", err)
	}
}

// TestCopyDelegates: ends that are no descriptors may save a copy as with io.Copy.
func TestCopyDelegates(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	var b strings.Builder
	if f, err := r.Move(&b, strings.NewReader("text")); err != nil || f.Copied != 4 || b.String() != "text" {
		t.Fatalf("%+v, %v", f, err)
	}
	var buf bytes.Buffer
	in, src := tcp(t)
	go send(in, []byte("text"), 2)
	if n, err := r.Copy(&buf, src); err != nil || n != 4 || buf.String() != "text" {
		t.Fatalf("%d, %v, %q", n, err, buf.String())
	}
}

// seeing is a wrapper that embeds a connection and wants to see every byte.
type seeing struct {
	*net.TCPConn
	read, written int
}

func (s *seeing) Read(p []byte) (int, error) {
	n, err := s.TCPConn.Read(p)
	s.read += n
	return n, err
}

func (s *seeing) Write(p []byte) (int, error) {
	n, err := s.TCPConn.Write(p)
	s.written += n
	return n, err
}

// TestCopyBypassesNobody: a wrapper that did not ask sees every byte, though it
// has the WriteTo and ReadFrom of the connection inside.
func TestCopyBypassesNobody(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	in, src := tcp(t)
	dst, out := tcp(t)
	from, to := &seeing{TCPConn: src.(*net.TCPConn)}, &seeing{TCPConn: dst.(*net.TCPConn)}
	go func() { _ = send(in, content(1, 100_000), 10_000) }()
	received := make(chan error, 1)
	go func() { received <- expect(out, content(1, 100_000)) }()
	f, err := r.Move(to, from)
	if err != nil || from.read != 100_000 || to.written != 100_000 || f.Fallbacks[relay.FallbackWrapped] != 1 {
		t.Fatalf("wrappers saw %d and %d of 100000 bytes: %+v, %v", from.read, to.written, f, err)
	}
	_ = to.CloseWrite()
	if err := <-received; err != nil {
		t.Fatal(err)
	}
}

// TestCopyStoppedByDeadline: a read deadline that passes while the destination takes nothing stops a copy
// at its next read. The bytes that it had read are delivered, so that the caller can continue there.
func TestCopyStoppedByDeadline(t *testing.T) {
	t.Parallel()

	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		in, src := tcp(t)
		dst, out := tcp(t)
		stopped := make(chan error, 1)
		go func() { _, err := r.Copy(dst, src); stopped <- err }()
		sent := fillUp(t, in) // the copy holds a residue now
		_ = src.SetReadDeadline(time.Unix(1, 0))
		got := make(chan int64, 1)
		go func() { _, n, _ := receive(out); got <- n }()
		if err := <-stopped; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%v: stopped by %v", e, err)
		}
		_ = src.SetReadDeadline(time.Time{})
		_ = in.CloseWrite()
		rest, err := io.Copy(dst, src)
		if err != nil {
			t.Fatal(err)
		}
		if rest == 0 {
			t.Errorf("%v: the copy has read all %d bytes after the deadline had passed", e, sent)
		}
		_ = dst.CloseWrite()
		if n := <-got; n != sent {
			t.Fatalf("%v: sent %d bytes, %d arrived", e, sent, n)
		}
	}
}

// TestCopyLocksNothing: while a copy waits in a wrapper's Read, others may write
// to its destination, the Read itself included.
func TestCopyLocksNothing(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	dst, out := tcp(t)
	n, err := r.Copy(dst, io.TeeReader(strings.NewReader("twice "), dst))
	if n != 6 || err != nil {
		t.Fatal(n, err)
	}
	_ = dst.CloseWrite()
	if err := expect(out, []byte("twice twice ")); err != nil {
		t.Fatal(err)
	}
}

// TestCopyTogether: several copies may share their two ends; every byte goes once.
func TestCopyTogether(t *testing.T) {
	t.Parallel()

	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		in, src := tcp(t)
		dst, out := tcp(t)
		var copies sync.WaitGroup
		for range 4 {
			copies.Go(func() {
				if _, err := r.Copy(dst, src); err != nil {
					t.Error(err)
				}
			})
		}
		go func() { _ = send(in, make([]byte, 10<<20), 100_000) }()
		got := make(chan int64, 1)
		go func() { _, n, _ := receive(out); got <- n }()
		copies.Wait()
		_ = dst.CloseWrite()
		if n := <-got; n != 10<<20 {
			t.Fatalf("%v: %d bytes arrived", e, n)
		}
	}
}

// failing returns its bytes together with its error.
type failing struct {
	b   string
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	n := copy(p, f.b)
	f.b = f.b[n:]
	return n, f.err
}

// TestCopyReaderContract: errors are passed on as io.Copy passes them on.
func TestCopyReaderContract(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		err   error
		limit int64
	}{
		{"error with the last bytes", broken, -1},
		{"end with the last bytes", io.EOF, -1},
		{"wrapped end", errors.Join(broken, io.EOF), -1},
		{"error at the limit", broken, 4},
		{"end at the limit", io.EOF, 4},
		{"error before the limit", broken, 10},
		{"spent limit", broken, 0},
	} {
		var results [2]string
		for i, copy := range []func(io.Writer, io.Reader) (int64, error){io.Copy, r.Copy} {
			var src io.Reader = &failing{b: "text", err: c.err}
			if c.limit >= 0 {
				src = &io.LimitedReader{R: src, N: c.limit}
			}
			var b strings.Builder
			n, err := copy(struct{ io.Writer }{&b}, src)
			results[i] = fmt.Sprint(n, err != nil && errors.Is(err, broken), err == nil, b.String())
		}
		if results[0] != results[1] {
			t.Errorf("%s: io.Copy %s, relay %s", c.name, results[0], results[1])
		}
	}
	if f, _ := r.Move(io.Discard, io.LimitReader(strings.NewReader("x"), 0)); f.Reason != relay.ReasonLimit {
		t.Errorf("spent limit: %+v", f)
	}
}

// shortWriter takes half of what it is given and says nothing.
type shortWriter struct{}

func (shortWriter) Write(p []byte) (int, error) { return len(p) / 2, nil }

// eagain answers as a descriptor does that would block.
type eagain struct{}

func (eagain) Read([]byte) (int, error) { return 0, syscall.EAGAIN }

// TestCopyOddEnds: a writer that writes short, and a reader that lets EAGAIN
// through, are errors and no endless loop.
func TestCopyOddEnds(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	if _, err := r.Copy(shortWriter{}, struct{ io.Reader }{strings.NewReader("text")}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("short write: %v", err)
	}
	if _, err := r.Copy(struct{ io.Writer }{io.Discard}, eagain{}); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("EAGAIN: %v", err)
	}
	for _, n := range []int{-1, 1 << 30} {
		var b strings.Builder
		if moved, err := r.Copy(struct{ io.Writer }{&b}, liar(n)); moved != 0 || b.Len() != 0 || err == nil || !strings.Contains(err.Error(), "that it was not asked for") {
			t.Errorf("a read of %d bytes: %d were copied, %v", n, moved, err)
		}
	}
	if n, err := r.CopyN(io.Discard, strings.NewReader("abc"), -1); n != 0 || err != nil { // as io.CopyN
		t.Errorf("CopyN of -1: %d, %v", n, err)
	}
}

// liar says that it has read so many bytes, and has not.
type liar int

func (l liar) Read([]byte) (int, error) { return int(l), nil }

// head is a wrapper that has read ahead, and returns itself.
type head struct {
	io.Reader
	ahead []byte
}

func (h *head) RelayReader(_ context.Context, max int) (io.Reader, []byte, error) {
	ahead := h.ahead[:min(max, len(h.ahead))]
	h.ahead = h.ahead[len(ahead):]
	return h, ahead, nil
}
func (h *head) RelayWriter() io.Writer { return nil }

// TestCopyReadAhead: bytes read ahead go first, once, and count against the limit.
func TestCopyReadAhead(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	for _, c := range []struct {
		limit int64
		want  string
	}{{100, "HEADbody"}, {6, "HEADbo"}, {3, "HEA"}} {
		var b strings.Builder
		n, err := r.Copy(struct{ io.Writer }{&b}, io.LimitReader(&head{strings.NewReader("body"), []byte("HEAD")}, c.limit))
		if b.String() != c.want || n != int64(len(c.want)) || err != nil {
			t.Errorf("limit %d: %q, %d, %v", c.limit, b.String(), n, err)
		}
	}
}
