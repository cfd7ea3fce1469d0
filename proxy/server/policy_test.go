package server_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/server"
	"github.com/penstock/penstock/relay"
)

// TestPoliciesOfConfiguration: the names of `balance` in a configuration are those of the policies.
func TestPoliciesOfConfiguration(t *testing.T) {
	t.Parallel()

	field, ok := reflect.TypeFor[config.Upstream]().FieldByName("Balance")
	if !ok {
		t.Fatal("an upstream has no Balance")
	}
	names := strings.Fields(field.Tag.Get("enum"))
	if got, want := strings.Join(names, " "), strings.Trim(fmt.Sprint(lb.Policies()), "[]"); got != want {
		t.Errorf("the enum of balance is %q, want %q", got, want)
	}
}

// shares returns how many of 40 clients each server gets.
func (r *rig) shares() string {
	r.T.Helper()
	has := map[string]int{}
	for range 40 {
		has[whose(r.T, r.At("l"))]++
	}
	return fmt.Sprint(has) // sorted
}

// TestWeights: clients are shared in proportion to the weights, also when an operator or a reload
// changes them.
func TestWeights(t *testing.T) {
	t.Parallel()

	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a, weight: %d}, {address: %q, name: b}]}]`
	a, b := named(t, "a"), named(t, "b")
	r := start(t, fmt.Sprintf(text, a, 3, b))
	if got := r.shares(); got != "map[a:30 b:10]" {
		t.Errorf("3 to 1: %s", got)
	}
	must(t, r.SetWeight("u", "a", 1, "test"))
	if got := r.shares(); got != "map[a:20 b:20]" {
		t.Errorf("1 to 1: %s", got)
	}
	r.Reload(fmt.Sprintf(text, a, 0, b))
	if got := r.shares(); got != "map[b:40]" {
		t.Errorf("0 to 1: %s", got)
	}
}

// TestKeysArrive: each key reaches the place where it takes effect, and none reaches another's
// place. Its effect there is tested in those packages.
func TestKeysArrive(t *testing.T) {
	t.Parallel()

	text := fmt.Sprintf(`
limits: {per_second: 1234}
listeners:
  - name: l
    bind: "127.0.0.1:0"
    upstream: u
    mirror: {upstream: v, percent: 25}
    connect: on_data
    accept_proxy: {versions: [2], from: ["127.0.0.0/8"], timeout: 4s}
    limits: {source_prefix: [24, 48], bandwidth: {both: 11MiB, up: 5MiB, down: 7MiB, burst: 3MiB}, bandwidth_per_connection: {both: 3MiB, up: 2MiB, down: 1MiB, burst: 4MiB}}
    timeouts: {preread: 9s, connect: 7s, first_byte: 1500ms, idle: 61s, half_close: 62s, lifetime: 63s, lifetime_jitter: 0.25}
    socket: {backlog: 77}
upstreams:
  - name: u
    balance: random_two
    endpoints: [{address: %q, zone: here}, {address: "127.0.0.1:1", backup: true, weight: 9, connections: 8}]
    zone_aware: {local: here, spill_below: 0.45}
    health_check: {interval: 21s, fast_interval: 12s, timeout: 13s, jitter: 0.15, rise: 4, fall: 5, port: 9, expect: "y"}
    on_unhealthy: reset
    outlier_detection: {consecutive_failures: 3, failure_percentage: 17, window: 14s, min_volume: 19, base_ejection_time: 16s, max_ejection_time: 18m, max_ejected: 0.3}
    circuit_breaker: {failure_percentage: 41, window: 22s, min_volume: 23, open: 24s, trial_connections: 6, connections: 1000, pending: 200}
    retry: {attempts: 7, backoff: 31ms, max_backoff: 310ms, budget: 0.37}
    queue: {size: 25, timeout: 26s}
    slow_start: 27s
    backup_when: full
    panic_below: 0.05
    send_proxy: 2
  - {name: v, endpoints: ["127.0.0.1:1"], health_check: {type: http, port: 81, tls: true, sni: db.test, standby: replica, http: {path: /p, host: h.test, status: [204], body: ready}}}
  - {name: w, endpoints: ["127.0.0.1:1"], health_check: {send: ping, expect: pong}}
`, named(t, "a"))
	r := start(t, text)
	lc, l, uc, v := r.InForce("l", "u")
	for range 1234 {
		l.Process.Spend(1)
	}
	equal(t, "limits.per_second", l.Process.Until(1).Round(10*time.Microsecond), 810*time.Microsecond)
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
	equal(t, "the breaker is asked", v.Breaker != nil, true)
	equal(t, "circuit_breaker", *server.BreakerConfig(uc.CircuitBreaker, true), ofEndpoint)
	equal(t, "how clients are shared", fmt.Sprintf("%+v", *server.SetConfig(uc)), fmt.Sprintf("%+v", lb.Config{
		Policy: lb.RandomTwo, PanicBelow: 0.05, SlowStart: 27 * time.Second, Zone: "here", SpillBelow: 0.45, BackupWhenFull: true,
	}))
	for i, want := range []lb.Member{{Zone: "here", Weight: 1}, {Backup: true, Weight: 9, Connections: 8}} {
		m := r.Held().Sets["u"].Members()[i]
		m.Endpoint = nil
		equal(t, "an endpoint", m, want)
	}
	check, err := server.CheckConfig(uc, "127.0.0.1:1", nil, nil)
	must(t, err)
	check.Probe = nil
	_, _, vc, _ := r.InForce("l", "v")
	p := server.ProbeConfig(vc, "127.0.0.1:1")
	equal(t, "http", fmt.Sprintf("%+v", *p.HTTP), fmt.Sprintf("%+v", health.HTTPProbe{Path: "/p", Host: "h.test", Status: []int{204}, Body: "ready"}))
	equal(t, "port, sni and standby", fmt.Sprint(p.Port, p.TLS.ServerName, p.Standby), fmt.Sprint(81, "db.test", "replica"))
	_, _, wc, _ := r.InForce("l", "w")
	p = server.ProbeConfig(wc, "127.0.0.1:1")
	equal(t, "send and expect", p.Send+" "+p.Expect, "ping pong")
	mirrored := 0
	for range 400 { // from wherever it begins
		mirrored += 1 - l.Mirror.Share.Next()
	}
	equal(t, "mirror.percent", (mirrored+10)/20, 5)
	equal(t, "health_check", *check, health.CheckConfig{
		Interval: 21 * time.Second, FastInterval: 12 * time.Second, Timeout: 13 * time.Second, Jitter: 0.15, Rise: 4, Fall: 5,
		Elsewhere: true, Answered: true, Strict: true,
	})
	r.Reload(strings.Replace(text, "both: 11MiB", "both: 12MiB", 1))
	_, next, _, _ := r.InForce("l", "u")
	equal(t, "the bucket of sessions before and after a reload", next.Limits.Bandwidth, l.Limits.Bandwidth)
	equal(t, "bandwidth.both after a reload", l.Limits.Bandwidth.Rate(), 12<<20)
	r.Reload(strings.Replace(text, "both: 11MiB, up: 5MiB,", "", 1))
	equal(t, "bandwidth.both of present sessions once there is none", l.Limits.Bandwidth.Rate(), 0)
	equal(t, "bandwidth.down of present sessions", l.Limits.BandwidthBToA.Rate(), 7<<20)
	_, next, _, _ = r.InForce("l", "u")
	equal(t, "bandwidth.both of new sessions", next.Limits.Bandwidth, nil)
	r.Reload(text)
	equal(t, "bandwidth.both of present sessions once it is back", l.Limits.Bandwidth.Rate(), 11<<20)
}

func equal[T comparable](t *testing.T, key string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", key, got, want)
	}
}

// proxyHeader is a PROXY header of version 2 from a source, with a TLV.
func proxyHeader(source byte, kind byte, value string) string {
	body := []byte{192, 0, 2, source, 192, 0, 2, 200, 0, 1, 0, 2, kind}
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(value))), value...)
	return string(append(binary.BigEndian.AppendUint16([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11"), uint16(len(body))), body...))
}

// TestBalanceOn: maglev hashes the property that balance_on names: clients of one name, or with one TLV, get one
// endpoint wherever they come from, and two nodes agree. A client without it is hashed by its source, and counted.
func TestBalanceOn(t *testing.T) {
	t.Parallel()
	cert, key := certificate.New(t, "front.test")
	secured := func(name string) string { return secure(t, name, "any.test") }
	plain := func(name string) string { return named(t, name) }
	text := func(of func(string) string, listener, on string) string {
		endpoints := ""
		for i := range 8 {
			endpoints += fmt.Sprintf("{name: e%d, address: %q}, ", i, of(fmt.Sprintf("e%d", i)))
		}
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, timeouts: {preread: 5m}%s}]
upstreams: [{name: u, balance: maglev, balance_on: %q, health_check: off, endpoints: [%s]}]`, listener, on, endpoints)
	}
	unkeyed := func(r *rig) int64 { return r.Status().Upstreams[0].Unkeyed }
	for name, c := range map[string]struct {
		of       func(string) string
		text, on string
		get      func(r *rig, source byte, value string) string
	}{
		"sni": {secured, "", "sni", func(r *rig, source byte, value string) string {
			return line(t, helloFrom(t, source, r.At("l"), value))
		}},
		"sni, TLS ends here": {plain, ", tls: {certificates: [{cert: c.pem, key: k.pem}]}", "sni", func(r *rig, source byte, value string) string {
			return line(t, helloFrom(t, source, r.At("l"), value))
		}},
		"tlv": {plain, ", accept_proxy: {versions: [2]}", "tlv:0xe0", func(r *rig, source byte, value string) string {
			conn := from(t, source, r.At("l"))
			_, _ = io.WriteString(conn, proxyHeader(source, 0xe0, value))
			return line(t, conn)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			config := text(c.of, c.text, c.on)
			a, b := start(t, config, "c.pem", cert, "k.pem", key), start(t, config, "c.pem", cert, "k.pem", key)
			owners := make(map[string]bool)
			for i := range 12 {
				value := fmt.Sprintf("T%d.test", i)
				want := c.get(a, 1, value)
				owners[want] = true
				for source := byte(2); source < 5; source++ {
					if got := c.get(a, source, value); got != want {
						t.Fatalf("%s from 127.0.1.%d gets %s, from 127.0.1.1 %s", value, source, got, want)
					}
				}
				if got := c.get(b, 9, value); got != want {
					t.Fatalf("%s gets %s on another node, %s on this one", value, got, want)
				}
			}
			if len(owners) < 3 {
				t.Errorf("12 values have %d owners of 8", len(owners))
			}
			if n := unkeyed(a); n != 0 {
				t.Errorf("%d sessions are counted as without the property", n)
			}
		})
	}
	t.Run("without it", func(t *testing.T) {
		bySNI, bySource := start(t, text(plain, "", "sni")), start(t, text(plain, "", "source"))
		if a, b := bySource.Status().Upstreams[0], bySNI.Status().Upstreams[0]; a.BalanceOn != "" || b.BalanceOn != "sni" {
			t.Errorf("the status has balance_on %q, want none, and %q, want sni", a.BalanceOn, b.BalanceOn)
		}
		for source := range byte(6) {
			want := line(t, from(t, source+1, bySource.At("l")))
			conn := from(t, source+1, bySNI.At("l"))
			_, _ = io.WriteString(conn, "GET /\n")
			hears(t, conn, want)
		}
		if n := unkeyed(bySNI); n != 6 {
			t.Errorf("%d sessions are counted as without a name, want 6", n)
		}
		if n := unkeyed(bySource); n != 0 {
			t.Errorf("%d sessions are counted as without a source", n)
		}
	})
}

// TestMetricsBy: sessions and bytes are counted by the listed names, and all others together: a client that invents
// names makes no series. A reload that adds a name lets the counts of the others go on.
func TestMetricsBy(t *testing.T) {
	t.Parallel()

	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, timeouts: {preread: 20s}, metrics_by: {key: sni, values: [%s]}}]
upstreams: [{name: u, health_check: off, endpoints: [%q]}]`
	server := secure(t, "s", "any.test")
	r := start(t, fmt.Sprintf(text, "A.test, b.test", server))
	visit := func(name string) {
		c := helloFrom(t, 1, r.At("l"), name)
		line(t, c)
		c.Close()
	}
	counts := func() map[string]int64 {
		list := make(map[string]int64)
		for _, k := range r.sampled().Listeners[0].Keyed {
			list[k.Value] = k.Sessions
			moved := k.Bytes.ClientToEndpoint.Spliced + k.Bytes.ClientToEndpoint.Copied
			if k.Sessions > 0 != (moved > 0) {
				t.Errorf("%s: %d sessions and %d bytes", k.Value, k.Sessions, moved)
			}
		}
		return list
	}
	visit("a.test")
	visit("A.TEST")
	for i := range 20 {
		visit(fmt.Sprintf("invented%d.test", i))
	}
	running := helloFrom(t, 1, r.At("l"), "b.test")
	line(t, running)
	conn := from(t, 1, r.At("l"))
	_, _ = io.WriteString(conn, "GET /\n") // the endpoint answers with an alert
	_, _ = conn.Read(make([]byte, 1))
	if got, want := fmt.Sprint(counts()), "map[a.test:2 b.test:1 other:20 unknown:1]"; got != want {
		t.Errorf("counts are %s, want %s", got, want)
	}
	r.Reload(fmt.Sprintf(text, "c.test, a.test", server))
	visit("a.test")
	visit("c.test")
	if got, want := fmt.Sprint(counts()), "map[a.test:3 c.test:1 other:20 unknown:1]"; got != want {
		t.Errorf("after a reload counts are %s, want %s", got, want)
	}
}
