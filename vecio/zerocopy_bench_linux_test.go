package vecio

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// BenchmarkZeroCopyOverLoopback measures the cost of MSG_ZEROCOPY where it cannot win:
// the kernel pins the pages, still copies on the way to the receiver, and notifies. A
// writer would stop at the first notice; this one is made to continue. Both ways take
// turns of 16 pieces, and the ratio is the median of the pairs of turns.
func BenchmarkZeroCopyOverLoopback(b *testing.B) {
	for _, size := range []int{4 << 10, 10 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			plain, zero := bulkWriter(b, 0), bulkWriter(b, size)
			piece := make([]byte, size)
			var ratios []float64
			for b.Loop() {
				ratios = append(ratios, float64(bulk(b, zero, piece))/float64(bulk(b, plain, piece)))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "zerocopy/plain")
			b.ReportMetric(ratios[len(ratios)/10], "p10")
			b.ReportMetric(ratios[len(ratios)*9/10], "p90")
		})
	}
}

func bulkWriter(b *testing.B, zeroCopy int) *Writer {
	client, server := sockets.TCPPair(b)
	go func() {
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{server}, make([]byte, 256<<10))
	}()
	w, err := NewSocket(sockets.FD(b, client), &Config{ZeroCopy: zeroCopy, CopyBelow: -1})
	if err != nil {
		b.Fatal(err)
	}
	return w
}

// bulk is one turn, until the kernel has everything and has given it back.
func bulk(b *testing.B, w *Writer, piece []byte) time.Duration {
	back, start := ReleaseFunc(func([]byte) {}), time.Now()
	for range 16 {
		if err := w.Own(piece, back); err != nil {
			b.Fatal(err)
		}
		for err := w.End(); err != nil; err = w.Flush() {
			if err != ErrBlocked {
				b.Fatal(err)
			}
			time.Sleep(10 * time.Microsecond)
		}
	}
	for w.Held() > 0 {
		if _, err := w.Reap(); err != nil {
			b.Fatal(err)
		}
		w.zero.stats.State = ZeroCopyOn
	}
	return time.Since(start)
}
