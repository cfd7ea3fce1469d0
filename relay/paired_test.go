package relay_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// A oneWay copies from src to dst until the end.
type oneWay func(dst io.Writer, src io.Reader) (int64, error)

// BenchmarkCopyPaired compares Relay.Copy with io.Copy, round by round in one run,
// and reports the time of the one in the time of the other: the median of the
// rounds, and the 10th and 90th percentile. One operation is a round of both.
func BenchmarkCopyPaired(b *testing.B) {
	const n = 32 << 20
	path := filepath.Join(b.TempDir(), "in")
	if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
		b.Fatal(err)
	}
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
			src, err := os.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			defer src.Close()
			dst, out := drainTo(b)
			defer out()
			return timed(b, copy, dst, src, n)
		}},
		{"socket-file", func(b *testing.B, copy oneWay) time.Duration {
			in, src := feed(b, n)
			defer in()
			dst, err := os.CreateTemp(b.TempDir(), "out")
			if err != nil {
				b.Fatal(err)
			}
			defer os.Remove(dst.Name())
			defer dst.Close()
			return timed(b, copy, dst, src, n)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			paired(b, func() time.Duration { return c.round(b, r.Copy) }, func() time.Duration { return c.round(b, io.Copy) })
		})
	}
}

// BenchmarkCopySmallPaired is BenchmarkCopyPaired for copies so small that setting
// one up counts: 4 KiB, again and again between the same two ends, a thousand of
// them a round.
func BenchmarkCopySmallPaired(b *testing.B) {
	const n, times = 4 << 10, 1000
	path := filepath.Join(b.TempDir(), "in")
	if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
		b.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	r := newRelay(b, nil)
	in, src := sockets.TCPPair(b)
	block := make([]byte, n)
	for _, c := range []struct {
		name string
		src  func() io.Reader
	}{
		{"socket-socket", func() io.Reader {
			if _, err := in.Write(block); err != nil {
				b.Fatal(err)
			}
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
			paired(b, func() time.Duration { return round(r.Copy) }, func() time.Duration { return round(io.Copy) })
		})
	}
}

// BenchmarkFileEngines compares the two ways of sending a file: sendfile, which
// Relay.Copy uses, in the time of a leased pipe.
func BenchmarkFileEngines(b *testing.B) {
	const n = 32 << 20
	path := filepath.Join(b.TempDir(), "in")
	if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
		b.Fatal(err)
	}
	r := newRelay(b, nil)
	round := func(copy oneWay) time.Duration {
		src, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		defer src.Close()
		dst, out := drainTo(b)
		defer out()
		return timed(b, copy, dst, src, n)
	}
	paired(b, func() time.Duration { return round(r.Copy) }, func() time.Duration { return round(r.CopyFileThroughPipe) })
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

// paired runs ours and theirs in turn, which of them first changing from round to
// round, and reports the ratio ours/theirs.
func paired(b *testing.B, ours, theirs func() time.Duration) {
	var ratios []float64
	ours() // both warm
	theirs()
	for b.Loop() {
		var x, y time.Duration
		if len(ratios)%2 == 0 {
			x, y = ours(), theirs()
		} else {
			y, x = theirs(), ours()
		}
		ratios = append(ratios, float64(x)/float64(y))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio-p50")
	b.ReportMetric(ratios[len(ratios)/10], "ratio-p10")
	b.ReportMetric(ratios[len(ratios)*9/10], "ratio-p90")
}
