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

// BenchmarkJoinBulk streams 1 MiB per operation through one joined pair.
func BenchmarkJoinBulk(b *testing.B) {
	all := joiners(b)
	for _, name := range joinerNames {
		b.Run(name, func(b *testing.B) {
			A, B, wait := joined(b, all[name])
			defer wait()
			block := make([]byte, 1<<20)
			received := make(chan int64)
			b.SetBytes(int64(len(block)))
			b.ReportAllocs()
			go func() {
				n, _ := io.Copy(io.Discard, struct{ io.Reader }{B})
				received <- n
			}()
			for b.Loop() {
				if _, err := A.Write(block); err != nil {
					b.Fatal(err)
				}
			}
			_ = A.CloseWrite()
			if n := <-received; n != int64(b.N*len(block)) {
				b.Fatalf("received %d bytes of %d blocks", n, b.N)
			}
		})
	}
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

// BenchmarkCopyFile sends a file of 16 MiB, cached, to a TCP connection.
func BenchmarkCopyFile(b *testing.B) {
	path := filepath.Join(b.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 16<<20), 0o600); err != nil {
		b.Fatal(err)
	}
	r := newRelay(b, nil)
	for _, c := range []struct {
		name string
		copy func(io.Writer, io.Reader) (int64, error)
	}{{"io.Copy", io.Copy}, {"relay", r.Copy}} {
		b.Run(c.name, func(b *testing.B) {
			f, err := os.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			src, dst := sockets.TCPPair(b)
			go func() { _, _ = io.Copy(io.Discard, struct{ io.Reader }{dst}) }()
			b.SetBytes(16 << 20)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = f.Seek(0, io.SeekStart)
				if n, err := c.copy(src, f); n != 16<<20 || err != nil {
					b.Fatal(n, err)
				}
			}
			src.Close()
		})
	}
}
