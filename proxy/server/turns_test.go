package server_test

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestLosingEndpointsTakeTurns: three endpoints lose every client, by a reset or an end without a byte, until some are
// ejected and breakers are open. Then one of them serves again. All clients come from one address. It is found
// by one of the next clients, and few are lost afterwards.
func TestLosingEndpointsTakeTurns(t *testing.T) {
	t.Parallel()

	for name, upstream := range map[string]string{
		"checks off":     "health_check: off",
		"defaults":       "health_check: {interval: 50ms, timeout: 2s, fast_interval: 50ms}",
		"ejections only": "health_check: off, circuit_breaker: off",
		"all ejected":    "health_check: off, outlier_detection: {max_ejected: 1}",
		"round robin":    "health_check: off, balance: round_robin",
		"by source":      "health_check: off, balance: source_ip",
	} {
		for _, resets := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, resets %t", name, resets), func(t *testing.T) {
				t.Parallel()
				var loses [3]atomic.Bool
				var at [3]string
				for i := range at {
					at[i] = sockets.Server(t, func(c net.Conn) {
						_, _ = io.ReadFull(c, make([]byte, 1))
						switch {
						case !loses[i].Load():
							_, _ = io.WriteString(c, "y")
						case resets:
							_ = c.(*net.TCPConn).SetLinger(0)
						}
					})
				}
				r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q, %q, %q], %s}]`, at[0], at[1], at[2], upstream))
				served := func() bool {
					c := client(t, r.At("l"))
					defer c.Close()
					_, _ = io.WriteString(c, "x")
					b, _ := io.ReadAll(c)
					return string(b) == "y"
				}
				for range 20 {
					if !served() {
						t.Fatal("a client is lost at the beginning")
					}
				}
				for i := range loses {
					loses[i].Store(true)
				}
				for range 150 {
					served()
				}
				loses[1].Store(false)
				lost, first := 0, 0
				for n := range 200 {
					switch ok := served(); {
					case !ok:
						lost++
					case first == 0:
						first = n + 1
					}
					time.Sleep(time.Millisecond) // as clients come, and not one behind the other
				}
				if lost > 25 || first == 0 || first > 20 {
					t.Errorf("of 200 clients %d were lost; client %d was the first that was served", lost, first)
				}
			})
		}
	}
}
