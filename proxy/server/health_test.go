package server_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/server"
)

// A role is a server for health checks: it reports over HTTP whether an endpoint is healthy.
type role struct {
	well atomic.Bool
	port string
}

func newRole(t *testing.T, secure bool) *role {
	t.Helper()
	r := new(role)
	r.well.Store(true)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/primary" || q.Host != "db.test" || q.TLS != nil && q.TLS.ServerName != "db.test" || !r.well.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "state: master\n")
	}))
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	_, r.port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return r
}

// TestHealthAfterAClockStep: a line has the time of its transition only if that was a while ago, and the right one, however
// the machine's clock was set since the start.
func TestHealthAfterAClockStep(t *testing.T) {
	t.Parallel()

	for _, step := range []time.Duration{0, 3 * time.Hour, -3 * time.Hour} {
		var stepped time.Duration
		today := func() time.Time { return time.Now().Round(0).Add(stepped) }
		happened := func(ago time.Duration) string {
			var line struct{ Happened string }
			var out bytes.Buffer
			server.LogHealth(slog.New(slog.NewJSONHandler(&out, nil)), ago, today, func() { stepped = step })
			stepped = 0
			must(t, json.Unmarshal(out.Bytes(), &line))
			return line.Happened
		}
		if got := happened(0); got != "" {
			t.Errorf("step of %v: it happened now, and the line has %s", step, got)
		}
		at, err := time.Parse(time.RFC3339Nano, happened(time.Hour))
		if off := time.Until(at) + time.Hour - step; err != nil || off.Abs() > condition.Patience {
			t.Errorf("step of %v: the time is %v off, %v", step, off, err)
		}
	}
}

// TestSourceOfChecks: a check comes from the source_address of its upstream, like the clients.
func TestSourceOfChecks(t *testing.T) {
	t.Parallel()

	var from atomic.Value
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	sockets.Serve(t, l, func(c net.Conn) { from.Store(c.RemoteAddr().(*net.TCPAddr).IP.String()) })
	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], source_address: %q, health_check: {interval: 20ms, timeout: 10ms, fast_interval: 10ms}}]`
	r := start(t, fmt.Sprintf(text, l.Addr(), "127.0.0.9"))
	r.Until("a check", func() bool { return from.Load() != nil })
	if at := from.Load(); at != "127.0.0.9" {
		t.Errorf("the check comes from %v", at)
	}
	r.Reload(fmt.Sprintf(text, l.Addr(), "127.0.0.10"))
	r.Until("a check from the other address", func() bool { return from.Load() == "127.0.0.10" })
}

// TestPanic: when too many endpoints are unhealthy, by a check in TLS at another port than theirs, health is ignored. Clients who
// are served so say nothing of a later outage.
func TestPanic(t *testing.T) {
	t.Parallel()

	role := newRole(t, true)
	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], panic_below: %v, queue: {hold: 0s}, health_check: {type: http, port: %s, tls: true, sni: db.test, interval: 20ms, fast_interval: 10ms, fall: 1, http: {path: /primary, host: db.test, status: [200], body: "state: master"}}}]`
	a := named(t, "a")
	r := start(t, fmt.Sprintf(text, a, 0.0, role.port))
	servedBy(t, r.At("l"), "a")
	role.well.Store(false)
	r.Until("the endpoint is down", func() bool { return r.Endpoint("u", "a").State == "down" })
	refused(t, r.At("l"))
	r.Reload(fmt.Sprintf(text, a, 0.5, role.port))
	servedBy(t, r.At("l"), "a")
	if !r.Status().Upstreams[0].Panic {
		t.Error("the status does not report panic")
	}
	outage := func() *admin.UpstreamOutage { return r.Status().Upstreams[0].Outage }
	r.Until("the outage is over for clients, though its cause is not", func() bool { o := outage(); return o != nil && o.Served })
	r.Logs(`msg="an upstream has no usable endpoint"`)
	role.well.Store(true)
	r.Logs(`msg="an upstream has a usable endpoint again"`)
	role.well.Store(false)
	r.Until("the next outage", func() bool { return outage() != nil })
	if outage().Served {
		t.Error("a client who was served before it counts for the next outage")
	}
}

// TestDrainOfAnEndpoint: a draining endpoint gets no new clients, its sessions may last for the
// drain timeout, and the drain can be cancelled, and begun again.
func TestDrainOfAnEndpoint(t *testing.T) {
	t.Parallel()

	r := startUpstream(t, `balance: first, endpoints: [{address: %q, name: a}, {address: %q, name: b}], drain_timeout: 1h`, named(t, "a"), named(t, "b"))
	times := stopClock(r)
	c := client(t, r.At("l"))
	if got := line(t, c); got != "a" {
		t.Fatal(got)
	}
	others := many(t, 100, r.At("l"))
	drain := func(drain bool) {
		t.Helper()
		must(t, r.DrainEndpoint("u", "a", drain, "test"))
	}
	drain(true)
	first := times.next(time.Hour)
	drain(false)
	drain(true)
	second := times.next(time.Hour)
	if first.over() {
		t.Error("the timer of the cancelled drain is still active")
	}
	servedBy(t, r.At("l"), "b")
	echoes(t, c, "draining")
	for range worker.NewSpread(time.Hour).Steps / 2 {
		then, ok := second.step()
		if !ok || len(then) != 1 {
			t.Fatalf("%v, %d timers follow", ok, len(then))
		}
		second = then[0]
	}
	r.Until("some sessions are cut", func() bool { return r.Endpoint("u", "a").Active < 80 })
	if n := alive(t, others); n < 20 || n > 80 {
		t.Errorf("after half of the steps %d of 100 sessions are left", n)
	}
	second.over()
	isReset(t, c)
	drain(false)
	servedBy(t, r.At("l"), "a")
}

// TestStandby: an endpoint whose check has the answer of a healthy standby is shown as that, until
// its answers are others.
func TestStandby(t *testing.T) {
	t.Parallel()
	const primary, standby, stopped = "primary", "standby", "stopped"
	role := func(is *atomic.Value) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			switch is.Load() {
			case standby:
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprint(w, `{"state": "running", "role": "replica"}`)
			case stopped:
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprint(w, `{"state": "stopped", "role": "replica"}`)
			}
		}))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	var a, b atomic.Value
	a.Store(primary)
	b.Store(standby)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [{name: a, address: %q}, {name: b, address: %q}]
    health_check: {type: http, interval: 30ms, fast_interval: 10ms, rise: 1, fall: 2, standby: '"state": "running"'}`, role(&a), role(&b)))
	r.Until("a standby", func() bool { return r.Endpoint("u", "b").State == admin.Standby })
	e := r.Endpoint("u", "b")
	if why := e.Unusable(); !strings.HasPrefix(why, "standby: its check got the standby answer (status 503)") {
		t.Errorf("the standby gets no clients for %q", why)
	}
	b.Store(stopped)
	r.Until("a standby that is down", func() bool { return r.Endpoint("u", "b").State == admin.Down })
	b.Store(standby)
	r.Until("a standby again", func() bool { return r.Endpoint("u", "b").State == admin.Standby })
	a.Store(standby)
	r.Until("no primary", func() bool { return r.Endpoint("u", "a").State == admin.Standby })
	b.Store(primary)
	r.Until("another primary", func() bool { return r.Endpoint("u", "b").State == admin.Up })
	r.Logs("state=standby")
}

// TestChecksOverTLSAfterAReload: checks change with the keys of the upstream that say how they begin TLS.
func TestChecksOverTLSAfterAReload(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "localhost")
	cfg := &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if h.ServerName == "" {
			return nil, errors.New("no name")
		}
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		return &pair, err
	}}
	named := sockets.Server(t, func(c net.Conn) { _ = tls.Server(c, cfg).Handshake() })
	asked := sockets.Server(t, func(c net.Conn) {
		b := make([]byte, len(sslRequest))
		if _, err := io.ReadFull(c, b); err == nil && string(b) == sslRequest {
			_, _ = io.WriteString(c, "S")
			_ = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pairOf(t, cert, key)}}).Handshake()
		}
	})
	_, port, _ := net.SplitHostPort(named)
	for name, c := range map[string]struct{ endpoint, keys string }{"starttls": {asked, "starttls: postgres"}, "tls": {"localhost:" + port, "tls: {ca: c.pem}"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := func(keys string) string {
				return fmt.Sprintf("listeners: [{name: l, bind: \"127.0.0.1:0\", upstream: u}]\nupstreams: [{name: u, endpoints: [{address: %q, name: a}], health_check: {tls: true, interval: 50ms, fall: 1, rise: 1}%s}]", c.endpoint, keys)
			}
			r := start(t, text(""), "c.pem", cert)
			r.Until("it is down", func() bool { return r.Endpoint("u", "a").State == admin.Down })
			r.Reload(text(", " + c.keys))
			r.Until("it is up", func() bool { return r.Endpoint("u", "a").State == admin.Up })
		})
	}
}

// TestProbesAreOfOutlierDetection: an endpoint that answers is probed once. The probe sends
// nothing and then closes, to find out whether the endpoint closes such a connection. Without
// outlier_detection, and without checks, the endpoint gets its clients' connections and no other.
func TestProbesAreOfOutlierDetection(t *testing.T) {
	t.Parallel()

	var probes, clients [2]atomic.Int64
	server := func(i int) string {
		return sockets.Server(t, func(c net.Conn) {
			one := make([]byte, 1)
			if _, err := c.Read(one); err == io.EOF {
				probes[i].Add(1)
				return
			}
			clients[i].Add(1)
			_, _ = c.Write(one)
		})
	}
	r := start(t, fmt.Sprintf(`
listeners: [{name: probed, bind: "127.0.0.1:0", upstream: probed}, {name: left, bind: "127.0.0.1:0", upstream: left}]
upstreams:
  - {name: probed, endpoints: [%q], health_check: off}
  - {name: left, endpoints: [%q], health_check: off, outlier_detection: off}`, server(0), server(1)))
	asked := int64(0)
	r.Until("an endpoint is probed", func() bool {
		for _, listener := range []string{"probed", "left"} {
			c := client(t, r.At(listener))
			sends(t, c, "?")
			must(t, second(io.ReadAll(c)))
			c.Close()
		}
		asked++
		return probes[0].Load() > 0
	})
	if n := probes[0].Load(); n != 1 || clients[0].Load() != asked {
		t.Errorf("%d probes and %d clients, want 1 and %d", n, clients[0].Load(), asked)
	}
	if n := probes[1].Load(); n != 0 || clients[1].Load() != asked {
		t.Errorf("without outlier_detection: %d probes and %d clients, want none and %d", n, clients[1].Load(), asked)
	}
}

// TestConnectsAndVerdicts: the status has the connections of an upstream and of its endpoints with the times that
// they took, and the time of ended sessions by verdict.
func TestConnectsAndVerdicts(t *testing.T) {
	t.Parallel()

	r := startUpstream(t, `endpoints: [{address: %q, name: e}], health_check: off`, named(t, "up"))
	const clients = 3
	began := time.Now()
	open := many(t, clients, r.At("l"))
	u, e := r.Status().Upstreams[0].Connects, r.Endpoint("u", "e").Connects
	if sum := sumOf(u.Buckets); u.Made != clients || sum != clients || u.SumUs <= 0 || len(u.Buckets) != len(tally.ConnectBounds)+1 {
		t.Errorf("the upstream has made %+v", u)
	}
	if diff := cmp.Diff(admin.Connects{Made: u.Made, SumUs: u.SumUs}, e); diff != "" {
		t.Errorf("its only endpoint: %s", diff)
	}
	r.Until("they have lasted long enough for a verdict", func() bool { return time.Since(began) > 250*time.Millisecond })
	for _, c := range open {
		c.Close()
	}
	r.Until("the sessions have verdicts", func() bool {
		return len(r.Status().Upstreams[0].Limited) > 0 && len(r.Listener("l").Limited) > 0 && len(r.Endpoint("u", "e").Limited) > 0
	})
	if a := r.Endpoint("u", "e").Answers; a == nil || a.Made != clients || a.SumUs < 0 || a.SumUs > time.Since(began).Microseconds()*clients {
		t.Errorf("it has answered %+v", a)
	}
}

func sumOf(list []int64) (sum int64) {
	for n := range slices.Values(list) {
		sum += n
	}
	return sum
}

// TestSessionsCutBefore: sessions cut earlier, as configured, are not reported at the end of the
// process. Only sessions cut for the end are.
func TestSessionsCutBefore(t *testing.T) {
	t.Parallel()

	for _, last := range []bool{false, true} {
		role := newRole(t, false)
		r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: v}]
upstreams:
  - {name: u, endpoints: [{address: %q, name: a}], on_unhealthy: reset, health_check: {type: http, port: %s, interval: 20ms, fast_interval: 10ms, rise: 1, fall: 1, http: {path: /primary, host: db.test}}}
  - {name: v, endpoints: [%[1]q]}`, named(t, "a"), role.port))
		c := client(t, r.At("l"))
		line(t, c)
		role.well.Store(false)
		isReset(t, c)
		want := ""
		if last {
			line(t, client(t, r.At("m")))
			want = "sessions were reset before their end: 1"
		}
		if err := r.End(); last != errors.Is(err, server.ErrCut) || err != nil && err.Error() != want {
			t.Errorf("the process ends with %v, want %q", err, want)
		}
	}
}

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
	if e.Why != "2 failures in a row, the last: connect failed: connection refused" {
		t.Errorf("ejected: %q", e.Why)
	}
	if e.Since.Before(began.Add(-time.Second)) || e.Since.After(time.Now()) { // a problem without it begins at a look, up to a second later
		t.Errorf("ejected since %v", e.Since)
	}
	if left := e.Until.Sub(began); left < 30*time.Second || left > 40*time.Second {
		t.Errorf("ejected for %v", left)
	}
	if f.BreakerWhy != "2 of 2 connections failed, the last: connect failed: connection refused" {
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

// TestChecksShareTexts: the checks of many endpoints take no more memory if their upstream has long texts. It is not parallel,
// because it measures the process.
func TestChecksShareTexts(t *testing.T) {
	long := config.Secret{Value: strings.Repeat("x", 1<<20)}
	for _, h := range []*config.HealthCheck{
		{Type: "tcp", Send: long, Expect: long, Standby: long},
		{Type: "http", HTTP: config.HTTPCheck{Path: "/" + long.Value, Host: long.Value, Body: long}},
	} {
		_, all := heap.Taken(func() {
			for range 100 {
				if _, err := server.CheckConfig(&config.Upstream{HealthCheck: h}, "127.0.0.1:1", nil, nil); err != nil {
					t.Fatal(err)
				}
			}
		})
		if all > 16<<20 {
			t.Errorf("100 checks of type %s take %d MiB", h.Type, all>>20)
		}
	}
}
