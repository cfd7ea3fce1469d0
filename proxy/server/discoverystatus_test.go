package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
)

// TestDiscoveryInStatus: the status of an upstream names the source of its endpoints, the last
// confirmation, the error, and the number of failures since.
func TestDiscoveryInStatus(t *testing.T) {
	t.Parallel()

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
		t.Errorf("for endpoints in the file: %+v", of(2))
	}
	if d := of(1); d.Kind != "file" || !strings.HasSuffix(d.From, "eps.yaml") || d.Endpoints != 1 || d.Confirmed.IsZero() || d.Error != "" {
		t.Errorf("for a file: %+v", d)
	}
	good := of(0)
	if good.Kind != "dns" || good.From != "SRV _db._tcp.test" || good.Endpoints != 1 || good.Confirmed.IsZero() || good.Changed.IsZero() || good.Error != "" || good.Failures != 0 || good.Stale {
		t.Errorf("for a name: %+v", good)
	}
	z.fail(true)
	r.Until("failures are counted", func() bool { return of(0).Failures >= 2 })
	if bad := of(0); !strings.Contains(bad.Error, "SERVFAIL") || bad.Endpoints != 1 || !bad.Stale || bad.Confirmed.Before(good.Confirmed) {
		t.Errorf("for a name whose server fails: %+v", bad)
	}
	last := of(0).Confirmed
	z.fail(false)
	r.Until("discovery works again", func() bool { d := of(0); return d.Error == "" && d.Failures == 0 && d.Confirmed.After(last) })
	r.Write("eps.yaml", "[nonsense]")
	r.Until("a bad file is noticed", func() bool { d := of(1); return d.Error != "" && d.Endpoints == 1 && d.Failures > 0 })
}

// TestNoEndpointsAreAWarning: an empty source is logged as a warning that says how clients are
// handled.
func TestNoEndpointsAreAWarning(t *testing.T) {
	t.Parallel()

	r := start(t, `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: v}]
upstreams:
  - {name: u, discover: {file: {path: eps.yaml}}}
  - {name: v, discover: {file: {path: eps.yaml}}, fallback: {upstream: u}}
  - {name: w, discover: {file: {path: eps.yaml}}, queue: {hold: 0s}}
  - {name: x, discover: {file: {path: eps.yaml}}, fallback: {respond: eps.yaml}}
`, "eps.yaml", fmt.Sprintf("[%q]", named(t, "a")))
	r.Write("eps.yaml", "[]")
	for name, clients := range map[string]string{
		"u": "are held for 3s and then refused", "v": "go to the fallback u", "w": "are refused", "x": "get the fallback's response",
	} {
		r.Logs("level=WARN", "there are none, clients "+clients, "upstream="+name, "endpoints=0 went=127.0.0.1:")
	}
}

// TestDiscoveredAreNamed: the log names the endpoints that were added, removed and changed; of
// many, only the first ones.
func TestDiscoveredAreNamed(t *testing.T) {
	t.Parallel()

	list := func(names string) string {
		var endpoints []string
		for _, name := range names {
			weight := 1
			if name >= 'A' && name <= 'Z' {
				weight, name = 2, name-'A'+'a'
			}
			endpoints = append(endpoints, fmt.Sprintf("{name: %c, address: \"127.0.0.1:%d\", weight: %d}", name, name, weight))
		}
		return "[" + strings.Join(endpoints, ", ") + "]"
	}
	r := start(t, `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, discover: {file: {path: eps.yaml}}, health_check: off}]`, "eps.yaml", list("abc"))
	for _, step := range []struct{ names, want string }{
		{"abc", `endpoints=3 came="a (127.0.0.1:97), b (127.0.0.1:98), c (127.0.0.1:99)"`},
		{"bd", `endpoints=2 came="d (127.0.0.1:100)" went="a (127.0.0.1:97), c (127.0.0.1:99)"`},
		{"Bd", `endpoints=2 changed="b (127.0.0.1:98)"`},
		{"Bdefghijklmnop", `endpoints=14 came="e (127.0.0.1:101), f (127.0.0.1:102), g (127.0.0.1:103), h (127.0.0.1:104), i (127.0.0.1:105), j (127.0.0.1:106), k (127.0.0.1:107), l (127.0.0.1:108), m (127.0.0.1:109), n (127.0.0.1:110) and 2 more"`},
	} {
		r.Write("eps.yaml", list(step.names))
		r.Logs("level=INFO", `msg="endpoints discovered" upstream=u `+step.want+"\n")
	}
	r.Write("eps.yaml", strings.Replace(list("d"), ":100", ":200", 1))
	r.Logs("level=INFO", `endpoints=1 came="d (127.0.0.1:200)" went="b (127.0.0.1:98), d (127.0.0.1:100), `)
}
