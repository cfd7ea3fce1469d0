package vecio_test

import (
	"fmt"
	"io"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// BenchmarkZeroCopyOverLoopback measures the cost of MSG_ZEROCOPY where it cannot win: the kernel pins the pages, still copies
// on the way to the receiver, and notifies. Both ways take turns of 16 pieces, and the ratio is the median of the pairs of turns.
func BenchmarkZeroCopyOverLoopback(b *testing.B) {
	for _, size := range []int{4 << 10, 10 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			client, server := sockets.TCPPair(b)
			go func() {
				_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{server}, make([]byte, 256<<10))
			}()
			fd, piece := sockets.FD(b, client), make([]byte, size)
			if err := sys.SetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_ZEROCOPY, 1); err != nil {
				b.Skip("SO_ZEROCOPY:", err)
			}
			var ratios []float64
			for b.Loop() {
				zero := bulk(b, fd, piece, sys.MSG_ZEROCOPY)
				ratios = append(ratios, float64(zero)/float64(bulk(b, fd, piece, 0)))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "zerocopy/plain")
			b.ReportMetric(ratios[len(ratios)/10], "p10")
			b.ReportMetric(ratios[len(ratios)*9/10], "p90")
		})
	}
}

// bulk is one turn, until the kernel has everything and, with MSG_ZEROCOPY, has reported all calls.
func bulk(b *testing.B, fd int, piece []byte, flags int) time.Duration {
	start, calls := time.Now(), uint32(0)
	again := func(err error) {
		if err != nil && err != syscall.EAGAIN && err != syscall.ENOBUFS {
			b.Fatal(err)
		}
		time.Sleep(10 * time.Microsecond)
	}
	for range 16 {
		for rest := piece; len(rest) > 0; {
			n, err := sys.Send(fd, rest, flags|sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
			if rest = rest[max(n, 0):]; n > 0 {
				calls++
				continue
			}
			again(err)
		}
	}
	for flags != 0 && calls > 0 {
		n, err := sys.RecvZerocopyNotice(fd)
		if err != nil {
			again(err)
			continue
		}
		calls -= n.Hi - n.Lo + 1
	}
	return time.Since(start)
}
