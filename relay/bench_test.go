package relay_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/paired"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// A joiner joins two connections, and has closed both when it returns.
type joiner func(a, b net.Conn)

// ioCopyJoin is what most Go proxies do.
func ioCopyJoin(a, b net.Conn) {
	var wg sync.WaitGroup
	one := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		_ = dst.(*net.TCPConn).CloseWrite()
	}
	wg.Go(func() { one(a, b) })
	one(b, a)
	wg.Wait()
	a.Close()
	b.Close()
}

// joiners are Penstock's engines, with the timeouts of the program set, and the
// standard library.
func joiners(b *testing.B) map[string]joiner {
	all := map[string]joiner{"io.Copy": ioCopyJoin}
	for _, e := range engines {
		r := newRelay(b, &relay.Config{Engine: e, IdleTimeout: 3600e9, HalfCloseTimeout: 60e9})
		all["relay-"+e.String()] = func(x, y net.Conn) { _, _ = r.Join(context.Background(), x, y) }
	}
	return all
}

var joinerNames = []string{"io.Copy", "relay-auto", "relay-splice", "relay-copy"}

// joined returns the two far ends of a joined pair, and a wait for its end.
func joined(b *testing.B, j joiner) (A, B *net.TCPConn, wait func()) {
	A, nearA := sockets.TCPPair(b)
	nearB, B := sockets.TCPPair(b)
	done := make(chan struct{})
	go func() { j(nearA, nearB); close(done) }()
	return A, B, func() { A.Close(); B.Close(); <-done }
}

// BenchmarkJoinEcho sends one message and its echo through a joined pair, over one
// connection and over 64.
func BenchmarkJoinEcho(b *testing.B) {
	all := joiners(b)
	for _, size := range []int{64, 4096} {
		for _, conns := range []int{1, 64} {
			for _, name := range joinerNames {
				b.Run(fmt.Sprintf("%dB/%d/%s", size, conns, name), func(b *testing.B) {
					benchmarkEcho(b, all[name], size, conns)
				})
			}
		}
	}
}

func benchmarkEcho(b *testing.B, j joiner, size, conns int) {
	var wg sync.WaitGroup
	var ends []func()
	for range conns {
		A, B, wait := joined(b, j)
		ends = append(ends, wait)
		wg.Go(func() {
			buf := make([]byte, size)
			for range b.N/conns + 1 {
				if _, err := io.ReadFull(B, buf); err != nil {
					b.Error(err)
					return
				}
				if _, err := B.Write(buf); err != nil {
					b.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			buf := make([]byte, size)
			for range b.N/conns + 1 {
				if _, err := A.Write(buf); err != nil {
					b.Error(err)
					return
				}
				if _, err := io.ReadFull(A, buf); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	for _, wait := range ends {
		wait()
	}
}

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
