package sessionlog_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/sessionlog"
)

// BenchmarkAdd measures the part of a loop in a line: the event is made, and added to the queue.
func BenchmarkAdd(b *testing.B) {
	for _, drain := range []string{"/dev/null", filepath.Join(b.TempDir(), "s.log")} {
		b.Run(filepath.Base(drain), func(b *testing.B) {
			at, err := sessionlog.ParseDestination(drain)
			must(b, err)
			start := time.Now()
			l := sessionlog.New(&sessionlog.Config{Loops: 1, Now: func() int64 { return int64(time.Since(start)) + 1 }})
			s := &sessionlog.Settings{Destination: at, Format: sessionlog.FormatJSON, End: true, Share: 1}
			must(b, s.Open())
			l.Set(s)
			r, took := whole(), time.Duration(0)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				began := time.Now()
				for range 256 {
					l.Add(0, sessionlog.End, &r)
				}
				took += time.Since(began)
				n += 256
				for c := l.Counts(); c.Lines+c.Lost() < int64(n); c = l.Counts() {
					time.Sleep(time.Millisecond)
				}
			}
			b.ReportMetric(float64(took)/float64(n), "ns/add")
			b.ReportMetric(float64(l.Counts().Lost()), "lost")
			if err := l.Close(); err != nil {
				b.Error(err)
			}
		})
	}
}
