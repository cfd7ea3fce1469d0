package balancer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
)

// TestDiscoveryInStatus: the status of an upstream says where its endpoints are from, since
// when nothing was found out, why, and how often that has failed.
func TestDiscoveryInStatus(t *testing.T) {
	a := named(t, "a")
	z := new(zone)
	z.set(service(t, a, 1), "one.test. 1 IN A 127.0.0.1")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - {name: u, discover: {dns: {name: _db._tcp.test, servers: [%q], min_ttl: 100ms}}}
  - {name: v, discover: {file: {path: eps.yaml}}}
  - {name: w, endpoints: [%q]}`, z.serve(t), a), "eps.yaml", fmt.Sprintf("[%q]", a))
	of := func(i int) *admin.Discovery { return r.Status().Upstreams[i].Discovery }
	if of(2) != nil {
		t.Errorf("of endpoints in the file: %+v", of(2))
	}
	if d := of(1); d.Kind != "file" || !strings.HasSuffix(d.From, "eps.yaml") || d.Endpoints != 1 || d.Confirmed.IsZero() || d.Error != "" {
		t.Errorf("of a file: %+v", d)
	}
	good := of(0)
	if good.Kind != "dns" || good.From != "SRV _db._tcp.test" || good.Endpoints != 1 || good.Confirmed.IsZero() || good.Changed.IsZero() || good.Error != "" || good.Failures != 0 || good.Stale {
		t.Errorf("of a name: %+v", good)
	}
	z.fail(true)
	r.Until("failures are counted", func() bool { return of(0).Failures >= 2 })
	if bad := of(0); !strings.Contains(bad.Error, "SERVFAIL") || bad.Endpoints != 1 || !bad.Stale || bad.Confirmed.Before(good.Confirmed) {
		t.Errorf("of a name whose server fails: %+v", bad)
	}
	last := of(0).Confirmed
	z.fail(false)
	r.Until("it works again", func() bool { d := of(0); return d.Error == "" && d.Failures == 0 && d.Confirmed.After(last) })
	r.Write("eps.yaml", "[nonsense]")
	r.Until("a bad file is noticed", func() bool { d := of(1); return d.Error != "" && d.Endpoints == 1 && d.Failures > 0 })
}

// TestNoEndpointsAreAWarning: that a source has none is told as what it is.
func TestNoEndpointsAreAWarning(t *testing.T) {
	r := start(t, `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, discover: {file: {path: eps.yaml}}}]`, "eps.yaml", fmt.Sprintf("[%q]", named(t, "a")))
	r.Write("eps.yaml", "[]")
	r.Logs("level=WARN", "there are none", "upstream=u")
}
