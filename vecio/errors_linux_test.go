package vecio_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/vecio"
)

// onBoth runs a test on a connection and on its descriptor. flush continues until the
// writer has written all or failed.
func onBoth(t *testing.T, test func(t *testing.T, open func(c net.Conn) *vecio.Writer, flush func(*vecio.Writer) error)) {
	t.Helper()
	cfg := &vecio.Config{CopyBelow: -1}
	t.Run("conn", func(t *testing.T) {
		test(t, func(c net.Conn) *vecio.Writer { return newWriter(t, c, cfg) }, (*vecio.Writer).Flush)
	})
	t.Run("socket", func(t *testing.T) {
		test(t, func(c net.Conn) *vecio.Writer { return newSocket(t, c.(syscall.Conn), cfg) }, flushed)
	})
}

// flushed flushes a writer that never waits until it has written all or failed.
func flushed(w *vecio.Writer) error {
	for {
		if err := w.Flush(); err != vecio.ErrBlocked {
			return err
		}
		time.Sleep(time.Millisecond) // a peer reads meanwhile
	}
}

// failure checks that a Flush failed with that cause, all owned pieces are back and the
// writer stays failed.
func failure(t *testing.T, w *vecio.Writer, err error, cause syscall.Errno, back, owned int) *vecio.WriteError {
	t.Helper()
	var failed *vecio.WriteError
	if !errors.As(err, &failed) || !errors.Is(err, cause) {
		t.Fatalf("%v, want a WriteError of %v", err, cause)
	}
	if back != owned || w.Pending() != 0 || failed.Written != w.Stats().Written {
		t.Errorf("%d of %d pieces are back, %d bytes pending, %d written in the error and %d in Stats",
			back, owned, w.Pending(), failed.Written, w.Stats().Written)
	}
	var refused count
	for what, got := range map[string]error{"Flush": w.Flush(), "Append": w.Append(nil), "AppendString": w.AppendString("x"), "Own": w.Own([]byte("x"), &refused)} {
		if got != err {
			t.Errorf("%s of a failed writer: %v", what, got)
		}
	}
	if refused.n != 1 {
		t.Errorf("an owned piece that was refused was given back %d times", refused.n)
	}
	return failed
}

// forbidden returns n readable bytes, followed by n bytes that cannot be read.
func forbidden(t *testing.T, n int) []byte {
	t.Helper()
	b := must.Get(sys.MmapAnonymous(2*n, sys.PROT_READ|sys.PROT_WRITE, sys.MAP_PRIVATE))(t)
	t.Cleanup(func() { must.Do(t, sys.Munmap(b)) })
	copy(b, bytes.Repeat([]byte("good"), n/4))
	must.Do(t, syscall.Mprotect(b[n:], syscall.PROT_NONE))
	return b
}

// TestEFAULT: the error names a piece in memory that cannot be read, whatever the kernel
// would have put into one segment with it. The bytes before that piece arrive.
func TestEFAULT(t *testing.T) {
	const n = 64 << 10
	onBoth(t, func(t *testing.T, open func(net.Conn) *vecio.Writer, flush func(*vecio.Writer) error) {
		for name, c := range map[string]struct {
			pieces  func(bad []byte) [][]byte
			piece   int64
			written int64 // at least: TCP may take the bytes of the piece before the fault
			most    int64
		}{
			"first":         {func(b []byte) [][]byte { return [][]byte{b[n:][:100], {1}} }, 0, 0, 0},
			"second":        {func(b []byte) [][]byte { return [][]byte{{1}, b[n:], {2}} }, 1, 1, 1},
			"among many":    {func(b []byte) [][]byte { return [][]byte{b[:10], b[:3000], nil, {1}, b[n : n+1], {2}} }, 4, 3011, 3011},
			"from a middle": {func(b []byte) [][]byte { return [][]byte{b[:10], b, {2}} }, 1, 10, 10 + n},
		} {
			t.Run(name, func(t *testing.T) {
				a, b := sockets.TCPPair(t)
				w := open(a)
				var back count
				bad := forbidden(t, n)
				pieces, all := c.pieces(bad), []byte(nil)
				for _, p := range pieces {
					must.Do(t, w.Own(p, &back))
				}
				for _, p := range pieces[:c.piece] {
					all = append(all, p...)
				}
				failed := failure(t, w, flush(w), syscall.EFAULT, back.n, len(pieces))
				if failed.Piece != c.piece || failed.Written < c.written || failed.Written > c.most || failed.Offset != failed.Written-c.written {
					t.Errorf("%+v", failed)
				}
				a.Close()
				got := must.Get(io.ReadAll(b))(t)
				if int64(len(got)) != failed.Written || !bytes.Equal(got[:c.written], all) {
					t.Errorf("%d bytes arrived, %d are written", len(got), failed.Written)
				}
			})
		}
	})
}

// TestEPIPE: after a shutdown nothing is written, and no signal is raised.
func TestEPIPE(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE)
	defer signal.Stop(signals)
	onBoth(t, func(t *testing.T, open func(net.Conn) *vecio.Writer, flush func(*vecio.Writer) error) {
		for name, pair := range map[string]func() net.Conn{
			"TCP":  func() net.Conn { a, _ := sockets.TCPPair(t); must.Do(t, a.CloseWrite()); return a },
			"unix": func() net.Conn { a, b := sockets.UnixPair(t); must.Do(t, b.Close()); return a },
		} {
			t.Run(name, func(t *testing.T) {
				w := open(pair())
				var back count
				must.Do(t, w.Append(nil), w.Own([]byte("x"), &back))
				if failed := failure(t, w, flush(w), syscall.EPIPE, back.n, 1); failed.Piece != 1 || failed.Written != 0 || failed.Op != "sendmsg" {
					t.Errorf("%+v", failed)
				}
			})
		}
	})
	// Copied bytes go by another call.
	a, _ := sockets.TCPPair(t)
	must.Do(t, a.CloseWrite())
	w := newWriter(t, a, nil)
	must.Do(t, w.AppendString("x"))
	failure(t, w, w.Flush(), syscall.EPIPE, 0, 0)
	select {
	case <-signals:
		t.Error("SIGPIPE")
	default:
	}
}

// datagrams are two sockets of datagrams.
func datagrams(t *testing.T) (a *net.UnixConn, b *net.UnixConn) {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) *net.UnixAddr {
		return &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unixgram"}
	}
	b = must.Get(net.ListenUnixgram("unixgram", at("b")))(t)
	t.Cleanup(func() { b.Close() })
	a = must.Get(net.DialUnix("unixgram", nil, at("b")))(t)
	t.Cleanup(func() { a.Close() })
	return a, b
}

// TestEMSGSIZE: a datagram is never divided: one that is too long, or of too many
// pieces, is refused by the kernel, and nothing of it is sent.
func TestEMSGSIZE(t *testing.T) {
	onBoth(t, func(t *testing.T, open func(net.Conn) *vecio.Writer, flush func(*vecio.Writer) error) {
		udp := must.Get(net.Dial("udp4", "127.0.0.1:9"))(t)
		defer udp.Close()
		w := open(udp)
		var back count
		must.Do(t, w.Append([]byte("header")), w.Own(make([]byte, 100_000), &back))
		if failed := failure(t, w, flush(w), syscall.EMSGSIZE, back.n, 1); failed.Piece != 0 || failed.Written != 0 {
			t.Errorf("%+v", failed)
		}

		a, b := datagrams(t)
		w = open(a)
		for range sys.IOV_MAX {
			must.Do(t, w.Append([]byte("x")))
		}
		must.Do(t, flush(w))
		for range sys.IOV_MAX + 1 {
			must.Do(t, w.Append([]byte("y")))
		}
		if failed := failure(t, w, flush(w), syscall.EMSGSIZE, 0, 0); failed.Piece != sys.IOV_MAX || failed.Written != sys.IOV_MAX {
			t.Errorf("%+v", failed)
		}
		must.Do(t, a.Close(), b.SetReadDeadline(time.Now().Add(condition.Patience)))
		buf := make([]byte, 10_000)
		if n, err := b.Read(buf); n != sys.IOV_MAX || err != nil {
			t.Errorf("a datagram of %d bytes, %v", n, err)
		}
	})
}

// TestDatagramAtTheMark: a single message is not divided to make room.
func TestDatagramAtTheMark(t *testing.T) {
	a, b := datagrams(t)
	w := newWriter(t, a, &vecio.Config{High: 10})
	must.Do(t, w.AppendString("123456789"))
	if err := w.AppendString("10"); err != vecio.ErrFull {
		t.Errorf("a piece beyond the mark: %v", err)
	}
	must.Do(t, w.Flush(), w.AppendString("10"), w.Flush())
	buf := make([]byte, 100)
	for _, want := range []string{"123456789", "10"} {
		if n, err := b.Read(buf); string(buf[:n]) != want || err != nil {
			t.Errorf("%q, %v, want %q", buf[:n], err, want)
		}
	}
}

// failing is a Writer that takes a given number of bytes, then answers with its given
// count and error.
type failing struct {
	take int
	n    func(int) int
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	n := min(len(p), f.take)
	if f.take -= n; n == len(p) {
		return n, nil
	}
	return f.n(n), f.err
}

// TestCoalescedErrors: the error reports exactly the answer of Write, sensible or not.
func TestCoalescedErrors(t *testing.T) {
	same := func(n int) int { return n }
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		sink    *failing
		cause   error
		written int64
	}{
		"an error":                             {&failing{7, same, boom}, boom, 7},
		"nothing at all":                       {&failing{0, same, boom}, boom, 0},
		"short without an error":               {&failing{7, same, nil}, io.ErrShortWrite, 7},
		"more than there was":                  {&failing{7, func(int) int { return 1 << 30 }, nil}, nil, 0},
		"less than nothing":                    {&failing{7, func(int) int { return -1 }, boom}, nil, 0},
		"an error of the last":                 {&failing{19, same, boom}, boom, 19},
		"EAGAIN, which is none of its answers": {&failing{7, same, os.NewSyscallError("write", syscall.EAGAIN)}, syscall.EAGAIN, 7},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t, c.sink, &vecio.Config{CopyBelow: 4})
			var back count
			must.Do(t, w.Own([]byte("0123456789"), &back), w.Own([]byte("abc"), &back), w.Own([]byte("ABCDEFG"), &back))
			err := w.Flush()
			var failed *vecio.WriteError
			if !errors.As(err, &failed) || failed.Written != c.written || failed.Op != "write" {
				t.Fatalf("%v", err)
			}
			if c.cause != nil && !errors.Is(err, c.cause) {
				t.Errorf("%v, want %v", err, c.cause)
			}
			piece, offset := int64(0), c.written
			if c.written == 19 {
				piece, offset = 2, 6
			}
			if failed.Piece != piece || failed.Offset != offset || failed.Pieces != 3 || back.n != 3 {
				t.Errorf("%+v, %d back", failed, back.n)
			}
			if again := w.Flush(); again != err {
				t.Errorf("again: %v", again)
			}
		})
	}
}
