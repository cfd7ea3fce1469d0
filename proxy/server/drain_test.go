package server_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

// TestDrainOfAnEndpointAtOnce: with drain_timeout 0, an endpoint's sessions are cut at once.
func TestDrainOfAnEndpointAtOnce(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], drain_timeout: 0}]`, named(t, "a")))
	c := client(t, r.At("l"))
	line(t, c)
	if err := r.DrainEndpoint("u", "a", true, "test"); err != nil {
		t.Fatal(err)
	}
	if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}

// TestDrainOfAnEndpointTwice: the timer of a cancelled drain does not end the next drain.
func TestDrainOfAnEndpointTwice(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], drain_timeout: 1h}]`, named(t, "a")))
	times := stopClock(r)
	c := client(t, r.At("l"))
	line(t, c)
	change := func(drain bool) {
		t.Helper()
		if err := r.DrainEndpoint("u", "a", drain, "test"); err != nil {
			t.Fatal(err)
		}
	}
	change(true)
	first := times.next(time.Hour)
	change(false)
	change(true)
	second := times.next(time.Hour)
	if first.over() {
		t.Error("the timer of the cancelled drain is still active")
	}
	echoes(t, c, "draining")
	second.over()
	if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}

// TestUnhealthyEndpointsDrainTwice: the same holds for the drain of an endpoint that was healthy
// meanwhile.
func TestUnhealthyEndpointsDrainTwice(t *testing.T) {
	t.Parallel()

	role := newRole(t, false)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], on_unhealthy: drain, drain_timeout: 1h, health_check: {type: http, port: %s, interval: 20ms, timeout: 2s, fast_interval: 10ms, rise: 1, fall: 1, http: {path: /primary, host: db.test}}}]`,
		named(t, "a"), role.port))
	times := stopClock(r)
	c := client(t, r.At("l"))
	line(t, c)
	fall := func() *alarm {
		t.Helper()
		role.well.Store(false)
		return times.next(time.Hour)
	}
	heal := func() {
		t.Helper()
		role.well.Store(true)
		r.Until("the endpoint is up", func() bool { return r.Endpoint("u", "a").State == "up" })
	}
	first := fall()
	heal()
	fall()
	first.over()
	heal() // a check later, the first time would have cut it
	last := fall()
	echoes(t, c, "draining")
	last.over()
	if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	r.Logs("level=INFO", "sessions cut", "upstream=u", "endpoint=a", "sessions=1", `cause="its endpoint is unhealthy"`)
}

// TestRemovedEndpointsAreTold: removed endpoints stay in the status as long as they have
// sessions.
func TestRemovedEndpointsAreTold(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: %s}], health_check: off}]`
	r := start(t, fmt.Sprintf(text, a, "a"))
	c := client(t, r.At("l"))
	line(t, c)
	r.Reload(fmt.Sprintf(text, b, "b"))
	r.Reload(fmt.Sprintf(text, b, "b"))
	if e := r.Endpoint("u", "a"); e.State != admin.Removed || e.Active != 1 {
		t.Errorf("%+v, want it removed, with a session", e)
	}
	if u := r.Status().Upstreams[0]; u.Active != 1 {
		t.Errorf("the upstream has %d sessions, want 1", u.Active)
	}
	c.Close()
	r.Until("the removed endpoint is no longer in the status", func() bool { return len(r.Status().Upstreams[0].Endpoints) == 1 })
}
