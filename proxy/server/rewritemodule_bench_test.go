package server_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/server"
)

// BenchmarkBesideLoopingModule: how long a message of a session without a rewrite takes, there and back, by itself and while sessions
// of another listener, on the same loops, loop in their module all the time, until its timeout of 200 ms.
func BenchmarkBesideLoopingModule(b *testing.B) {
	for _, looping := range []int{0, 8} {
		b.Run(fmt.Sprint("looping=", looping), func(b *testing.B) {
			echo := sockets.Server(b, sockets.Echo)
			dir := sockets.Dir(b)
			at := func(name string) string { return filepath.Join(dir, name) }
			if err := os.WriteFile(at("m.wasm"), []byte(rewriteModule("!")), 0o600); err != nil {
				b.Fatal(err)
			}
			_, end := servingWith(b, configOf(b, fmt.Sprintf(`{"listeners": [
				{"name": "up", "bind": "unix:%s", "upstream": "u", "rewrite": {"direction": "up", "wasm": %q, "timeout": "200ms"}},
				{"name": "plain", "bind": "unix:%s", "upstream": "u"}], "upstreams": [{"name": "u", "endpoints": [%q], "health_check": "off"}]}`,
				at("up"), at("m.wasm"), at("plain"), echo)), server.Options{Loops: 2, MaxConnections: 100})
			defer end()
			var stop atomic.Bool
			var clients sync.WaitGroup
			for range looping {
				clients.Go(func() {
					for !stop.Load() {
						if c, err := net.Dial("unix", at("up")); err == nil {
							_, _ = io.WriteString(c, "l")
							_, _ = io.ReadAll(c)
							c.Close()
						}
					}
				})
			}
			c, err := net.Dial("unix", at("plain"))
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			message := []byte("x")
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if _, err := c.Write(message); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, message); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			stop.Store(true)
			clients.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(took[len(took)-1].Microseconds()), "max-µs")
		})
	}
}
