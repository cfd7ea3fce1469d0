package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/server"
)

// TestSessionsCutBefore: sessions cut earlier, as configured, are not reported at the end of the
// process. Only sessions cut for the end are.
func TestSessionsCutBefore(t *testing.T) {
	t.Parallel()

	for _, last := range []bool{false, true} {
		role := newRole(t, false)
		r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: v}]
upstreams:
  - {name: u, endpoints: [{address: %q, name: a}], on_unhealthy: reset, health_check: {type: http, port: %s, interval: 20ms, timeout: 2s, fast_interval: 10ms, rise: 1, fall: 1, http: {path: /primary, host: db.test}}}
  - {name: v, endpoints: [%[1]q]}`, named(t, "a"), role.port))
		c := client(t, r.At("l"))
		line(t, c)
		role.well.Store(false)
		if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, want a reset", err)
		}
		want := ""
		if last {
			line(t, client(t, r.At("m")))
			want = "sessions were cut before their end: 1"
		}
		if err := r.End(); last != errors.Is(err, server.ErrCut) || err != nil && err.Error() != want {
			t.Errorf("the process ends with %v, want %q", err, want)
		}
	}
}

// TestEjectionEndsWhenWell: an ejected endpoint that went down returns when its check succeeds
// again, long before its ejection time is over.
func TestEjectionEndsWhenWell(t *testing.T) {
	t.Parallel()

	role := newRole(t, false)
	other := named(t, "other")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [{address: %q, name: victim}, {address: %q, name: other}]
    outlier_detection: {consecutive_failures: 2, base_ejection_time: 1h, max_ejection_time: 1h}
    health_check: {type: http, port: %s, interval: 20ms, timeout: 2s, fast_interval: 10ms, rise: 2, fall: 2, http: {path: /primary, host: db.test}}`,
		sockets.Refusing(t), other, role.port))
	r.Until("the endpoint is ejected", func() bool {
		if got := whose(t, r.At("l")); got != "other" {
			t.Fatal(got)
		}
		return r.Endpoint("u", "victim").State == "ejected"
	})
	role.well.Store(false)
	r.Until("the endpoint is down", func() bool { return strings.Contains(r.Log.String(), `upstream=u endpoint=victim state=unhealthy`) })
	role.well.Store(true)
	r.Until("the endpoint is back", func() bool { return r.Endpoint("u", "victim").State == "up" })
}

// TestBreakerTriesWhoIsWell: when an endpoint went down, all its clients failed at once, and so
// did its upstream's. It is tried when its check succeeds again, long before the breakers would
// try it.
func TestBreakerTriesWhoIsWell(t *testing.T) {
	t.Parallel()
	role := newRole(t, false)
	var serves atomic.Bool
	address := sockets.Server(t, func(c net.Conn) {
		if !serves.Load() {
			_ = c.(*net.TCPConn).SetLinger(0) // it is reset
			return
		}
		_, _ = io.WriteString(c, "a\n")
		sockets.Echo(c)
	})
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [{address: %q, name: a}]
    circuit_breaker: {open: 1h}
    retry: {attempts: 0}
    queue: {hold: 0s}
    health_check: {type: http, port: %s, interval: 1s, fast_interval: 1s, jitter: 0, rise: 2, fall: 2, http: {path: /primary, host: db.test}}`,
		address, role.port))
	r.Until("the breakers are open", func() bool {
		refused(t, r.At("l"))
		u := r.Status().Upstreams[0]
		return u.Breaker == "open" && u.Endpoints[0].Breaker == "open"
	})
	role.well.Store(false)
	r.Until("the endpoint is down", func() bool { return r.Endpoint("u", "a").State == "down" })
	serves.Store(true)
	role.well.Store(true)
	r.Until("the endpoint is tried", func() bool { return r.Endpoint("u", "a").State == "up" })
	r.Until("clients are served, and the breakers closed", func() bool {
		c, err := net.DialTimeout("tcp", r.At("l"), patience)
		if err != nil {
			return false
		}
		defer c.Close()
		name, _ := sockets.ReadLine(c)
		u := r.Status().Upstreams[0]
		return name == "a" && u.Breaker == "closed" && u.Endpoints[0].Breaker == ""
	})
}
