package state_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/state"
)

// BenchmarkFlush measures a change of a denial that is kept, beside others that are there, and by requests at the
// same time. writes/op is how often the file was written for each change.
func BenchmarkFlush(b *testing.B) {
	for _, kept := range []int{1, 10_000} {
		list := make([]state.Denial, kept)
		for i := range list {
			list[i] = state.Denial{Source: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), Until: then, By: "uid=0 pid=4711", Since: then}
		}
		for _, clients := range []int{1, 16} {
			b.Run(fmt.Sprintf("kept=%d/clients=%d", kept, clients), func(b *testing.B) {
				s := state.Open(filepath.Join(b.TempDir(), "penstock.state"))
				defer s.Close()
				writes := 0
				s.BeforeWrite(func() { writes++ })
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				b.ResetTimer()
				for range clients {
					wg.Go(func() {
						mine := slices.Clone(list)
						for n := left.Add(-1); n >= 0; n = left.Add(-1) {
							mine[n%int64(kept)].Until = then.Add(time.Duration(n) * time.Second)
							s.SetDenials(mine)
							if err := s.Flush(); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(writes)/float64(b.N), "writes/op")
			})
		}
	}
}
