package balancer_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

// TestDrainOfAnEndpointAtOnce: where there is no time to drain, its sessions are cut.
func TestDrainOfAnEndpointAtOnce(t *testing.T) {
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], drain_timeout: 0}]`, named(t, "a")))
	c := client(t, r.at("l"))
	line(t, c)
	if err := r.DrainEndpoint("u", "a", true); err != nil {
		t.Fatal(err)
	}
	if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}

// TestDrainOfAnEndpointTwice: the time of a drain that was taken back is not that of the
// next one.
func TestDrainOfAnEndpointTwice(t *testing.T) {
	const drain = 600 * time.Millisecond
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], drain_timeout: %v}]`, named(t, "a"), drain))
	c := client(t, r.at("l"))
	line(t, c)
	change := func(drain bool) {
		t.Helper()
		if err := r.DrainEndpoint("u", "a", drain); err != nil {
			t.Fatal(err)
		}
	}
	change(true)
	time.Sleep(drain / 2)
	change(false)
	began := time.Now()
	change(true)
	err := gone(t, c)
	if took := time.Since(began); !errors.Is(err, syscall.ECONNRESET) || took < drain {
		t.Errorf("%v after %v, want a reset after %v", err, took, drain)
	}
}

// TestUnhealthyEndpointsDrainTwice: nor is that of an endpoint that was well meanwhile.
func TestUnhealthyEndpointsDrainTwice(t *testing.T) {
	const drain = 800 * time.Millisecond
	role := newRole(t, false)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], on_unhealthy: drain, drain_timeout: %v, health_check: {type: http, port: %s, interval: 20ms, fast_interval: 10ms, rise: 1, fall: 1, http: {path: /primary, host: db.test}}}]`,
		named(t, "a"), drain, role.port))
	c := client(t, r.at("l"))
	line(t, c)
	change := func(well bool, state string) {
		t.Helper()
		role.well.Store(well)
		r.until("it is "+state, func() bool { return string(r.endpoint("u", "a").State) == state })
	}
	change(false, "down")
	time.Sleep(drain / 2)
	change(true, "up")
	began := time.Now()
	change(false, "down")
	err := gone(t, c)
	if took := time.Since(began); !errors.Is(err, syscall.ECONNRESET) || took < drain {
		t.Errorf("%v after %v, want a reset after %v", err, took, drain)
	}
}

// TestRemovedEndpointsAreTold of, as long as they have sessions.
func TestRemovedEndpointsAreTold(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: %s}], health_check: off}]`
	r := start(t, fmt.Sprintf(text, a, "a"))
	c := client(t, r.at("l"))
	line(t, c)
	r.apply(fmt.Sprintf(text, b, "b"))
	r.apply(fmt.Sprintf(text, b, "b"))
	if e := r.endpoint("u", "a"); e.State != admin.Removed || e.Active != 1 {
		t.Errorf("%+v, want it removed, with a session", e)
	}
	if u := r.Status().Upstreams[0]; u.Active != 1 {
		t.Errorf("the upstream has %d sessions, want 1", u.Active)
	}
	c.Close()
	r.until("it is told of no more", func() bool { return len(r.Status().Upstreams[0].Endpoints) == 1 })
}
