package vecio_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/vecio"
)

// swallow reads everything from c, without copying it, until it ends.
func swallow(b *testing.B, c syscall.Conn) {
	raw, err := c.SyscallConn()
	must(b, err)
	fd, done := sockets.FD(b, c), make(chan struct{})
	buf := make([]byte, 4<<20)
	go func() {
		defer close(done)
		_ = raw.Read(func(uintptr) bool {
			for {
				n, err := sys.Recv(fd, buf, sys.MSG_DONTWAIT|sys.MSG_TRUNC)
				if err != nil || n == 0 {
					return err != syscall.EAGAIN
				}
			}
		})
	}()
	b.Cleanup(func() { <-done })
}

// batch is about how many bytes one Flush has.
const batch = 64 << 10

// BenchmarkCopyOrRefer finds out below which size a piece should be copied: rounds of
// batches of 64 KiB that are copied alternate with rounds of such that go by reference,
// over one TCP connection of loopback to a peer that drops them. The ratio is the CPU
// time of copying over that of referring, of the writing thread alone, in pairs; below 1
// copying costs less.
func BenchmarkCopyOrRefer(b *testing.B) {
	for _, size := range []int{64, 128, 256, 384, 512, 768, 1024, 1300, 2048, 3072, 4096, 8192, 16384} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			client, server := sockets.TCPPair(b)
			swallow(b, server)
			copying := newWriter(b, client, &vecio.Config{CopyBelow: batch})
			referring := newWriter(b, client, &vecio.Config{CopyBelow: -1})
			// More payload than caches hold near: a server's is seldom just made.
			payload := make([]byte, 8<<20)
			var ratios []float64
			at := 0
			round := func(w *vecio.Writer) time.Duration {
				begin := used(b)
				for range 8 {
					for n := 0; n < batch; n += size {
						if at+size > len(payload) {
							at = 0
						}
						if err := w.Append(payload[at : at+size]); err != nil {
							b.Fatal(err)
						}
						at += size
					}
					must(b, w.Flush())
				}
				return used(b) - begin
			}
			for b.Loop() {
				x, y := round(copying), round(referring)
				ratios = append(ratios, float64(x)/float64(y))
			}
			must(b, client.CloseWrite())
			b.ReportMetric(quantile(ratios, 0.5), "ratio-p50")
			b.ReportMetric(quantile(ratios, 0.1), "ratio-p10")
			b.ReportMetric(quantile(ratios, 0.9), "ratio-p90")
		})
	}
}

// used is the CPU time of our thread, user and system.
func used(b *testing.B) time.Duration {
	d, err := sys.ThreadCPUTime()
	must(b, err)
	return d
}

func quantile(x []float64, q float64) float64 {
	slices.Sort(x)
	return x[int(float64(len(x)-1)*q)]
}

// BenchmarkWrite writes the same bytes in pieces, in rounds that take turns: the figures
// are the CPU time of net.Buffers, of bufio and of the better one over that of vecio, of
// the writing thread alone. Above 1 vecio costs less.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{64, 256, 1300, 4096, 16 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			client, server := sockets.TCPPair(b)
			swallow(b, server)
			w, buffered := newWriter(b, client, nil), bufio.NewWriterSize(client, batch)
			payload := make([]byte, max(size, 64))
			headers := make(net.Buffers, 0, 1<<14)
			const rounds = 8
			timed := func(f func()) float64 {
				begin := used(b)
				for range rounds {
					f()
				}
				return float64(used(b) - begin)
			}
			ways := [...]func(){
				func() {
					for n := 0; n < batch; n += size {
						if err := w.Append(payload[:size]); err != nil {
							b.Fatal(err)
						}
					}
					must(b, w.Flush())
				},
				func() {
					for n := 0; n < batch; n += size {
						if _, err := buffered.Write(payload[:size]); err != nil {
							b.Fatal(err)
						}
					}
					must(b, buffered.Flush())
				},
				func() {
					h := headers[:0]
					for n := 0; n < batch; n += size {
						h = append(h, payload[:size])
					}
					_, err := h.WriteTo(client)
					must(b, err)
				},
			}
			var ofBest, ofBufio, ofBuffers []float64
			first := 0
			for b.Loop() {
				var took [len(ways)]float64
				for i := range ways { // the order of the ways changes
					way := (first + i) % len(ways)
					took[way] = timed(ways[way])
				}
				first++
				ofBufio, ofBuffers = append(ofBufio, took[1]/took[0]), append(ofBuffers, took[2]/took[0])
				ofBest = append(ofBest, min(took[1], took[2])/took[0])
			}
			must(b, client.CloseWrite())
			b.ReportMetric(quantile(ofBest, 0.5), "of-best-p50")
			b.ReportMetric(quantile(ofBufio, 0.5), "of-bufio-p50")
			b.ReportMetric(quantile(ofBuffers, 0.5), "of-buffers-p50")
		})
	}
}

// BenchmarkAppend measures the cost of a piece in user space.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{0, 64, 500, 1300} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w := newWriter(b, struct{ io.Writer }{io.Discard}, nil)
			p := make([]byte, size)
			n := 0
			for b.Loop() {
				if err := w.Append(p); err != nil {
					b.Fatal(err)
				}
				if n++; n%256 == 0 {
					must(b, w.Reset(io.Discard))
				}
			}
		})
	}
}
