package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/server"
	"github.com/penstock/penstock/relay"
)

// TestKeysArrive: each key reaches the place where it takes effect, and none reaches another's
// place. Its effect there is tested in those packages.
func TestKeysArrive(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners:
  - name: l
    bind: "127.0.0.1:0"
    upstream: u
    connect: on_data
    accept_proxy: {versions: [2], from: ["127.0.0.0/8"], timeout: 4s}
    limits: {source_prefix: [24, 48], bandwidth: {both: 11MiB, up: 5MiB, down: 7MiB, burst: 3MiB}, bandwidth_per_connection: {both: 3MiB, up: 2MiB, down: 1MiB, burst: 4MiB}}
    timeouts: {preread: 9s, connect: 7s, first_byte: 1500ms, idle: 61s, half_close: 62s, lifetime: 63s, lifetime_jitter: 0.25}
    socket: {backlog: 77}
upstreams:
  - name: u
    balance: random_two
    endpoints: [{address: %q, zone: here}]
    zone_aware: {local: here, spill_below: 0.45}
    health_check: {interval: 21s, fast_interval: 12s, timeout: 13s, jitter: 0.15, rise: 4, fall: 5}
    outlier_detection: {consecutive_failures: 3, failure_percentage: 17, window: 14s, min_volume: 19, base_ejection_time: 16s, max_ejection_time: 18m, max_ejected: 0.3}
    circuit_breaker: {failure_percentage: 41, window: 22s, min_volume: 23, open: 24s, trial_connections: 6, connections: 1000, pending: 200}
    retry: {attempts: 7, backoff: 31ms, max_backoff: 310ms, budget: 0.37}
    queue: {size: 25, timeout: 26s}
    slow_start: 27s
    backup_when: full
    panic_below: 0.05
    send_proxy: 2
`, named(t, "a")))
	lc, l, uc, v := r.InForce("l", "u")
	equal(t, "lifetime_jitter", l.Limits.LifetimeJitter, 0.25)
	equal(t, "idle", l.Limits.IdleTimeout, 61*time.Second)
	equal(t, "half_close", l.Limits.HalfCloseTimeout, 62*time.Second)
	equal(t, "lifetime", l.Limits.MaxLifetime, 63*time.Second)
	equal(t, "first_byte", l.Limits.FirstByte, 1500*time.Millisecond)
	equal(t, "bandwidth_per_connection", l.Limits.PerConnection, relay.Rates{Both: 3 << 20, AToB: 2 << 20, BToA: 1 << 20, Burst: 4 << 20})
	equal(t, "bandwidth.both", l.Limits.Bandwidth.Rate(), 11<<20)
	equal(t, "bandwidth.up", l.Limits.BandwidthAToB.Rate(), 5<<20)
	equal(t, "bandwidth.down", l.Limits.BandwidthBToA.Rate(), 7<<20)
	equal(t, "source_prefix", l.SourcePrefix, [2]int{24, 48})
	equal(t, "connect", l.Connect, 7*time.Second)
	equal(t, "preread", l.Preread.Timeout, 9*time.Second)
	equal(t, "connect: on_data", l.Preread.Data, true)
	equal(t, "accept_proxy.timeout", l.Preread.Header.Timeout, 4*time.Second)
	equal(t, "backlog", r.Backlog(lc), 77)

	equal(t, "attempts", v.Attempts, 7)
	equal(t, "backoff", v.Backoff, 31*time.Millisecond)
	equal(t, "max_backoff", v.MaxBackoff, 310*time.Millisecond)
	equal(t, "budget", server.BudgetConfig(&uc.Retry).Ratio, 0.37)
	equal(t, "queue.size", v.QueueSize, 25)
	equal(t, "queue.timeout", v.QueueTimeout, 26*time.Second)
	equal(t, "send_proxy", v.SendProxy, 2)
	equal(t, "outlier_detection", *server.OutlierConfig(uc.OutlierDetection), health.OutlierConfig{
		ConsecutiveFailures: 3, FailurePercentage: 17, Window: 14 * time.Second, MinVolume: 19,
		BaseEjectionTime: 16 * time.Second, MaxEjectionTime: 18 * time.Minute, MaxEjected: 0.3,
	})
	ofEndpoint := health.BreakerConfig{
		FailurePercentage: 41, Window: 22 * time.Second, MinVolume: 23, Open: 24 * time.Second, TrialConnections: 6,
	}
	equal(t, "circuit_breaker of an endpoint", *server.BreakerConfig(uc.CircuitBreaker, false), ofEndpoint)
	ofEndpoint.Connections, ofEndpoint.Pending = 1000, 200
	equal(t, "circuit_breaker", *server.BreakerConfig(uc.CircuitBreaker, true), ofEndpoint)
	equal(t, "how clients are shared", fmt.Sprintf("%+v", *server.SetConfig(uc)), fmt.Sprintf("%+v", lb.Config{
		Policy: lb.RandomTwo, PanicBelow: 0.05, SlowStart: 27 * time.Second, Zone: "here", SpillBelow: 0.45, BackupWhenFull: true,
	}))
	check, err := server.CheckConfig(uc, "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	check.Probe = nil
	equal(t, "health_check", *check, health.CheckConfig{
		Interval: 21 * time.Second, FastInterval: 12 * time.Second, Timeout: 13 * time.Second, Jitter: 0.15, Rise: 4, Fall: 5,
	})
}

func equal[T comparable](t *testing.T, key string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", key, got, want)
	}
}
