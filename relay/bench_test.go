package relay_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/paired"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// A oneWay copies from src to dst until the end.
type oneWay func(dst io.Writer, src io.Reader) (int64, error)

// BenchmarkCopyPaired compares Relay.Copy with io.Copy, round by round in one run,
// see [paired.Run]. One operation is a round of both.
func BenchmarkCopyPaired(b *testing.B) {
	const n = 32 << 20
	path := filepath.Join(b.TempDir(), "in")
	must.Do(b, os.WriteFile(path, make([]byte, n), 0o600))
	r := newRelay(b, nil)
	for _, c := range []struct {
		name  string
		round func(b *testing.B, copy oneWay) time.Duration
	}{
		{"socket-socket", func(b *testing.B, copy oneWay) time.Duration {
			in, src := feed(b, n)
			defer in()
			dst, out := drainTo(b)
			defer out()
			return timed(b, copy, dst, src, n)
		}},
		{"file-socket", func(b *testing.B, copy oneWay) time.Duration {
			src := must.Get(os.Open(path))(b)
			defer src.Close()
			dst, out := drainTo(b)
			defer out()
			return timed(b, copy, dst, src, n)
		}},
		{"socket-file", func(b *testing.B, copy oneWay) time.Duration {
			in, src := feed(b, n)
			defer in()
			dst := must.Get(os.CreateTemp(b.TempDir(), "out"))(b)
			defer os.Remove(dst.Name())
			defer dst.Close()
			return timed(b, copy, dst, src, n)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			against(b, func() time.Duration { return c.round(b, r.Copy) }, func() time.Duration { return c.round(b, io.Copy) })
		})
	}
}

// BenchmarkFileEngines compares the two ways of sending a file: sendfile, which
// Relay.Copy uses, in the time of a leased pipe.
func BenchmarkFileEngines(b *testing.B) {
	const n = 32 << 20
	path := filepath.Join(b.TempDir(), "in")
	must.Do(b, os.WriteFile(path, make([]byte, n), 0o600))
	r := newRelay(b, nil)
	round := func(copy oneWay) time.Duration {
		src := must.Get(os.Open(path))(b)
		defer src.Close()
		dst, out := drainTo(b)
		defer out()
		return timed(b, copy, dst, src, n)
	}
	against(b, func() time.Duration { return round(r.Copy) }, func() time.Duration { return round(r.CopyFileThroughPipe) })
}

// BenchmarkCopySmallPaired is BenchmarkCopyPaired for copies so small that setting
// one up counts: 4 KiB, again and again between the same two ends, a thousand of
// them a round.
func BenchmarkCopySmallPaired(b *testing.B) {
	const n, times = 4 << 10, 1000
	path := filepath.Join(b.TempDir(), "in")
	must.Do(b, os.WriteFile(path, make([]byte, n), 0o600))
	file := must.Get(os.Open(path))(b)
	defer file.Close()
	r := newRelay(b, nil)
	in, src := sockets.TCPPair(b)
	block := make([]byte, n)
	for _, c := range []struct {
		name string
		src  func() io.Reader
	}{
		{"socket-socket", func() io.Reader {
			write(b, in, block)
			return io.LimitReader(src, n)
		}},
		{"file-socket", func() io.Reader { _, _ = file.Seek(0, io.SeekStart); return file }},
	} {
		b.Run(c.name, func(b *testing.B) {
			dst, out := drainTo(b)
			defer out()
			round := func(copy oneWay) (sum time.Duration) {
				for range times {
					src := c.src()
					sum += timed(b, copy, dst, src, n)
				}
				return sum
			}
			against(b, func() time.Duration { return round(r.Copy) }, func() time.Duration { return round(io.Copy) })
		})
	}
}

// timed copies and returns how long it took.
func timed(b *testing.B, copy oneWay, dst io.Writer, src io.Reader, n int64) time.Duration {
	b.Helper()
	start := time.Now()
	if got, err := copy(dst, src); got != n || err != nil {
		b.Fatalf("copied %d of %d bytes, error %v", got, n, err)
	}
	return time.Since(start)
}

// feed returns a connection that delivers n bytes and its end.
func feed(b *testing.B, n int) (done func(), src *net.TCPConn) {
	in, src := sockets.TCPPair(b)
	ended := make(chan struct{})
	go func() {
		_, _ = in.Write(make([]byte, n))
		_ = in.CloseWrite()
		close(ended)
	}()
	return func() { <-ended; in.Close(); src.Close() }, src
}

// drainTo returns a connection whose other end is read and thrown away.
func drainTo(b *testing.B) (dst *net.TCPConn, done func()) {
	dst, out := sockets.TCPPair(b)
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, struct{ io.Reader }{out}); close(ended) }()
	return dst, func() { dst.Close(); <-ended; out.Close() }
}

// against compares rounds of ours with rounds of theirs.
func against(b *testing.B, ours, theirs func() time.Duration) {
	paired.Run(b, 0, paired.Contestant{Name: "ours", Run: func(int) time.Duration { return ours() }},
		paired.Contestant{Name: "theirs", Run: func(int) time.Duration { return theirs() }})
}
