package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
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
		if q.URL.Path != "/primary" || q.Host != "db.test" || !r.well.Load() {
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

// TestRoleChecks: an HTTP check at another port than the endpoint's, plain or in TLS, decides
// whether the endpoint gets clients.
func TestRoleChecks(t *testing.T) {
	t.Parallel()

	for tls, secure := range map[string]bool{"tls: false": false, "tls: true, sni: db.test": true} {
		role := newRole(t, secure)
		r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [{address: %q, name: a}]
    queue: {hold: 0s}
    health_check: {type: http, port: %s, %s, interval: 20ms, timeout: 2s, fast_interval: 10ms, rise: 2, fall: 2, http: {path: /primary, host: db.test, status: [200], body: "state: master"}}`,
			named(t, "a"), role.port, tls))
		if got := whose(t, r.At("l")); got != "a" {
			t.Error(got)
		}
		role.well.Store(false)
		r.Until("the endpoint is down", func() bool { return r.Endpoint("u", "a").State == "down" })
		refused(t, r.At("l"))
		role.well.Store(true)
		r.Until("the endpoint is up", func() bool { return r.Endpoint("u", "a").State == "up" })
		whose(t, r.At("l"))
		r.End()
	}
}

// TestPanic: when too many endpoints are unhealthy, health is ignored.
func TestPanic(t *testing.T) {
	t.Parallel()

	role := newRole(t, false)
	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], panic_below: %v, queue: {hold: 0s}, health_check: {type: http, port: %s, interval: 20ms, timeout: 2s, fast_interval: 10ms, fall: 1, http: {path: /primary, host: db.test}}}]`
	a := named(t, "a")
	r := start(t, fmt.Sprintf(text, a, 0.0, role.port))
	role.well.Store(false)
	r.Until("the endpoint is down", func() bool { return r.Endpoint("u", "a").State == "down" })
	refused(t, r.At("l"))
	r.Reload(fmt.Sprintf(text, a, 0.5, role.port))
	if got := whose(t, r.At("l")); got != "a" {
		t.Error(got)
	}
	if !r.Status().Upstreams[0].Panic {
		t.Error("the status does not report panic")
	}
}

// TestUnhealthyEndpointsDrain: sessions of a failed endpoint may last for the drain timeout. They
// continue if the endpoint is healthy again by then.
func TestUnhealthyEndpointsDrain(t *testing.T) {
	t.Parallel()

	role := newRole(t, false)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], on_unhealthy: drain, drain_timeout: 1h, health_check: {type: http, port: %s, interval: 20ms, timeout: 2s, fast_interval: 10ms, rise: 1, fall: 1, http: {path: /primary, host: db.test}}}]`,
		named(t, "a"), role.port))
	times := stopClock(r)
	c := client(t, r.At("l"))
	line(t, c)
	role.well.Store(false)
	first := times.next(time.Hour)
	role.well.Store(true)
	r.Until("the endpoint is up", func() bool { return r.Endpoint("u", "a").State == "up" })
	first.over()
	role.well.Store(false)
	second := times.next(time.Hour)
	echoes(t, c, "it was well in time, and drains")
	second.over()
	if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}

// TestCircuitBreaker: an upstream whose connections fail is tried no more while its breaker is open, but for the trials of a last resort.
// A trial closes the breaker.
func TestCircuitBreaker(t *testing.T) {
	t.Parallel()

	port := sockets.Port(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: "127.0.0.1:%s", name: a}], health_check: off, outlier_detection: off, queue: {hold: 0s}, retry: {attempts: 0}, circuit_breaker: {min_volume: 5, open: 1500ms, trial_connections: 1}}]`, port))
	for range 5 {
		refused(t, r.At("l"))
	}
	r.Until("the breaker is open", func() bool { return r.Status().Upstreams[0].Breaker == "open" })
	failures, began := r.Endpoint("u", "a").Failures, time.Now()
	for range 20 {
		refused(t, r.At("l"))
	}
	const trials = 50 * time.Millisecond // of an endpoint that cannot be connected to, whatever its breaker says
	u, e := r.Status().Upstreams[0], r.Endpoint("u", "a")
	if n, most := e.Failures-failures, int64(time.Since(began)/trials)+1; n > most {
		t.Errorf("the upstream was tried %d times while its breaker was open, more than %d", n, most)
	}
	if u.Opened != 1 || e.Opened != 1 || e.Picked != e.Failures || e.Total != 0 {
		t.Errorf("%+v, want the breakers opened once, and %d picks", u, e.Failures)
	}
	serverAt(t, port, "back")
	r.Until("a trial succeeds", func() bool {
		c, err := net.DialTimeout("tcp", r.At("l"), patience)
		if err != nil {
			return false // reset before connect returned
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		got, _ := sockets.ReadLine(c)
		return got == "back"
	})
	r.Until("the breaker is closed", func() bool {
		served(r.At("l"))
		return r.Status().Upstreams[0].Breaker == "closed"
	})
	for range 10 {
		whose(t, r.At("l"))
	}
}

// TestEjectionsWithheld: an endpoint that is not ejected because of max_ejected is reported.
func TestEjectionsWithheld(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}, {address: %q, name: b, weight: 0}], health_check: off, circuit_breaker: off, queue: {hold: 0s}, retry: {attempts: 0}, outlier_detection: {consecutive_failures: 2, max_ejected: 0.4}}]`,
		sockets.Refusing(t), named(t, "b")))
	for range 3 {
		refused(t, r.At("l"))
	}
	if u := r.Status().Upstreams[0]; u.EjectionsWithheld != 2 || u.Endpoints[0].State != "up" {
		t.Errorf("%+v, want two ejections withheld", u)
	}
}

// TestBreakerConnections: the upstream's sessions are limited, and a client beyond the limit
// waits or is refused.
func TestBreakerConnections(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: v}]
upstreams:
  - {name: u, endpoints: [%q], circuit_breaker: {connections: 1}, queue: {size: 0}}
  - {name: v, endpoints: [%[1]q], circuit_breaker: {connections: 1}, queue: {size: 1}}`, named(t, "a")))
	first, second := client(t, r.At("l")), client(t, r.At("m"))
	line(t, first)
	line(t, second)
	refused(t, r.At("l"))
	late := client(t, r.At("m"))
	r.Until("the client waits", func() bool { return r.Status().Upstreams[1].Pending == 1 })
	second.Close()
	line(t, late)
}

// TestDrainOfAnEndpoint: a draining endpoint gets no new clients, its sessions may last for the
// drain timeout, and the drain can be cancelled.
func TestDrainOfAnEndpoint(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, balance: first, endpoints: [{address: %q, name: a}, {address: %q, name: b}], drain_timeout: 1h}]`,
		named(t, "a"), named(t, "b")))
	times := stopClock(r)
	c := client(t, r.At("l"))
	if got := line(t, c); got != "a" {
		t.Fatal(got)
	}
	if err := r.DrainEndpoint("u", "a", true, "test"); err != nil {
		t.Fatal(err)
	}
	if got := whose(t, r.At("l")); got != "b" {
		t.Error(got)
	}
	echoes(t, c, "draining")
	times.next(time.Hour).over()
	if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	if err := r.DrainEndpoint("u", "a", false, "test"); err != nil {
		t.Fatal(err)
	}
	if got := whose(t, r.At("l")); got != "a" {
		t.Error(got)
	}
}
