package server_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/state"
	"github.com/penstock/penstock/proxy/server"
)

// BenchmarkDeny measures a denial that survives a restart, beside others that are in force, by one client and by 16
// at the same time.
func BenchmarkDeny(b *testing.B) {
	for _, kept := range []int{0, admin.MaxDenials - 1} {
		for _, clients := range []int{1, 16} {
			b.Run(fmt.Sprintf("kept=%d/clients=%d", kept, clients), func(b *testing.B) {
				st := state.Open(filepath.Join(b.TempDir(), "penstock.state"))
				defer st.Close()
				st.SetDenials(slices.Collect(func(yield func(state.Denial) bool) {
					for i := range kept {
						if !yield(state.Denial{Source: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), Until: time.Now().Add(time.Hour), By: "uid=0 pid=4711", Since: time.Now()}) {
							return
						}
					}
				}))
				s, stop := servingWith(b, configOf(b, `{"listeners": [{"name": "l", "bind": "127.0.0.1:0", "upstream": "u"}], "upstreams": [{"name": "u", "endpoints": ["127.0.0.1:1"]}]}`), server.Options{Loops: 1, MaxConnections: 10, State: st})
				defer stop()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				b.ResetTimer()
				for range clients {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							if _, err := s.Deny("192.0.2.7", "", time.Hour, "uid=0 pid=4711"); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
