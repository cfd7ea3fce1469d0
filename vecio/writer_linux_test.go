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

	"pgregory.net/rapid"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/zero"
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
	return must.Get(vecio.New(dst, cfg))(t)
}

func newSocket(t testing.TB, c syscall.Conn, cfg *vecio.Config) *vecio.Writer {
	t.Helper()
	return must.Get(vecio.NewSocket(sockets.FD(t, c), cfg))(t)
}

// received reads n bytes from c.
func received(t testing.TB, c io.Reader, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	must.Get(io.ReadFull(c, b))(t)
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
			must.Do(t, a.SetWriteBuffer(1<<20))
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
			must.Do(t, w.AppendString("header"), w.Own(payload, &back), w.Append(nil), w.Append([]byte("trailer")), w.Flush())
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
			must.Do(t, w.Close())
			if err := w.Append([]byte{1}); err != vecio.ErrClosed {
				t.Errorf("after Close: %v", err)
			}
			if err := w.Close(); err != vecio.ErrClosed {
				t.Errorf("a second Close: %v", err)
			}
		})
	}
}

// TestMadeBlocking: a writer that never waits does not wait either after its descriptor
// was made blocking.
func TestMadeBlocking(t *testing.T) {
	for _, below := range []int{-1, 1 << 20} {
		a, b := sockets.TCPPair(t)
		w := newSocket(t, a, &vecio.Config{CopyBelow: below})
		must.Do(t, syscall.SetNonblock(sockets.FD(t, a), false))
		giveUp := time.AfterFunc(10*time.Second, func() { _ = b.SetLinger(0); b.Close() })
		piece := make([]byte, 60_000)
		err := error(nil)
		for err == nil {
			must.Do(t, w.Append(piece))
			err = w.Flush()
		}
		if !giveUp.Stop() || err != vecio.ErrBlocked {
			t.Errorf("copied below %d: %v", below, err)
		}
		must.Do(t, syscall.SetNonblock(sockets.FD(t, a), true))
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
			must.Do(t, w.AppendString("header"), w.Own(data, &back))
			must.Do(t, a.SetWriteDeadline(time.Now().Add(500*time.Millisecond)))
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
			must.Is(t, w.Flush(), os.ErrDeadlineExceeded)
			must.Do(t, a.SetWriteDeadline(time.Time{}))
			got := make(chan []byte)
			go func() {
				b, _ := io.ReadAll(b)
				got <- b
			}()
			must.Do(t, w.Flush(), a.CloseWrite())
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
	must.Do(t, w.Own(make([]byte, 64<<20), &back))
	done := make(chan error)
	go func() { done <- w.Flush() }()
	time.AfterFunc(20*time.Millisecond, func() { a.Close() }) // before or after it waits
	if err := <-done; !errors.Is(err, net.ErrClosed) || back.n != 1 || w.Pending() != 0 {
		t.Errorf("%v, %d pieces back, %d bytes pending", err, back.n, w.Pending())
	}
	must.Is(t, w.Append(nil), net.ErrClosed)
	must.Do(t, w.Close())
}

// TestFileClosedMeanwhile: the error of a Flush to a file that is closed names that as the file's own Write does.
func TestFileClosedMeanwhile(t *testing.T) {
	r, p, err := os.Pipe()
	must.Do(t, err)
	defer r.Close()
	w := newWriter(t, p, nil)
	must.Do(t, w.AppendString("late"), p.Close())
	must.Is(t, w.Flush(), os.ErrClosed)
	_ = w.Close()
}

// TestReset: a writer that has failed, or has something pending, is as new.
func TestReset(t *testing.T) {
	a, b := sockets.TCPPair(t)
	c, d := sockets.UnixPair(t)
	w := newWriter(t, a, nil)
	var back count
	must.Do(t, w.Own([]byte("never written"), &back), w.Reset(c))
	if back.n != 1 || w.Pending() != 0 || w.Stats().Pieces != 0 {
		t.Errorf("%d back, %d pending, %+v", back.n, w.Pending(), w.Stats())
	}
	must.Do(t, w.AppendString("one"), w.Flush(), w.Close(), w.ResetSocket(sockets.FD(t, a)), w.AppendString("two"), w.Flush())
	if got := string(received(t, d, 3)) + string(received(t, b, 3)); got != "onetwo" {
		t.Errorf("got %q", got)
	}
	for _, none := range []io.Writer{nil, (*net.TCPConn)(nil), (*net.UnixConn)(nil), (*os.File)(nil)} {
		if _, err := vecio.New(none, nil); err == nil || !strings.Contains(err.Error(), "the Writer has no destination") {
			t.Errorf("%T: %v", none, err)
		}
	}
	if err := w.Reset(nil); err == nil || w.Flush() == nil {
		t.Error("a writer to nil")
	}
	must.Do(t, w.Reset(a))
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
	must.Do(t, w.Reset(&b), w.AppendString("hello"), w.AppendString(", world"), w.Flush())
	if s := w.Stats(); b.String() != "hello, world" || s.Copied != 2 || s.Calls != 1 {
		t.Errorf("%q, %+v", b.String(), s)
	}
	must.Do(t, w.Close())
}

// TestNoReleaser: an owned piece without a Releaser is refused.
func TestNoReleaser(t *testing.T) {
	var b bytes.Buffer
	w := newWriter(t, &b, nil)
	if err := w.Own([]byte("x"), nil); err == nil {
		t.Error("nil is a Releaser")
	}
	must.Do(t, w.Own([]byte("y"), vecio.ReleaseFunc(nil)), w.Flush(), w.Close())
	if err := w.Own(nil, nil); b.String() != "y" || err != vecio.ErrClosed {
		t.Errorf("%q, %v after Close", b.String(), err)
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
	must.Do(t, newWriter(t, io.Discard, &vecio.Config{Low: 2 << 20}).Close()) // High follows
	must.Fail(vecio.NewSocket(-1, nil))(t, syscall.EBADF)
	f := must.Get(os.Open(os.DevNull))(t)
	defer f.Close()
	if _, err := vecio.NewSocket(sockets.FD(t, f), nil); err == nil {
		t.Error("a descriptor that may block is taken")
	}
	a, _ := sockets.TCPPair(t)
	a.Close()
	must.Fail(vecio.New(a, nil))(t, net.ErrClosed)
}

// TestMarksRefuse: a writer that never waits refuses pieces from the high mark on until
// no more than the low one is pending.
func TestMarksRefuse(t *testing.T) {
	room := 0
	w := must.Get(vecio.NewScripted(func(views [][]byte) (int, error) {
		n := 0
		for _, v := range views {
			n += len(v)
		}
		n = min(n, room)
		if room -= n; n == 0 {
			return 0, syscall.EAGAIN
		}
		return n, nil
	}, &vecio.Config{High: 100, Low: 40}))(t)
	must.Do(t, w.Append(make([]byte, 60)), w.Append(make([]byte, 40)))
	for _, c := range []struct {
		room, n int
		full    bool
	}{
		{0, 1, true},
		{30, 1, true}, // 70 pending: it would fit
		{29, 1, true},
		{1, 1, false}, // 40 pending
		{0, 59, false},
		{0, 1, true},
		{60, 101, true}, // longer than the mark, with something pending
	} {
		room = c.room
		if err := w.Flush(); err != vecio.ErrBlocked {
			t.Fatal(err)
		}
		if err := w.Append(make([]byte, c.n)); err != nil && err != vecio.ErrFull || (err == vecio.ErrFull) != c.full {
			t.Errorf("%+v with %d bytes pending: %v", c, w.Pending(), err)
		}
	}
	room = 1 << 20
	must.Do(t, w.Flush(), w.Append(make([]byte, 101)), w.Flush()) // alone it is taken
	if s := w.Stats(); s.Refused != 5 || s.Waits != 0 {
		t.Errorf("%+v", s)
	}
}

// TestMarksWait: with a slow peer, a writer that may wait never has more pending than the
// high mark. Its producer goes at the peer's pace.
func TestMarksWait(t *testing.T) {
	a, b := sockets.TCPPair(t)
	const high, low, total = 100_000, 30_000, 20 << 20
	w := newWriter(t, a, &vecio.Config{High: high, Low: low})
	data := random(total)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+len(rest)%7000)
			if err := w.Append(rest[:n]); err != nil {
				t.Error(err)
				break
			}
			if w.Pending() > high {
				t.Errorf("%d bytes pending", w.Pending())
			}
			rest = rest[n:]
		}
		if err := w.Flush(); err != nil {
			t.Error(err)
		}
		a.CloseWrite()
	}()
	got, err := io.ReadAll(b)
	if err != nil || string(got) != string(data) {
		t.Errorf("%d bytes arrived of %d, %v", len(got), len(data), err)
	}
	<-done
	if s := w.Stats(); s.Waits < total/high {
		t.Errorf("%+v", s)
	}
}

// TestWaitsForLow: a writer that may wait continues when no more than the low mark is
// pending, however little the peer reads then.
func TestWaitsForLow(t *testing.T) {
	a, b := sockets.TCPPair(t)
	must.Do(t, a.SetWriteBuffer(64<<10), b.SetReadBuffer(64<<10))
	const high, low = 8 << 20, 4 << 20
	w := newWriter(t, a, &vecio.Config{High: high, Low: low})
	must.Do(t, w.Append(make([]byte, high)))
	must.Do(t, a.SetWriteDeadline(time.Now().Add(condition.Patience)))
	go func() { _, _ = io.CopyN(io.Discard, b, high-low) }()
	if err := w.AppendString("x"); err != nil || w.Pending() > low+1 || w.Pending() < low/2 {
		t.Errorf("%v with %d bytes pending", err, w.Pending())
	}
	_ = w.Close() // reports that bytes were pending
}

// TestManyOwnedPieces: nor can owned pieces be without number that are short, or empty.
func TestManyOwnedPieces(t *testing.T) {
	for _, piece := range []string{"", "x"} {
		w := must.Get(vecio.NewScripted(func([][]byte) (int, error) { return 0, syscall.EAGAIN }, nil))(t)
		must.Do(t, w.AppendString("y"))
		var back count
		const n = 1 << 16
		for range n {
			must.Do(t, w.Own([]byte(piece), &back))
		}
		if room := w.Room(); room != 0 || w.Own([]byte(piece), &back) != vecio.ErrFull {
			t.Errorf("one more owned piece of %d bytes is taken, or there is room for %d bytes", len(piece), room)
		}
		if back.n != 1 {
			t.Errorf("%d pieces are back, want the refused one", back.n)
		}
		must.Do(t, w.Reset(io.Discard))
		if back.n != n+1 {
			t.Errorf("%d of %d pieces are back", back.n, n)
		}
	}
	lengths := must.Get(vecio.NewScripted(func([][]byte) (int, error) { return 0, syscall.EAGAIN }, nil))(t)
	n := 0
	for n < 1<<17 && lengths.Append(make([]byte, 1-n%2)) == nil { // nobody is to be given anything back
		n++
	}
	if err := lengths.Append(nil); n != 1<<16 || err != vecio.ErrFull {
		t.Errorf("%d pieces are taken, %v", n, err)
	}
	must.Do(t, lengths.Reset(io.Discard))
	a, b := sockets.TCPPair(t)
	w := newWriter(t, a, &vecio.Config{Low: vecio.DefaultHigh}) // one that may wait
	var back count
	for range 1<<16 + 1 {
		must.Do(t, w.AppendString("y"), w.Own(nil, &back))
	}
	if s := w.Stats(); s.Waits == 0 || back.n < 1<<16 {
		t.Errorf("%d pieces are back, %+v", back.n, s)
	}
	must.Do(t, w.Flush())
	received(t, b, 1<<16+1)
}

// TestRoom: a writer takes as many bytes as Room returns, and refuses one byte more.
func TestRoom(t *testing.T) {
	w := must.Get(vecio.NewScripted(func([][]byte) (int, error) { return 0, syscall.EAGAIN }, &vecio.Config{High: 1000}))(t)
	for _, n := range []int{1, 300, 0, 650} {
		before := w.Room()
		must.Do(t, w.Append(make([]byte, n)))
		if w.Room() != before-n {
			t.Fatalf("room for %d after %d of %d", w.Room(), n, before)
		}
	}
	if err := w.Append(make([]byte, w.Room()+1)); err != vecio.ErrFull {
		t.Fatal(err)
	}
	if n := w.Room(); n != 0 {
		t.Errorf("room for %d after it was full", n)
	}
	_ = w.Close() // reports that bytes were pending
	if n := w.Room(); n != 0 {
		t.Errorf("room for %d after it was closed", n)
	}
}

// TestParsePolicy parses each name, and one that is no policy.
func TestParsePolicy(t *testing.T) {
	for _, p := range []vecio.Policy{vecio.Latency, vecio.Batch, vecio.Adaptive} {
		if got, err := vecio.ParsePolicy(p.String()); got != p || err != nil {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	if _, err := vecio.ParsePolicy("fast"); err == nil {
		t.Error("fast is a policy")
	}
}

// A sink is a kernel, or a Write, that gives any permitted answer at random, and keeps
// the bytes that it has taken.
type sink struct {
	t    *rapid.T
	got  []byte
	dead bool // it has answered with an error that is one

	calls, blocked, retried int64
}

var errDead = syscall.ECONNRESET

func (s *sink) take(t *rapid.T, p []byte) int {
	n := len(p)
	switch rapid.IntRange(0, 3).Draw(t, "how much") {
	case 0:
		n = rapid.IntRange(0, len(p)).Draw(t, "some")
	case 1:
		n = min(n, 1)
	}
	s.got = append(s.got, p[:n]...)
	return n
}

// kernel answers a gathered write.
func (s *sink) kernel(pieces [][]byte) (int, error) {
	s.calls++
	if len(pieces) == 0 || len(pieces) > 1024 {
		s.t.Fatalf("%d pieces in one call", len(pieces))
	}
	all := bytes.Join(pieces, nil)
	for _, p := range pieces {
		if len(p) == 0 {
			s.t.Fatal("an empty piece in a call")
		}
	}
	switch rapid.IntRange(0, 19).Draw(s.t, "answer") {
	case 0, 1, 2, 3:
		s.blocked++
		return 0, syscall.EAGAIN
	case 4, 5:
		s.retried++
		return 0, syscall.EINTR
	case 6:
		s.dead = true
		return 0, errDead
	}
	n := s.take(s.t, all)
	if n == 0 {
		s.blocked++
		return 0, syscall.EAGAIN
	}
	return n, nil
}

// Write answers a coalesced writer. Only a deadline interrupts it without failing.
func (s *sink) Write(p []byte) (int, error) {
	s.calls++
	switch n := s.take(s.t, p); {
	case n == len(p):
		return n, nil
	case rapid.IntRange(0, 3).Draw(s.t, "answer") == 0:
		s.dead = true
		return n, errDead
	default:
		return n, os.ErrDeadlineExceeded
	}
}

// A model is the state that a writer must have.
type model struct {
	sink
	w   *vecio.Writer
	cfg vecio.Config

	all    []byte  // of the pieces that were taken
	ends   []int64 // where each of them ends
	begin  int     // written before the last failure or Reset: where all begins in got
	owned  []*lease
	failed error
}

// A lease is an owned piece.
type lease struct {
	t     *rapid.T
	m     *model
	piece []byte
	end   int64
	back  int
}

func (l *lease) Release(p []byte) {
	l.back++
	if l.back > 1 || len(p) != len(l.piece) || cap(p) != cap(l.piece) {
		l.t.Fatalf("a piece of %d bytes is given back as %d, for the %d. time", len(l.piece), len(p), l.back)
	}
	clear(p) // a later read of it is wrong
}

func (m *model) piece(t *rapid.T) []byte {
	n := 0
	switch rapid.IntRange(0, 5).Draw(t, "size") {
	case 0:
	case 1:
		n = rapid.IntRange(1, 10_000).Draw(t, "large")
	default:
		n = rapid.IntRange(1, 64).Draw(t, "small")
	}
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(len(m.all) + i*7 + n)
	}
	return p
}

// took notes the outcome of a piece.
func (m *model) took(t *rapid.T, p []byte, err error) bool {
	switch {
	case m.failed != nil && err != m.failed:
		t.Fatalf("%v from a writer that has failed with %v", err, m.failed)
	case m.failed != nil:
		return false
	case err == vecio.ErrFull:
		if n := m.w.Pending(); n+len(p) <= m.cfg.High && n <= m.cfg.Low || n == 0 {
			t.Fatalf("a piece of %d bytes is refused with %d pending", len(p), n)
		}
		return false
	case err != nil:
		m.met(t, err)
		return false
	}
	m.all = append(m.all, p...)
	m.ends = append(m.ends, int64(len(m.all)))
	return true
}

// met notes the outcome of a call.
func (m *model) met(t *rapid.T, err error) {
	var e *vecio.WriteError
	switch {
	case err == nil, err == vecio.ErrBlocked:
		return
	case !errors.As(err, &e):
		t.Fatalf("%v", err)
	}
	written := int64(len(m.got) - m.begin)
	piece, start := int64(0), int64(0)
	for _, end := range m.ends {
		if end > written {
			break
		}
		piece, start = piece+1, end
	}
	offset := written - start
	if e.Written != written || e.Piece != piece || e.Offset != offset || e.Pieces != int64(len(m.ends)) {
		t.Fatalf("%+v, want %d bytes written and piece %d of %d, from %d on", *e, written, piece, len(m.ends), offset)
	}
	if m.dead {
		m.failed = err
		must.Is(t, err, errDead)
	} else if !e.Timeout() {
		t.Fatalf("%v", err)
	}
}

// check holds the writer against the model.
func (m *model) check(t *rapid.T) {
	written := len(m.got) - m.begin
	if written > len(m.all) {
		t.Fatalf("%d bytes written of %d", written, len(m.all))
	}
	if s := m.w.Stats(); s.Written != int64(written) || s.Pieces != int64(len(m.ends)) || s.Copied+s.Refs != s.Pieces || s.CopiedBytes+s.RefBytes != int64(len(m.all)) {
		t.Fatalf("%d bytes of %d pieces written: %+v", written, len(m.ends), s)
	}
	pending := len(m.all) - written
	if m.failed != nil {
		pending = 0
	}
	if n := m.w.Pending(); n != pending {
		t.Fatalf("%d bytes pending, want %d", n, pending)
	}
	if (pending == 0) != m.w.Idle() {
		t.Fatalf("with %d bytes pending: idle is %v", pending, m.w.Idle())
	}
	for _, l := range m.owned {
		if done := m.failed != nil || l.end <= int64(written); done != (l.back == 1) {
			t.Fatalf("a piece that ends at %d was given back %d times with %d bytes written", l.end, l.back, written)
		}
	}
}

// verify compares the bytes once nothing more is written of them.
func (m *model) verify(t *rapid.T) {
	if got := m.got[m.begin:]; !bytes.Equal(got, m.all[:len(got)]) {
		t.Fatal("the sink got something else than was appended")
	}
}

// TestModel: any pieces, owned or not, through any answers of a kernel or a Write: the
// bytes in order, each exactly once; each owned piece back exactly once, no earlier than
// written and no later than in the call that wrote it; errors exact to the byte.
func TestModel(t *testing.T) {
	for name, open := range map[string]func(m *model) (*vecio.Writer, error){
		"kernel": func(m *model) (*vecio.Writer, error) { return vecio.NewScripted(m.kernel, &m.cfg) },
		"Write":  func(m *model) (*vecio.Writer, error) { return vecio.New(&m.sink, &m.cfg) },
	} {
		t.Run(name, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { play(t, open) }) })
	}
}

func play(t *rapid.T, open func(m *model) (*vecio.Writer, error)) {
	m := &model{}
	m.t = t
	m.cfg.CopyBelow = rapid.SampledFrom([]int{-1, 1, 16, 64, 5000, 1 << 20}).Draw(t, "copy below")
	m.cfg.High = rapid.SampledFrom([]int{1, 100, 20_000, 1 << 20}).Draw(t, "high")
	m.cfg.Low = rapid.IntRange(0, m.cfg.High).Draw(t, "low")
	start := func(t *rapid.T) {
		w := must.Get(open(m))(t)
		m.w = w
	}
	start(t)
	forget := func() {
		m.begin, m.all, m.ends, m.owned, m.failed, m.dead = len(m.got), nil, nil, nil, nil, false
	}
	t.Repeat(map[string]func(*rapid.T){
		"append": func(t *rapid.T) {
			p := m.piece(t)
			m.took(t, p, m.w.Append(p))
			if len(p) < m.cfg.CopyBelow {
				clear(p) // a short one was copied
			}
		},
		"many": func(t *rapid.T) {
			for range rapid.IntRange(1000, 3000).Draw(t, "many") {
				p := []byte{byte(len(m.all))}
				if !m.took(t, p, m.w.Append(p)) {
					return
				}
			}
		},
		"string": func(t *rapid.T) {
			p := m.piece(t)
			m.took(t, p, m.w.AppendString(string(p)))
		},
		"copy": func(t *rapid.T) {
			p := m.piece(t)
			m.took(t, bytes.Clone(p), m.w.AppendCopy(p))
			clear(p)
		},
		"own": func(t *rapid.T) {
			p := m.piece(t)
			l := &lease{t: t, m: m, piece: p}
			saved := bytes.Clone(p)
			taken := m.took(t, saved, m.w.Own(p, l))
			if l.end = int64(len(m.all)); taken {
				m.owned = append(m.owned, l)
			} else if l.back != 1 {
				t.Fatalf("a piece that was not taken is given back %d times", l.back)
			}
		},
		"flush": func(t *rapid.T) {
			err := m.w.Flush()
			if m.failed == nil {
				m.met(t, err)
			} else if err != m.failed {
				t.Fatalf("%v from a writer that has failed with %v", err, m.failed)
			}
			if err == nil && m.w.Pending() != 0 {
				t.Fatalf("%d bytes pending after Flush", m.w.Pending())
			}
		},
		"close": func(t *rapid.T) {
			pending := m.w.Pending()
			err := m.w.Close()
			var e *vecio.WriteError
			if (pending > 0) != errors.As(err, &e) || pending == 0 && err != nil || pending > 0 && e.Written != int64(len(m.got)-m.begin) {
				t.Fatalf("Close with %d bytes pending: %v", pending, err)
			}
			m.verify(t)
			for _, l := range m.owned {
				if l.back != 1 {
					t.Fatalf("a piece was given back %d times after Close", l.back)
				}
			}
			if m.w.Flush() != vecio.ErrClosed || m.w.Append(nil) != vecio.ErrClosed {
				t.Fatal("a closed writer writes")
			}
			forget()
			start(t)
		},
		"": m.check,
	})
	m.verify(t)
	must.Do(t, m.w.Reset(io.Discard))
	for _, l := range m.owned {
		if l.back != 1 {
			t.Fatalf("a piece was given back %d times in the end", l.back)
		}
	}
}

// TestZeroValues: methods of zero values return.
func TestZeroValues(t *testing.T) {
	zero.Methods(t, map[string]string{}, new(vecio.Writer), new(vecio.Policy), new(vecio.Path), new(vecio.ReleaseFunc))
}

func TestMain(m *testing.M) { leak.Main(m) }
