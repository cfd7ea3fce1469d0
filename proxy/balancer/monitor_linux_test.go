package balancer_test

import (
	"fmt"
	"net"
	"regexp"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestOutageIsLogged with the reason of each endpoint and, at its end, with those whom it has
// cost; clients that were refused are summed up by reason.
func TestOutageIsLogged(t *testing.T) {
	role := newRole(t, false)
	a := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [{address: %q, name: a}, {address: %[1]q, name: b}, {address: %[1]q, name: c, weight: 0}, {address: %q, name: e}]
    outlier_detection: {consecutive_failures: 1, base_ejection_time: 1h, max_ejection_time: 1h}
    retry: {attempts: 0}
    circuit_breaker: off
    health_check: {type: http, port: %s, interval: 20ms, fast_interval: 10ms, rise: 1, fall: 1, http: {path: /primary, host: db.test}}`,
		a, sockets.Refusing(t), role.port))
	if err := r.DrainEndpoint("u", "b", true); err != nil {
		t.Fatal(err)
	}
	r.Until("e is ejected", func() bool {
		if r.Endpoint("u", "e").State == "ejected" {
			return true
		}
		if c, err := net.Dial("tcp", r.At("l")); err == nil { // or it is reset at once
			c.Close()
		}
		return false
	})
	role.well.Store(false)
	r.Logs("level=WARN", `msg="upstream has no usable endpoint"`, "upstream=u", "a: down: ", "; b: drained; c: weight 0; e: ")
	for range 200 {
		refused(t, r.At("l"))
	}
	role.well.Store(true)
	r.Logs("level=INFO", `msg="upstream has a usable endpoint again"`, "upstream=u")
	refusals := regexp.MustCompile(`msg="upstream has a usable endpoint again" upstream=u duration=[0-9.]+m?s refused=(\d+) fallbacks=0`)
	if found := refusals.FindStringSubmatch(r.Log.String()); found == nil || len(found[1]) != 3 || found[1] < "200" {
		t.Errorf("the end of the outage says %q", found)
	}
	if err := r.End(); err != nil { // what is left of the minute is told
		t.Error(err)
	}
	r.Logs("level=WARN", `msg="clients refused"`, "upstream=u", "unavailable 2")
	r.Logs("level=WARN", `msg="clients refused"`, "listener=l", `reasons="upstream 2`)
}

// TestRefusalsByRuleAreNoWarning.
func TestRefusalsByRuleAreNoWarning(t *testing.T) {
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, deny: ["127.0.0.0/8"]}]
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a")))
	for range 7 {
		refused(t, r.At("l"))
	}
	if err := r.End(); err != nil {
		t.Error(err)
	}
	r.Logs("level=INFO", `msg="clients refused"`, "listener=l", `reasons="address `)
}
