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

// TestEjectedOneIsTriedInstead: an endpoint that resets its clients is ejected, by connect checks it is well
// all the while, and then it serves again while the other one resets. max_ejected allows one ejection. Few
// clients are lost until the two change places.
func TestEjectedOneIsTriedInstead(t *testing.T) {
	for _, balance := range []string{"least_conn", "round_robin", "source_ip", "maglev", "random_two"} {
		t.Run(balance, func(t *testing.T) {
			var resets [2]atomic.Bool
			var at [2]string
			for i := range at {
				at[i] = sockets.Server(t, func(c net.Conn) {
					_, _ = io.ReadFull(c, make([]byte, 1))
					if resets[i].Load() {
						_ = c.(*net.TCPConn).SetLinger(0)
						return
					}
					_, _ = io.WriteString(c, "y")
				})
			}
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [{address: %q, name: a}, {address: %q, name: b}]
    balance: %s
    outlier_detection: {consecutive_failures: 3, base_ejection_time: 1h, max_ejection_time: 1h, max_ejected: 0.5}
    circuit_breaker: off
    health_check: {interval: 50ms}`, at[0], at[1], balance))
			source := 0
			comes := func() bool {
				source++
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+source/200), byte(1+source%200))}}
				c, err := d.Dial("tcp", r.At("l"))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_, _ = io.WriteString(c, "x")
				_ = c.SetDeadline(time.Now().Add(patience))
				b, _ := io.ReadAll(c)
				return string(b) == "y"
			}
			resets[0].Store(true)
			r.Until("a is ejected for its resets", func() bool { comes(); return r.Endpoint("u", "a").State == "ejected" })
			resets[0].Store(false)
			resets[1].Store(true)
			lost := 0
			r.Until("the two have changed places", func() bool {
				if !comes() {
					lost++
				}
				return r.Endpoint("u", "b").State == "ejected" && r.Endpoint("u", "a").State != "ejected"
			})
			if lost > 10 {
				t.Errorf("%d clients were lost", lost)
			}
			for range 20 {
				if !comes() {
					t.Error("a client is lost afterwards")
				}
			}
		})
	}
}
