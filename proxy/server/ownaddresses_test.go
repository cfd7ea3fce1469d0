package server_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/sockopt"
)

// TestDiscoveredCircle: a discovered endpoint that leads back to its upstream is left out, by
// whichever way it leads. An endpoint at another listener that leads on is kept.
func TestDiscoveredCircle(t *testing.T) {
	t.Parallel()

	port, next, admin := sockets.Port(t), sockets.Port(t), sockets.Port(t)
	path, token := filepath.Join(t.TempDir(), "eps.yaml"), filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	find := func(addresses string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(addresses), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	find(fmt.Sprintf("[%q]", named(t, "good")))
	const file = `
admin: {bind: "127.0.0.1:%s", change_token: "file:%s"}
listeners:
- {name: l, bind: ":%s", upstream: u}
- {name: m, bind: "127.0.0.1:%s", upstream: v, routes: [{match: {sni: [a.example]}, upstream: %s}]}
- {name: n, bind: "unix:%s", upstream: w}
- {name: o, bind: "unix:%s", upstream: u}
upstreams:
- {name: u, discover: {file: {path: %s}}, balance: round_robin}
- {name: v, endpoints: [%q]}
- {name: w, endpoints: [%q]}
`
	back, link := filepath.Join(t.TempDir(), "back"), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(back, link); err != nil {
		t.Fatal(err)
	}
	unix, v, w := filepath.Join(t.TempDir(), "s"), named(t, "v"), named(t, "w")
	configured := func(route string) string {
		return fmt.Sprintf(file, admin, token, port, next, route, unix, back, path, v, w)
	}
	r := start(t, configured("v"))
	status := func(found, leftOut int) func() bool {
		return func() bool {
			d := r.Status().Upstreams[0].Discovery
			return d != nil && d.Endpoints == found && d.LeftOut == leftOut
		}
	}
	r.Until("one endpoint is found", status(1, 0))
	for _, x := range []struct {
		what, found string
		n, leftOut  int
	}{
		{"itself", fmt.Sprintf("[%q, '127.0.0.1:%s']", named(t, "good"), port), 2, 1},
		{"itself by other names", fmt.Sprintf("[%q, 'localhost:%s', '[::1]:%s', '127.9.9.9:%s']", named(t, "good"), port, port, port), 4, 3},
		{"itself by other paths", fmt.Sprintf("[%q, 'unix:%s', 'unix:%s/./back', 'unix:/%s/../%s/back', 'LOCALHOST:%s']", named(t, "good"), link, filepath.Dir(back), filepath.Dir(back), filepath.Base(filepath.Dir(back)), port), 5, 4},
		{"another one that leads on", fmt.Sprintf("[%q, '127.0.0.1:%s', 'unix:%s']", named(t, "good"), next, unix), 3, 0},
		{"the admin interface", fmt.Sprintf("[%q, '127.0.0.1:%s']", named(t, "good"), admin), 2, 1},
	} {
		find(x.found)
		r.Until(x.what+" is found", status(x.n, x.leftOut))
		if got := len(r.Status().Upstreams[0].Endpoints); got != x.n-x.leftOut {
			t.Errorf("%s: %d endpoints of %d, %d left out", x.what, got, x.n, x.leftOut)
		}
	}
	r.Logs("level=WARN", `msg="discovered endpoints are left out" upstream=u endpoints=3`, "is the listener l, which leads to this upstream")
	r.Logs("level=WARN", `is the admin interface`)
	for range 10 {
		c := client(t, "127.0.0.1:"+port)
		if line(t, c) != "good" {
			t.Error("a client was sent elsewhere")
		}
		c.Close()
	}
	find(fmt.Sprintf("[%q, '127.0.0.1:%s']", named(t, "good"), next))
	r.Until("the other listener is found", status(2, 0))
	r.Reload(configured("u"))
	r.Until("the listener leads back now", status(2, 1))
	r.Reload(configured("v"))
	r.Until("the listener no longer leads back", status(2, 0))
	if err := r.End(); err != nil {
		t.Error(err)
	}
}

// TestCircleByName: a name that resolves to a listener that leads back is no endpoint. One client
// is one connection, and the status has the cause.
func TestCircleByName(t *testing.T) {
	t.Parallel()

	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	ips, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", name)
	if err != nil || len(ips) == 0 || !ips[0].IsLoopback() && !sockopt.Local()(ips[0]) {
		t.Skipf("needs a name of this machine: %s is %v, %v", name, ips, err)
	}
	port := sockets.Port(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: ":%s", upstream: u}]
upstreams: [{name: u, endpoints: ["%s:%s"], health_check: off, queue: {hold: 100ms}}]`, port, name, port))
	refused(t, "127.0.0.1:"+port)
	if got := r.Summary().Connections; got.Accepted != 1 || got.Refused != 1 {
		t.Errorf("%+v", got)
	}
	if f := r.Status().Upstreams[0].Endpoints[0].LastFailure; f == nil || !strings.Contains(f.Cause, "is the listener l, which leads to this upstream: clients would go round in a circle") {
		t.Errorf("the status has %+v", f)
	}
}
