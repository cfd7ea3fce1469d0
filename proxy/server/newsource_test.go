package server_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

// TestNewSource: a reload that gives an upstream another source of endpoints asks that first. Until it has
// answered no client gets an endpoint of the source before.
func TestNewSource(t *testing.T) {
	t.Parallel()

	a, b, c := named(t, "a"), named(t, "b"), named(t, "c")
	text := func(of, hold string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, %s, health_check: off, queue: {hold: %s}}]`, of, hold)
	}
	file := func(name string) string { return fmt.Sprintf("discover: {file: {path: %s}}", name) }
	r := start(t, text(fmt.Sprintf("endpoints: [%q]", a), "0s"), "b.yaml", fmt.Sprintf("[%q]", b), "bad.yaml", "[nonsense]")
	served := func(by string) {
		t.Helper()
		conn := client(t, r.At("l"))
		defer conn.Close()
		if got := line(t, conn); got != by {
			t.Errorf("a client gets %q, want %q", got, by)
		}
	}
	served("a")
	r.Reload(text(file("b.yaml"), "0s"))
	served("b")
	for _, name := range []string{"c.yaml", "bad.yaml"} { // missing, and not to be read
		r.Reload(text(file(name), "1m"))
		r.Logs("endpoints are not discovered yet: there are none, clients are held for 1m0s and then refused", "upstream=u")
		conn := client(t, r.At("l"))
		defer conn.Close()
		r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
		r.Write(name, fmt.Sprintf("[%q]", c))
		if got := line(t, conn); got != "c" {
			t.Errorf("a client gets %q after the answer, want c", got)
		}
	}
}

// TestNewSourceOfAFailedReload: a reload that fails has asked a source; it is asked no more, and the endpoints stay.
func TestNewSourceOfAFailedReload(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	taken := client(t, a).RemoteAddr()
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, a), "b.yaml", fmt.Sprintf("[%q]", named(t, "b")))
	cfg := r.Load(fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "%s", upstream: u}]
upstreams: [{name: u, discover: {file: {path: b.yaml}}, health_check: off}]`, taken))
	if err := r.Server.Apply(t.Context(), cfg); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("%v, want a taken address", err)
	}
	conn := client(t, r.At("l"))
	defer conn.Close()
	if got := line(t, conn); got != "a" {
		t.Errorf("a client gets %q, want a", got)
	}
}

// TestOtherServers: a reload that names other servers for the same DNS name keeps the last good set while these do
// not answer.
func TestOtherServers(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	good, bad := new(zone), new(zone)
	good.set(service(t, a, 1), "one.test. 1 IN A 127.0.0.1")
	bad.fail(true)
	text := func(server string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, discover: {dns: {name: _db._tcp.test, servers: [%q]}}, health_check: off, queue: {hold: 0s}}]`, server)
	}
	r := start(t, text(good.serve(t)))
	r.Reload(text(bad.serve(t)))
	if got := whose(t, r.At("l")); got != "a" {
		t.Errorf("a client gets %q, want a", got)
	}
	if d := r.Status().Upstreams[0].Discovery; d.Failures == 0 {
		t.Errorf("the new server has not failed: %+v", d)
	}
}
