package server_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestWhyInStatus: for an ejected endpoint and an open breaker, the status has the reason with
// the system's error, and the end time. The log has them too, and reports the end.
func TestWhyInStatus(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: v}]
upstreams:
  - {name: u, endpoints: [{address: %q, name: e}], health_check: off, queue: {hold: 0s}, retry: {attempts: 0}, circuit_breaker: off,
     outlier_detection: {consecutive_failures: 2, max_ejected: 1.0, base_ejection_time: 30s}}
  - {name: v, endpoints: [{address: %[1]q, name: f}], health_check: off, queue: {hold: 0s}, retry: {attempts: 0}, outlier_detection: off,
     circuit_breaker: {failure_percentage: 50, min_volume: 2, open: 1m}}`, sockets.Refusing(t)))
	began := time.Now()
	for range 2 {
		refused(t, r.At("l"))
		refused(t, r.At("m"))
	}
	r.Until("the endpoint is ejected", func() bool { return r.Endpoint("u", "e").State == "ejected" })
	r.Until("the breaker is open", func() bool { return r.Endpoint("v", "f").Breaker == "open" })
	e, f := r.Endpoint("u", "e"), r.Endpoint("v", "f")
	if e.Why != "2 failures in a row, the last: cannot be connected to: connection refused; for 30s" {
		t.Errorf("ejected: %q", e.Why)
	}
	if left := e.Until.Sub(began); left < 30*time.Second || left > 40*time.Second {
		t.Errorf("ejected for %v", left)
	}
	if f.BreakerWhy != "2 of 2 connections failed, the last: cannot be connected to: connection refused" {
		t.Errorf("open: %q", f.BreakerWhy)
	}
	if left := f.BreakerUntil.Sub(began); left < time.Minute || left > 70*time.Second {
		t.Errorf("open for %v", left)
	}
	if e.Breaker != "" || !e.BreakerUntil.IsZero() || f.Why != "" || !f.Until.IsZero() {
		t.Errorf("%+v, %+v", e, f)
	}
	r.Logs("level=WARN", "msg=ejection", "connection refused")
}

// TestRecoveryIsLoggedAtOnce: an endpoint's recovery is logged when it happens, and flapping is a
// warning.
func TestRecoveryIsLoggedAtOnce(t *testing.T) {
	t.Parallel()

	var ill atomic.Bool
	at := sockets.Server(t, func(c net.Conn) {
		if ill.Load() {
			return
		}
		_, _ = io.WriteString(c, "hunter2")
	})
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: e}], health_check: {interval: 100ms, timeout: 2s, fast_interval: 100ms, fall: 1, rise: 1, expect: hunter2}}]`, at))
	be := func(well bool) {
		t.Helper()
		ill.Store(!well)
		r.Until("the change is noticed", func() bool { return (r.Endpoint("u", "e").State == "up") == well })
	}
	r.Until("the listener is logged", func() bool { return strings.Contains(r.Log.String(), "listening") })
	be(false)
	if why := r.Endpoint("u", "e").Why; strings.Contains(why, "hunter") || !strings.Contains(why, "0 bytes came") {
		t.Errorf("down: %q", why)
	}
	be(true)
	r.Logs("level=INFO", "msg=health", "state=healthy")
	if strings.Contains(r.Log.String(), "happened") {
		t.Error("the line was held back")
	}
	for range 3 {
		be(false)
		be(true)
	}
	if err := r.End(); err != nil {
		t.Error(err)
	}
	r.Logs("level=WARN", "msg=health", "state=healthy", "flapping=true", "suppressed=4")
	if strings.Contains(r.Log.String(), "hunter") {
		t.Error("a secret is in the log")
	}
}
