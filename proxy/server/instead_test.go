package server_test

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/lb"
)

// TestEjectedOneIsTriedInstead: an endpoint that resets its clients is ejected, by connect checks it is well
// all the while, and then it serves again while the other one resets. max_ejected allows one ejection. Few
// clients are lost until the two change places, or the policy sends clients to the one that is back alone.
func TestEjectedOneIsTriedInstead(t *testing.T) {
	t.Parallel()

	for _, balance := range lb.Policies() {
		t.Run(balance.String(), func(t *testing.T) {
			var resets [2]atomic.Bool
			var last atomic.Int32 // that got a client
			var at [2]string
			for i := range at {
				at[i] = sockets.Server(t, func(c net.Conn) {
					if n, _ := io.ReadFull(c, make([]byte, 1)); n > 0 { // a health check sends nothing
						last.Store(int32(i))
					}
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
    health_check: {interval: 50ms, timeout: 2s}`, at[0], at[1], balance))
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
			comes()
			one := last.Load() // the policy sends clients to it, at least while it is usable
			other := 1 - one
			ejected := func(i int32) bool { return r.Endpoint("u", string("ab"[i])).State == "ejected" }
			resets[one].Store(true)
			r.Until("it is ejected for its resets", func() bool { comes(); return ejected(one) })
			resets[one].Store(false)
			resets[other].Store(true)
			lost, row := 0, 0
			r.Until("the two have changed places, or all are served by the other one", func() bool {
				if row++; !comes() {
					lost, row = lost+1, 0
				}
				return ejected(other) && !ejected(one) || row == 100 && !ejected(one)
			})
			changed := ejected(other)
			for range 20 {
				if comes() {
					continue
				}
				if lost++; changed { // if not, the other one is tried again now and then
					t.Error("a client is lost afterwards")
				}
			}
			if lost > 10 {
				t.Errorf("%d clients were lost", lost)
			}
		})
	}
}
