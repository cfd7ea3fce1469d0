package server_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/sockopt"
)

// hostName returns a name of this machine that is looked up.
func hostName(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	must(t, err)
	ips, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", name)
	if err != nil || len(ips) == 0 || !ips[0].IsLoopback() && !sockopt.Local()(ips[0]) {
		t.Skipf("needs a name of this machine: %s is %v, %v", name, ips, err)
	}
	return name
}

// few is how many clients a rig of these tests may have, so that a circle ends.
const few = 60

// inCircle has clients who get nothing, and expects that each became at most so many clients, and that one of the upstreams
// says why.
func (r *rig) inCircle(t *testing.T, client func() error, most int64, upstreams ...string) {
	t.Helper()
	for range 2 { // the first client may be lost by sessions on its way
		r.OneClient(fmt.Sprint(upstreams), most, func() {
			if client() == nil {
				t.Error("a client in a circle is served")
			}
		})
	}
	for _, u := range r.Status().Upstreams {
		f := u.Endpoints[0].LastFailure
		if slices.Contains(upstreams, u.Name) && f != nil && strings.Contains(f.Cause, "connections would go in a circle") {
			return
		}
	}
	t.Errorf("no endpoint of %v has the circle for its last failure", upstreams)
}

// reads returns a client who sends a line, and returns the error of the answer.
func reads(network, address string, wrap func(net.Conn) net.Conn) func() error {
	return func() error {
		c, err := net.DialTimeout(network, address, condition.Patience)
		if err != nil {
			return err
		}
		if wrap != nil {
			c = wrap(c)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second)) // a client in a circle may get nothing
		if _, err := io.WriteString(c, "hello\n"); err != nil {
			return err
		}
		_, err = sockets.ReadLine(c)
		return err
	}
}

// TestCircleByTwoNames: each name alone would lead to a listener with another way out. A name that leads on is used.
func TestCircleByTwoNames(t *testing.T) {
	t.Parallel()

	name, a, b, c, d := hostName(t), sockets.Port(t), sockets.Port(t), sockets.Port(t), sockets.Port(t)
	r := startWith(t, few, fmt.Sprintf(`
listeners:
- {name: a, bind: ":%[2]s", upstream: a}
- {name: b, bind: ":%[3]s", upstream: b}
- {name: c, bind: ":%[4]s", upstream: c}
- {name: d, bind: ":%[5]s", upstream: d}
upstreams:
- {name: a, endpoints: ["%[1]s:%[3]s"], health_check: off, queue: {hold: 0s}}
- {name: b, endpoints: ["%[1]s:%[2]s"], health_check: off, queue: {hold: 0s}}
- {name: c, endpoints: ["%[1]s:%[5]s"], health_check: off}
- {name: d, endpoints: [%[6]q]}`, name, a, b, c, d, named(t, "d")))
	r.inCircle(t, reads("tcp", "127.0.0.1:"+a, nil), 2, "b")
	r.inCircle(t, reads("tcp", "127.0.0.1:"+b, nil), 2, "b")
	for range 3 {
		servedBy(t, "127.0.0.1:"+c, "d")
	}
}

// TestCircleOfMirrors: two mirrors by names lead to each other. The client has its session, and so has its one mirror.
func TestCircleOfMirrors(t *testing.T) {
	t.Parallel()

	name, a, b := hostName(t), sockets.Port(t), sockets.Port(t)
	r := startWith(t, few, fmt.Sprintf(`
listeners:
- {name: a, bind: ":%[2]s", upstream: fine, mirror: {upstream: a}}
- {name: b, bind: ":%[3]s", upstream: fine, mirror: {upstream: b}}
upstreams:
- {name: fine, endpoints: [%[4]q], health_check: off}
- {name: a, endpoints: ["%[1]s:%[3]s"], health_check: off}
- {name: b, endpoints: ["%[1]s:%[2]s"], health_check: off}`, name, a, b, named(t, "fine")))
	c := client(t, "127.0.0.1:"+a)
	hears(t, c, "fine")
	echoes(t, c, "hello")
	r.Until("the mirror of the mirror has ended, or there are more", func() bool {
		m := r.Listener("b").Mirrors
		return m != nil && len(m.Ended) > 0 || r.Summary().Connections.Accepted > 2
	})
	if n := r.Summary().Connections.Accepted; n != 2 {
		t.Errorf("one client became %d, want 2", n)
	}
}

// TestCircleByLinks: the paths of endpoints become links to sockets of this process. One client becomes a few: the listener at
// the end of a link has a client before its connection is dropped.
func TestCircleByLinks(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	r := startWith(t, few, fmt.Sprintf(`
admin: {bind: "unix:%[1]s/admin"}
listeners:
- {name: one, bind: "unix:%[1]s/one", upstream: one}
- {name: two, bind: "unix:%[1]s/two", upstream: two}
- {name: three, bind: "unix:%[1]s/three", upstream: three}
- {name: four, bind: "unix:%[1]s/four", upstream: four}
- {name: five, bind: "unix:%[1]s/five", upstream: five}
upstreams:
- {name: one, endpoints: ["unix:%[1]s/to-one"], health_check: off, queue: {hold: 0s}}
- {name: two, endpoints: ["unix:%[1]s/to-three"], health_check: off, queue: {hold: 0s}}
- {name: three, endpoints: ["unix:%[1]s/to-two"], health_check: off, queue: {hold: 0s}}
- {name: four, endpoints: ["unix:%[1]s/to-five"], health_check: off}
- {name: five, endpoints: [%[2]q]}`, dir, named(t, "five")))
	for _, to := range []string{"one", "two", "three", "five"} {
		must(t, os.Symlink(filepath.Join(dir, to), filepath.Join(dir, "to-"+to)))
	}
	r.inCircle(t, reads("unix", dir+"/one", nil), 10, "one")
	r.inCircle(t, reads("unix", dir+"/two", nil), 20, "two", "three")
	for range 3 {
		must(t, reads("unix", dir+"/four", nil)())
	}
}

// TestChecksInACircle: checks that would come back as clients, or to the admin API, fail before they do. An endpoint that is a
// listener with another way out is checked.
func TestChecksInACircle(t *testing.T) {
	t.Parallel()

	name, dir, a, b := hostName(t), t.TempDir(), sockets.Port(t), sockets.Port(t)
	r := startWith(t, few, fmt.Sprintf(`
admin: {bind: "unix:%[2]s/admin"}
listeners:
- {name: name, bind: ":%[3]s", upstream: name}
- {name: path, bind: "unix:%[2]s/path", upstream: path}
- {name: on, bind: ":%[4]s", upstream: fine}
upstreams:
- {name: name, endpoints: [{name: e, address: "%[1]s:%[3]s"}], health_check: &quick {interval: 20ms, fast_interval: 10ms}}
- {name: path, endpoints: [{name: e, address: "unix:%[2]s/to-path"}], health_check: *quick}
- {name: admin, endpoints: [{name: e, address: "unix:%[2]s/to-admin"}], health_check: *quick}
- {name: on, endpoints: [{name: e, address: "%[1]s:%[4]s"}], health_check: *quick}
- {name: fine, endpoints: [%[5]q], health_check: off}`, name, dir, a, b, named(t, "fine")))
	for _, to := range []string{"path", "admin"} {
		must(t, os.Symlink(filepath.Join(dir, to), filepath.Join(dir, "to-"+to)))
	}
	r.Until("checks of the listener with another way out", func() bool { return r.Listener("on").Connections.Accepted > 5 })
	for of, why := range map[string]string{"name": "connections would go in a circle", "path": "connections would go in a circle", "admin": "address of the admin API"} {
		r.Until("checks of "+of+" fail with the reason", func() bool { return strings.Contains(r.Endpoint(of, "e").Why, why) })
	}
	for _, of := range []string{"name", "path"} {
		if c := r.Listener(of).Connections; c.Accepted > 0 {
			t.Errorf("checks came to the listener %s: %+v", of, c)
		}
	}
	if e := r.Endpoint("on", "e"); e.State != admin.Up {
		t.Errorf("an endpoint that leads on: %+v", e)
	}
}

// TestChecksOfAnOwnPort: the port to check is a listener's, found by discovery. No check comes there, and the endpoint fails with
// the reason, whether or not that listener leads back.
func TestChecksOfAnOwnPort(t *testing.T) {
	t.Parallel()

	found, a, b := filepath.Join(t.TempDir(), "found.yaml"), sockets.Port(t), sockets.Port(t)
	must(t, os.WriteFile(found, []byte("[{name: e, address: '127.0.0.1:"+sockets.Port(t)+"'}]"), 0o600))
	r := start(t, fmt.Sprintf(`
listeners:
- {name: a, bind: "127.0.0.1:%[2]s", upstream: back}
- {name: b, bind: ":%[3]s", upstream: on}
upstreams:
- {name: back, discover: {file: {path: %[1]s}}, health_check: {port: %[2]s, interval: 20ms, fast_interval: 10ms}}
- {name: on, discover: {file: {path: %[1]s}}, health_check: {port: %[3]s, interval: 20ms, fast_interval: 10ms}}`, found, a, b))
	for of, at := range map[string]string{"back": a, "on": b} {
		r.Until("checks of "+of+" fail with the reason", func() bool {
			list := r.Status().Upstreams
			i := slices.IndexFunc(list, func(u admin.Upstream) bool { return u.Name == of })
			return len(list[i].Endpoints) == 1 && strings.Contains(list[i].Endpoints[0].Why, "127.0.0.1:"+at+" is the listener ")
		})
	}
	for _, l := range []string{"a", "b"} {
		if c := r.Listener(l).Connections; c.Accepted > 0 {
			t.Errorf("checks came to the listener %s: %+v", l, c)
		}
	}
}

// TestTracesInACircle: the collector's name leads to a listener. One client does not become many by the exports of their spans.
func TestTracesInACircle(t *testing.T) {
	t.Parallel()

	port := sockets.Port(t)
	r := startWith(t, few, fmt.Sprintf(`
traces: {endpoint: "http://%s:%s", protocol: http/protobuf, sample: 100, schedule_delay: 1ms, flush_timeout: 100ms}
listeners: [{name: a, bind: ":%[2]s", upstream: u}]
upstreams: [{name: u, endpoints: [%[3]q], health_check: off}]`, hostName(t), port, sockets.Server(t, sockets.Echo)))
	talked(t, "127.0.0.1:"+port, 1)
	r.Until("the export fails with the reason, or its clients come", func() bool {
		return strings.Contains(r.Status().Traces.LastError, "is the listener a") || r.Summary().Connections.Accepted > 2
	})
	if n := r.Summary().Connections.Accepted; n != 1 {
		t.Errorf("one client became %d", n)
	}
}

// TestCircleByAddresses: addresses of endpoints become this machine's after the start, by an interface or by a route, for
// endpoints of the file, with TLS, found by discovery, and two in a row.
func TestCircleByAddresses(t *testing.T) {
	t.Parallel()
	if !netns.Alone(t) {
		return
	}
	here := netns.Here(t)
	const late, any = "10.77.0.50", "10.99.1.2"
	const most = 40 // connects may not know of the addresses at first
	cert, key := certificate.New(t, "a.test")
	found := filepath.Join(t.TempDir(), "found.yaml")
	must(t, os.WriteFile(found, []byte("['"+any+":8504']"), 0o600))
	r := startWith(t, few, fmt.Sprintf(`
listeners:
- {name: late, bind: ":8501", upstream: late}
- {name: any, bind: ":8502", upstream: any}
- {name: tls, bind: ":8503", upstream: tls, tls: {certificates: [{cert: c.pem, key: k.pem}]}}
- {name: found, bind: ":8504", upstream: found}
- {name: a, bind: ":8505", upstream: a}
- {name: b, bind: ":8506", upstream: b}
- {name: c, bind: ":8507", upstream: c}
- {name: d, bind: ":8508", upstream: d}
upstreams:
- {name: late, endpoints: ["%[1]s:8501"], health_check: off, queue: {hold: 0s}}
- {name: any, endpoints: ["%[2]s:8502"], health_check: off, queue: {hold: 0s}}
- {name: tls, endpoints: ["%[1]s:8503"], health_check: off, queue: {hold: 0s}, tls: {ca: c.pem, sni: a.test}}
- {name: found, discover: {file: {path: %[3]s}}, health_check: off, queue: {hold: 0s}}
- {name: a, endpoints: ["%[1]s:8506"], health_check: off, queue: {hold: 0s}}
- {name: b, endpoints: ["%[2]s:8505"], health_check: off, queue: {hold: 0s}}
- {name: c, endpoints: ["%[2]s:8508"], health_check: off}
- {name: d, endpoints: [%[4]q]}`, late, any, found, named(t, "d")), "c.pem", cert, "k.pem", key)
	r.Until("the file is read", func() bool { return len(r.Status().Upstreams[3].Endpoints) == 1 })
	here.IP("addr add %s/32 dev lo", late)
	here.IP("route add local 10.99.0.0/16 dev lo")
	r.inCircle(t, reads("tcp", "127.0.0.1:8501", nil), most, "late")
	r.inCircle(t, reads("tcp", "127.0.0.1:8502", nil), most, "any")
	r.inCircle(t, reads("tcp", "127.0.0.1:8503", func(c net.Conn) net.Conn {
		return tls.Client(c, &tls.Config{ServerName: "a.test", InsecureSkipVerify: true})
	}), most, "tls")
	r.inCircle(t, reads("tcp", "127.0.0.1:8504", nil), most, "found")
	r.inCircle(t, reads("tcp", "127.0.0.1:8505", nil), most, "a")
	r.inCircle(t, reads("tcp", "127.0.0.1:8506", nil), most, "b")
	servedBy(t, "127.0.0.1:8507", "d")
}
