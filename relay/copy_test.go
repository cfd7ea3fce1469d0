package relay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/sockets"
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
		must.Do(t, err)
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
	f := must.Get(os.OpenFile(filepath.Join(t.TempDir(), "file"), flags, 0o600))(t)
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
	must.Do(t, <-fed)
	must.Do(t, outEnd())
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
		write(t, in, []byte("0123456789"))
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
		if n, err := relay.CopyN(dst, src, 1); n != 0 || err != io.EOF {
			t.Fatalf("CopyN at the end: %d, %v, want EOF", n, err)
		}
		dst.CloseWrite()
		must.Do(t, expect(out, []byte("0123456789")))
	}
}

// TestCopyAppend: the kernel refuses to splice into a file opened with O_APPEND
// (splice(2), EINVAL); the bytes are written, at the end, and the reason is kept.
func TestCopyAppend(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	f := tempFile(t, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	must.Get(f.WriteString("before "))(t)
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
		f := must.Get(os.Open("/proc/version"))(t)
		defer f.Close()
		dst, out, end := to.open(t)
		if n, err := r.Copy(dst, f); err != nil || n != int64(len(want)) {
			t.Fatalf("to %s: %d bytes, %v", to.name, n, err)
		}
		end()
		sockets.ExpectAll(t, out, want)
	}
}

// TestCopyBypassesNobody: a wrapper that did not ask sees every byte, though it
// has the WriteTo and ReadFrom of the connection inside.
func TestCopyBypassesNobody(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	in, src := tcp(t)
	dst, out := tcp(t)
	from, to := &counting{TCPConn: src.(*net.TCPConn)}, &counting{TCPConn: dst.(*net.TCPConn)}
	go func() { _ = send(in, content(1, 100_000), 10_000) }()
	received := make(chan error, 1)
	go func() { received <- expect(out, content(1, 100_000)) }()
	f, err := r.Move(to, from)
	if err != nil || from.seen != 100_000 || to.written != 100_000 || f.Fallbacks[relay.FallbackWrapped] != 1 {
		t.Fatalf("wrappers saw %d and %d of 100000 bytes: %+v, %v", from.seen, to.written, f, err)
	}
	_ = to.CloseWrite()
	must.Do(t, <-received)
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
		rest := must.Get(io.Copy(dst, src))(t)
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
	must.Do(t, expect(out, []byte("twice twice ")))
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

// TestCopyAsIO: whatever plain ends return, the number of bytes and the error of a copy are those of [io.Copy], the error as it is.
func TestCopyAsIO(t *testing.T) {
	t.Parallel()

	r, mine := newRelay(t, nil), errors.New("mine")
	joined := errors.Join(mine, io.EOF)
	inContext := func(dst io.Writer, src io.Reader) (int64, error) { return r.CopyContext(t.Context(), dst, src) }
	plain := func() io.Reader { return struct{ io.Reader }{strings.NewReader("hello")} }
	with := func(err error, limit int64) func() io.Reader {
		return func() io.Reader { return io.LimitReader(&failing{b: "text", err: err}, limit) }
	}
	ofFile := func() io.Reader { return sparseFile(t, 5) }
	eof := writerFunc(func([]byte) (int, error) { return 0, io.EOF })
	for name, c := range map[string]struct {
		dst io.Writer // nil: a plain one
		src func() io.Reader
	}{
		"end of the destination":    {eof, plain},
		"and of a file":             {eof, ofFile},
		"read":                      {new(bytes.Buffer), func() io.Reader { return iotest.ErrReader(mine) }},
		"read, plain":               {nil, func() io.Reader { return io.MultiReader(plain(), iotest.ErrReader(mine)) }},
		"write":                     {writerFunc(func([]byte) (int, error) { return 0, mine }), plain},
		"short write":               {writerFunc(func(p []byte) (int, error) { return len(p) - 1, nil }), plain},
		"invalid write":             {writerFunc(func(p []byte) (int, error) { return len(p) + 1, nil }), plain},
		"less than 0":               {writerFunc(func([]byte) (int, error) { return -1, nil }), plain},
		"and an error":              {writerFunc(func(p []byte) (int, error) { return len(p) + 1, mine }), plain},
		"error with the last bytes": {nil, func() io.Reader { return &failing{b: "text", err: mine} }},
		"end with the last bytes":   {nil, func() io.Reader { return &failing{b: "text", err: io.EOF} }},
		"wrapped end":               {nil, func() io.Reader { return &failing{b: "text", err: joined} }},
		"error at the limit":        {nil, with(mine, 4)},
		"end at the limit":          {nil, with(io.EOF, 4)},
		"error before the limit":    {nil, with(mine, 10)},
		"spent limit":               {nil, with(mine, 0)},
	} {
		type result struct {
			n    int64
			err  error
			text string
		}
		var got [3]result
		for i, copy := range [3]oneWay{io.Copy, r.Copy, inContext} {
			var b strings.Builder
			dst := c.dst
			if dst == nil {
				dst = struct{ io.Writer }{&b}
			}
			n, err := copy(dst, c.src())
			got[i] = result{n, err, b.String()}
		}
		if got[0] != got[1] || got[0] != got[2] {
			t.Errorf("%s: io.Copy %+v, relay %+v, CopyContext %+v", name, got[0], got[1], got[2])
		}
	}
	if f, _ := r.Move(io.Discard, io.LimitReader(strings.NewReader("x"), 0)); f.Reason != relay.ReasonLimit {
		t.Errorf("spent limit: %+v", f)
	}
}

// eagain answers as a descriptor does that would block.
type eagain struct{}

func (eagain) Read([]byte) (int, error) { return 0, syscall.EAGAIN }

// TestCopyOddEnds: a reader that lets EAGAIN through, or says that it has read what it was not asked for, is an error and no endless loop.
func TestCopyOddEnds(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	must.Fail(r.Copy(struct{ io.Writer }{io.Discard}, eagain{}))(t, syscall.EAGAIN)
	for _, n := range []int{-1, 1 << 30} {
		var b strings.Builder
		if moved, err := r.Copy(struct{ io.Writer }{&b}, liar(n)); moved != 0 || b.Len() != 0 || err == nil || !strings.Contains(err.Error(), "impossible number of bytes") {
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

var errEnough = errors.New("enough")

// TestCopyContextEnds: the end of the context ends a copy of each kind, one that flows and one whose destination
// takes nothing any more, with the cause, and the bytes that have arrived are counted.
func TestCopyContextEnds(t *testing.T) {
	t.Parallel()

	for _, blocked := range []bool{false, true} {
		eachCopy(t, func(t *testing.T, r *relay.Relay, src io.Reader) {
			near, far := sockets.TCPPair(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			arrived := make(chan int64)
			go func() {
				n, _ := io.CopyN(io.Discard, far, 1<<20)
				if blocked {
					time.AfterFunc(20*time.Millisecond, func() { cancel(errEnough) })
				} else {
					cancel(errEnough)
				}
				<-ctx.Done()
				rest, _ := io.Copy(io.Discard, far)
				arrived <- n + rest
			}()
			n, err := r.CopyContext(ctx, near, src)
			if err != errEnough {
				t.Errorf("the error is %v", err)
			}
			near.Close()
			if got := <-arrived; n != got {
				t.Errorf("%d bytes were copied, %d have arrived", n, got)
			}
		})
	}
}

// TestCopyContextOfTheSilent: a copy ends that waits for a source which sends nothing.
func TestCopyContextOfTheSilent(t *testing.T) {
	t.Parallel()

	for name, n := range map[string]network{"tcp": tcp, "unix": unixStream, "wrapped": wrappedTCP} {
		t.Run(name, func(t *testing.T) {
			_, src := n(t)
			near, _ := sockets.TCPPair(t)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if n, err := relay.CopyContext(ctx, near, src); n != 0 || err != context.DeadlineExceeded {
				t.Errorf("%d bytes, %v", n, err)
			}
			if n, err := relay.CopyContext(ctx, near, src); n != 0 || err != context.DeadlineExceeded {
				t.Errorf("after the end: %d bytes, %v", n, err)
			}
		})
	}
}

// A countingReader has no deadlines and no end. It is not read often in a test.
type countingReader struct {
	reads int
	at    func(reads int)
	empty bool // it reads nothing
}

func (c *countingReader) Read(p []byte) (int, error) {
	if c.reads++; c.reads > 100 {
		return 0, errors.New("there is no end")
	}
	if c.at(c.reads); c.empty {
		return 0, nil
	}
	return len(p), nil
}

func (c *countingReader) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }

func (c *countingReader) Close() error { return nil }

// TestCopyContextWithoutDeadlines: between two calls of ends without deadlines, or with deadlines that fail, the context is asked.
func TestCopyContextWithoutDeadlines(t *testing.T) {
	t.Parallel()

	for name, wrap := range map[string]func(*countingReader) io.Reader{
		"no deadlines": func(r *countingReader) io.Reader { return r },
		"deadlines that fail": func(r *countingReader) io.Reader {
			return struct {
				io.Reader
				deaf
			}{Reader: r}
		},
		"a stream":              func(r *countingReader) io.Reader { return relay.Stream(r) },
		"a limit, and a stream": func(r *countingReader) io.Reader { return io.LimitReader(relay.Stream(r), math.MaxInt64) },
	} {
		for _, empty := range []bool{false, true} {
			ctx, cancel := context.WithCancelCause(t.Context())
			src := &countingReader{empty: empty, at: func(n int) {
				if n == 3 {
					cancel(errEnough)
				}
			}}
			if _, err := relay.CopyContext(ctx, struct{ io.Writer }{io.Discard}, wrap(src)); err != errEnough || src.reads != 3 {
				t.Errorf("%s, of nothing %v: %v after %d reads", name, empty, err, src.reads)
			}
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	src := &countingReader{at: func(int) { cancel(io.EOF) }}
	if _, err := relay.CopyContext(ctx, struct{ io.Writer }{io.Discard}, src); err != io.EOF {
		t.Errorf("canceled with io.EOF: %v", err)
	}
}

// A late connection cancels the context of its copy at its last Write, and returns once its deadline is set.
type late struct {
	net.Conn
	cancel func()
	set    chan struct{}
	panics bool
}

func (l *late) Write(p []byte) (int, error) {
	defer func() { l.cancel(); <-l.set }()
	return len(p), nil
}

func (l *late) SetWriteDeadline(time.Time) error {
	defer close(l.set)
	if l.panics {
		panic("boom")
	}
	return nil
}

// TestCopyContextIsLate: a copy that has set a deadline says so, even if all bytes were copied by then. If setting it panics, the
// copy does.
func TestCopyContextIsLate(t *testing.T) {
	t.Parallel()

	for _, panics := range []bool{false, true} {
		ctx, cancel := context.WithCancelCause(t.Context())
		dst := &late{cancel: func() { cancel(errEnough) }, set: make(chan struct{}), panics: panics}
		func() {
			defer func() {
				if p := recover(); (p == "boom") != panics {
					t.Errorf("recovered %v", p)
				}
			}()
			if n, err := relay.CopyContext(ctx, dst, io.LimitReader(strings.NewReader("last"), 4)); n != 4 || err != errEnough {
				t.Errorf("%d bytes, %v", n, err)
			}
		}()
	}
}

// A panicky reader cancels the context of its copy, and has a deadline that panics.
type panicky struct{ cancel func() }

func (s panicky) Read(p []byte) (int, error) {
	s.cancel()
	return len(p), nil
}

func (panicky) SetReadDeadline(time.Time) error { panic("boom") }

// TestCopyContextWakesWrite: a source whose deadline panics does not keep a Write of the destination waiting.
func TestCopyContextWakesWrite(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	_, dst := net.Pipe()
	over := make(chan any, 1)
	go func() {
		defer func() { over <- recover() }()
		_, _ = relay.CopyContext(ctx, dst, panicky{cancel})
	}()
	if p := condition.Receive(t, "the panic", over); p != "boom" {
		t.Errorf("recovered %v", p)
	}
}

// messages keeps the size of each Write.
type messages []int

func (m *messages) Write(p []byte) (int, error) {
	*m = append(*m, len(p))
	return len(p), nil
}

// A messageConn is a connection that only takes messages.
type messageConn struct {
	net.Conn
	messages
}

func (m *messageConn) Write(p []byte) (int, error) { return m.messages.Write(p) }

// TestCopyIsOneMessage: bytes in memory are one Write, as by io.Copy, also with a context or to a meter.
func TestCopyIsOneMessage(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const size = 50_000
	for _, src := range []func() io.Reader{
		func() io.Reader { return bytes.NewReader(make([]byte, size)) },
		func() io.Reader { return bytes.NewBuffer(make([]byte, size)) },
		func() io.Reader { return strings.NewReader(string(make([]byte, size))) },
		func() io.Reader { return &net.Buffers{make([]byte, size)} },
	} {
		var dst messageConn
		var m relay.Meter
		for _, to := range []io.Writer{&dst.messages, relay.Metered(&dst, &m)} {
			for _, in := range []context.Context{context.Background(), ctx} {
				dst.messages = nil
				if n, err := relay.CopyContext(in, to, src()); n != size || err != nil || !slices.Equal(dst.messages, messages{size}) {
					t.Errorf("%T to %T: %d, %v, writes of %v", src(), to, n, err, dst.messages)
				}
			}
		}
		_, near := tcp(t)
		must.Get(relay.CopyN(relay.Metered(near, &m), src(), 10))(t)
		if _, written := m.Bytes(); written != 2*size+10 {
			t.Errorf("%T: the meter has %d bytes", src(), written)
		}
	}
}

// TestCopyOfNothing: a file with nothing left is not written, so it does not matter where to.
func TestCopyOfNothing(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	src := sparseFile(t, 10)
	for name, end := range map[string]func(c *net.TCPConn){
		"closed": func(c *net.TCPConn) { _ = c.Close() },
		"late":   func(c *net.TCPConn) { _ = c.SetWriteDeadline(longPast) },
		"shut":   func(c *net.TCPConn) { _ = c.CloseWrite() },
	} {
		dst, _ := sockets.TCPPair(t)
		end(dst)
		must.Get(src.Seek(0, io.SeekStart))(t)
		if n, err := r.Copy(dst, src); n != 0 || err == nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		must.Get(src.Seek(0, io.SeekEnd))(t)
		if flow, err := r.Move(dst, src); err != nil || flow.Reason != relay.ReasonEOF {
			t.Errorf("%s: nothing: %+v, %v", name, flow, err)
		}
	}
}

// A timeout is the error of a deadline of another package than net.
type timeout struct{ error }

func (timeout) Timeout() bool { return true }

// slow waits in Read until its deadline is set, and has its own error for that.
type slow struct {
	net.Conn
	read, set chan struct{}
}

func (s slow) Read([]byte) (int, error) {
	close(s.read)
	<-s.set
	return 0, timeout{errors.New("too late")}
}

func (s slow) SetReadDeadline(time.Time) error { close(s.set); return nil }

// TestCopyContextTimeout: an error of a connection's own says that the context has ended, if its deadline was set for that.
func TestCopyContextTimeout(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancelCause(t.Context())
	src := slow{read: make(chan struct{}), set: make(chan struct{})}
	go func() { <-src.read; cancel(errEnough) }()
	if _, err := relay.CopyContext(ctx, io.Discard, src); err != errEnough {
		t.Error(err)
	}
}

// TestCopyContextSendsFile: a limited file is sent without a buffer, as by Copy.
func TestCopyContextSendsFile(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	near, far := sockets.TCPPair(t)
	go func() { _, _ = io.Copy(io.Discard, far) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	src := &io.LimitedReader{R: sparseFile(t, 1<<20), N: 100_000}
	n, err := r.CopyContext(ctx, near, src)
	if b := r.Stats().Buffers; n != 100_000 || err != nil || src.N != 0 || b.Hits+b.Misses != 0 {
		t.Errorf("%d bytes, %v, %d left, %+v", n, err, src.N, b)
	}
}

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
	f := must.Get(os.Create(filepath.Join(t.TempDir(), "sparse")))(t)
	t.Cleanup(func() { f.Close() })
	must.Do(t, f.Truncate(size))
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

// writerFunc is a Write.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestCopyErrorIsOpError: the error of a connection is of the type that io.Copy returns, and says which it is.
func TestCopyErrorIsOpError(t *testing.T) {
	t.Parallel()

	for name, copyAll := range map[string]oneWay{"io": io.Copy, "relay": relay.Copy} {
		for _, want := range []error{os.ErrDeadlineExceeded, syscall.ECONNRESET} {
			far, src := tcp(t)
			_, dst := tcp(t)
			if want == syscall.ECONNRESET {
				abort(t, far)
			} else {
				_ = src.SetReadDeadline(longPast)
			}
			_, err := copyAll(dst, src)
			if e, ok := err.(*net.OpError); !ok || !strings.HasPrefix(e.Net, "tcp") || e.Source == nil || e.Addr == nil || !errors.Is(err, want) {
				t.Errorf("%s: %T: %v, want %v", name, err, err, want)
			}
		}
	}
}

// TestCopyWriteDeadline: a write deadline ends a copy whose source and destination never block. Past it nothing is written.
func TestCopyWriteDeadline(t *testing.T) {
	t.Parallel()

	for _, in := range []time.Duration{-time.Hour, 20 * time.Millisecond} {
		eachCopy(t, func(t *testing.T, r *relay.Relay, src io.Reader) {
			dst, out := tcp(t)
			go io.Copy(io.Discard, out)
			_ = dst.SetWriteDeadline(time.Now().Add(in))
			n, err := r.CopyN(dst, src, 1<<40)
			timedOut(t, err, "write")
			if in < 0 && n != 0 {
				t.Errorf("%d bytes written", n)
			}
		})
	}
}

// TestCopyFileErrors: an error of a file is one of package os.
func TestCopyFileErrors(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "f")
	must.Do(t, os.WriteFile(path, []byte("hello"), 0o600))
	f := must.Get(os.Open(path))(t)
	defer f.Close()
	in, src := tcp(t)
	_, _ = in.Write([]byte("x"))
	for _, e := range engines {
		_, err := newRelay(t, &relay.Config{Engine: e}).Copy(f, src)
		var pathErr *os.PathError
		if !errors.As(err, &pathErr) || pathErr.Path != path || strings.Count(err.Error(), "write ")+strings.Count(err.Error(), "splice ") != 1 {
			t.Errorf("%v: %v, want an error of %s, its operation once", e, err, path)
		}
		_, _ = in.Write([]byte("x"))
	}
}

// leases returns how often the default relay has leased a pipe.
func leases(t *testing.T) int64 {
	t.Helper()
	r := must.Get(relay.Default())(t)
	s := r.Stats().Pipes
	return int64(s.Made + s.Reused)
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
		got := collect(out)
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
