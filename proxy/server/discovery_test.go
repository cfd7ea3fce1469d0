package server_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// A zone holds the records of a name server on loopback.
type zone struct {
	mu      sync.Mutex
	records []string
	broken  bool
}

func (z *zone) set(records ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.records = records
}

func (z *zone) fail(broken bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.broken = broken
}

// ServeDNS implements [dns.Handler].
func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	answer := new(dns.Msg).SetReply(q)
	if z.broken {
		answer.SetRcode(q, dns.RcodeServerFailure)
	}
	for _, text := range z.records {
		rr, err := dns.NewRR(text)
		if err == nil && !z.broken && rr.Header().Name == q.Question[0].Name && rr.Header().Rrtype == q.Question[0].Qtype {
			answer.Answer = append(answer.Answer, rr)
		}
	}
	_ = w.WriteMsg(answer)
}

func (z *zone) serve(t *testing.T) (address string) {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	started, ended := make(chan struct{}), make(chan error, 1)
	s := &dns.Server{PacketConn: packets, Handler: z, NotifyStartedFunc: func() { close(started) }}
	go func() { ended <- s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
		<-ended
	})
	return packets.LocalAddr().String()
}

// service is the SRV record of a server.
func service(t *testing.T, address string, priority int) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if _, e := strconv.Atoi(port); err != nil || e != nil {
		t.Fatal(address)
	}
	return fmt.Sprintf("_db._tcp.test. 1 IN SRV %d 1 %s one.test.", priority, port)
}

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
	z.set(service(t, a, 1), "_db._tcp.test. 1 IN SRV 1 1 0 two.test.", "one.test. 1 IN A 127.0.0.1", "one.test. 1 IN A 0.0.0.0")
	r.Until("records are left out", func() bool { return of(0).LeftOut == 2 })
	if d := of(0); d.Error != "" || d.Failures != 0 || d.Stale || d.Endpoints != 3 || d.LeftOutCause != "A one.test.: 0.0.0.0 is not the address of a host" {
		t.Errorf("for a name with unusable records: %+v", d)
	}
	r.Logs(`msg="some discovered endpoints are not used" upstream=u endpoints=2`, "two.test has port 0")
	r.Write("eps.yaml", "[nonsense]")
	r.Until("a bad file is noticed", func() bool { d := of(1); return d.Error != "" && d.Endpoints == 1 && d.Failures > 0 })
}

// TestFirstAnswersStartAtFullWeight: the first endpoints of a source have no slow start, also if they come late, when an endpoint
// was added by hand. Later ones have one.
func TestFirstAnswersStartAtFullWeight(t *testing.T) {
	t.Parallel()

	r := start(t, `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, slow_start: 1h, discover: {file: {path: eps.yaml}}, health_check: off}]`)
	var list string
	add := func(want int) {
		t.Helper()
		list += fmt.Sprintf("- %q\n- %q\n", sockets.Refusing(t), sockets.Refusing(t))
		r.Write("eps.yaml", list)
		known := 1 + strings.Count(list, "\n")
		r.Until("the endpoints are found", func() bool { return len(r.Status().Upstreams[0].Endpoints) == known })
		n := 0
		for _, e := range r.Status().Upstreams[0].Endpoints {
			if !e.SlowUntil.IsZero() {
				n++
			}
		}
		if n != want {
			t.Errorf("%d of %d endpoints are in slow start, want %d", n, known, want)
		}
	}
	r.change(t, "add", sockets.Refusing(t), 1)
	add(0)
	add(2)
}

// TestDeniedNames: if DNS denies a name, or the target of an SRV record, status and log of the upstream say so. The log also says
// that name servers fail.
func TestDeniedNames(t *testing.T) {
	t.Parallel()

	z, bad := new(zone), new(zone)
	z.set("_db._tcp.test. 1 IN SRV 1 1 80 one.test.")
	bad.fail(true)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: target}, {name: m, bind: "127.0.0.1:0", upstream: name}, {name: n, bind: "127.0.0.1:0", upstream: unknown}]
upstreams:
  - {name: name, discover: {dns: {name: db.test, type: A, port: 80, servers: [%[1]q]}}}
  - {name: target, discover: {dns: {name: _db._tcp.test, servers: [%[1]q]}}}
  - {name: unknown, discover: {dns: {name: db.test, type: A, port: 80, servers: [%q]}}}`, z.serve(t), bad.serve(t)))
	for i, want := range []string{"NODATA", "one.test: NODATA"} {
		if d := r.Status().Upstreams[i].Discovery; d.Denied != want {
			t.Errorf("%+v", d)
		}
	}
	r.Logs(`msg="an upstream has no usable endpoint"`, `cause="dns A db.test: NODATA"`)
	r.Logs(`msg="an upstream has no usable endpoint"`, `cause="dns SRV _db._tcp.test: one.test: NODATA"`)
	r.Logs(`msg="an upstream has no usable endpoint"`, `cause="dns A db.test: A db.test.: 127.0.0.1:`, " says SERVFAIL")
}

// TestDeniedAtAReload: if a name is denied when a reload or a rollback begins to look it up again, its last answer stays in use for a
// while, as without the change.
func TestDeniedAtAReload(t *testing.T) {
	t.Parallel()

	z, a := new(zone), named(t, "a")
	here := []string{service(t, a, 1), "one.test. 1 IN A 127.0.0.1"}
	z.set(here...)
	server := z.serve(t)
	text := func(name, more string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, discover: {dns: {name: %s, servers: [%q]%s}}, health_check: off, queue: {hold: 0s}}]`, name, server, more)
	}
	const name = "_db._tcp.test"
	r := start(t, text(name, ""))
	held := func(of string) {
		t.Helper()
		servedBy(t, r.At("l"), "a")
		if d := r.Status().Upstreams[0].Discovery; d.Endpoints != 1 || !strings.Contains(d.Error, of+".: NODATA; the last answer is kept until ") {
			t.Errorf("%s is denied: %+v", of, d)
		}
	}
	z.set(here[0]) // without the target's address
	r.Reload(text(name, ", min_ttl: 2s"))
	held("AAAA one.test")
	z.set()
	r.Reload(text("_other._tcp.test", ""))
	r.Reload(text(name, ""))
	held("SRV " + name)
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
		r.Logs("level=WARN", "discovery found no endpoints: clients "+clients, "upstream="+name, "endpoints=0 went=127.0.0.1:")
	}
	r.Write("eps.yaml", fmt.Sprintf("[%q]", r.At("l")))
	r.Logs(`level=WARN msg="discovery found no endpoints that can be used: clients are held for 3s and then refused" upstream=u`)
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
		r.Logs("level=INFO", `msg="discovery found endpoints" upstream=u `+step.want+"\n")
	}
	r.Write("eps.yaml", strings.Replace(list("d"), ":100", ":200", 1))
	r.Logs("level=INFO", `endpoints=1 came="d (127.0.0.1:200)" went="b (127.0.0.1:98), d (127.0.0.1:100), `)
}

// TestNewSource: a reload that gives an upstream another source of endpoints asks that first. Until it has
// answered no client gets an endpoint of the source before, whose discovery ends.
func TestNewSource(t *testing.T) {
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
		hears(t, conn, by)
	}
	served("a")
	r.Reload(text(file("b.yaml"), "0s"))
	served("b")
	for _, name := range []string{"c.yaml", "bad.yaml"} { // missing, and not to be read
		r.Reload(text(file(name), "1m"))
		r.Logs("discovery has found no endpoints yet: clients are held for 1m0s and then refused", "upstream=u")
		conn := client(t, r.At("l"))
		defer conn.Close()
		r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
		r.Write(name, fmt.Sprintf("[%q]", c))
		hears(t, conn, "c")
	}
	before := runtime.NumGoroutine()
	for range 10 {
		r.Reload(text(file("b.yaml"), "0s"))
		r.Reload(text(file("c.yaml"), "0s"))
	}
	r.Until("the former discoveries have ended", func() bool { return runtime.NumGoroutine() <= before+3 })
}

// TestOtherServers: a reload that names other servers for the same DNS name keeps the last good set while these do
// not answer, however long ago it was found. So does a reload that returns to a name within a day.
func TestOtherServers(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	good, bad := new(zone), new(zone)
	good.set(service(t, a, 1), "one.test. 1 IN A 127.0.0.1")
	bad.fail(true)
	text := func(upstream, name, server string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: %[1]s}]
upstreams: [{name: %[1]s, discover: {dns: {name: %[2]s, servers: [%[3]q]}}, health_check: off, queue: {hold: 0s}}]`, upstream, name, server)
	}
	const name = "_db._tcp.test"
	r := start(t, text("u", name, good.serve(t)))
	silent := bad.serve(t)
	r.AgeAnswers(48 * time.Hour)
	for _, former := range []string{text("u", name, silent), text("u", "_other._tcp.test", silent), text("v", name, silent)} {
		r.Reload(former)
		r.Reload(text("u", name, silent))
		servedBy(t, r.At("l"), "a")
		if d := r.Status().Upstreams[0].Discovery; d.Endpoints != 1 || !d.Stale {
			t.Errorf("while no server answers: %+v", d)
		}
	}
	if d := r.Status().Upstreams[0].Discovery; d.Failures == 0 {
		t.Errorf("the new server has not failed: %+v", d)
	}
	r.Reload(text("v", name, silent))
	r.AgeAnswers(48 * time.Hour)
	r.Reload(text("u", name, silent))
	if d := r.Status().Upstreams[0].Discovery; d.Endpoints != 0 {
		t.Errorf("two days later: %+v", d)
	}
}

// TestDiscoveredCircle: a discovered endpoint that leads back to its upstream is left out, by
// whichever way it leads. An endpoint at another listener that leads on is kept.
func TestDiscoveredCircle(t *testing.T) {
	t.Parallel()

	port, next, admin, metrics := sockets.Port(t), sockets.Port(t), sockets.Port(t), sockets.Port(t)
	path, token := filepath.Join(t.TempDir(), "eps.yaml"), filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("0123456789abcdef"), 0o600))
	find := func(addresses string) {
		t.Helper()
		must(t, os.WriteFile(path+".new", []byte(addresses), 0o600))
		must(t, os.Rename(path+".new", path))
	}
	find(fmt.Sprintf("[%q]", named(t, "good")))
	const file = `
admin: {bind: "127.0.0.1:%s", change_token: "file:%s"}
metrics: {bind: "127.0.0.1:%s", allow: ["127.0.0.0/8"]}
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
	must(t, os.Symlink(back, link))
	unix, v, w := filepath.Join(t.TempDir(), "s"), named(t, "v"), named(t, "w")
	configured := func(route string) string {
		return fmt.Sprintf(file, admin, token, metrics, port, next, route, unix, back, path, v, w)
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
		{"the metrics", fmt.Sprintf("[%q, '127.0.0.1:%s']", named(t, "good"), metrics), 2, 1},
	} {
		find(x.found)
		r.Until(x.what+" is found", status(x.n, x.leftOut))
		if got := len(r.Status().Upstreams[0].Endpoints); got != x.n-x.leftOut {
			t.Errorf("%s: %d endpoints of %d, %d left out", x.what, got, x.n, x.leftOut)
		}
	}
	r.Logs("level=WARN", `msg="some discovered endpoints are not used" upstream=u endpoints=3`, "is the listener l, which leads to this upstream")
	r.Logs("level=WARN", `is the address of the admin API`)
	for range 10 {
		c := client(t, "127.0.0.1:"+port)
		if line(t, c) != "good" {
			t.Error("a client was sent elsewhere")
		}
		c.Close()
	}
	if os.Getuid() == 0 {
		must(t, os.WriteFile(path+".theirs", fmt.Appendf(nil, "[%q, 'unix:/run/ours']", named(t, "good")), 0o600))
		must(t, errors.Join(os.Chown(path+".theirs", 65534, 65534), os.Rename(path+".theirs", path)))
		r.Until("another user's list is found", status(2, 1))
		r.Logs("level=WARN", "unix:/run/ours is not used: uid 65534 may write "+path+", and the socket must belong to that user")
	}
	find(fmt.Sprintf("[%q, '127.0.0.1:%s']", named(t, "good"), next))
	r.Until("the other listener is found", status(2, 0))
	r.Reload(configured("u"))
	r.Until("the listener leads back now", status(2, 1))
	r.Reload(configured("v"))
	r.Until("the listener no longer leads back", status(2, 0))
	must(t, r.End())
}

// TestFamilyOfTheSourceAddress: discovered endpoints to which the upstream's source_address cannot connect are left out with the
// reason, and used once a reload changes that address.
func TestFamilyOfTheSourceAddress(t *testing.T) {
	t.Parallel()

	text := func(source string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, discover: {file: {path: eps.yaml}}, health_check: off, source_address: %q}]`, source)
	}
	r := start(t, text("127.0.0.1"), "eps.yaml", `["127.0.0.1:1", {name: b, address: "[::1]:1"}, "[::ffff:127.0.0.1]:2", "unix:@a"]`)
	has := func(cause string, want ...string) {
		t.Helper()
		var names []string
		u := r.Status().Upstreams[0]
		for _, e := range u.Endpoints {
			if e.State != admin.Removed {
				names = append(names, e.Name)
			}
		}
		if d := u.Discovery; !slices.Equal(names, want) || d.LeftOut != 4-len(want) || d.LeftOutCause != cause {
			t.Errorf("endpoints %v, want %v; %+v", names, want, d)
		}
	}
	has("source_address 127.0.0.1 cannot connect to the endpoint b", "127.0.0.1:1", "[::ffff:127.0.0.1]:2", "unix:@a")
	r.Reload(text("::1"))
	has("source_address ::1 cannot connect to the endpoint 127.0.0.1:1", "b", "unix:@a")
}

// TestAnotherFamily: a listener of one family is not in the way of an endpoint of the other one at the same port.
func TestAnotherFamily(t *testing.T) {
	t.Parallel()

	var r *rig
	var six net.Listener
	var port string
	for six == nil { // another socket may have the same port of the other family
		r = start(t, fmt.Sprintf("listeners: [{name: l, bind: \"0.0.0.0:0\", upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]", named(t, "a")))
		_, port, _ = net.SplitHostPort(r.At("l"))
		var err error
		if six, err = net.Listen("tcp", "[::1]:"+port); err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			t.Skip("needs IPv6:", err)
		}
	}
	sockets.Serve(t, six, func(c net.Conn) { fmt.Fprintln(c, "six") })
	for at, want := range map[string]bool{"[::1]:" + port: true, "[::]:" + port: true, "127.0.0.1:" + port: false, "0.0.0.0:" + port: false} {
		_, err := r.ChangeEndpoint(&admin.EndpointChange{What: admin.EndpointAdd, Upstream: "u", Endpoint: at, Name: "six", Weight: 1}, "test")
		if (err == nil) != want {
			t.Errorf("%s: %v", at, err)
		}
		if err == nil {
			_, err = r.ChangeEndpoint(&admin.EndpointChange{What: admin.EndpointRemove, Upstream: "u", Endpoint: "six"}, "test")
			must(t, err)
		}
	}
}

// TestNamesDuringAChange: a client of an endpoint with a name of this machine does not wait for a change that waits for a name
// server.
func TestNamesDuringAChange(t *testing.T) {
	t.Parallel()

	_, port, _ := net.SplitHostPort(named(t, "a"))
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	const text = `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}%s]
upstreams: [{name: u, endpoints: ["localhost:%s"], health_check: off}%s]`
	r := start(t, fmt.Sprintf(text, "", port, ""))
	at := r.At("l")
	next := r.Load(fmt.Sprintf(text, `, {name: m, bind: "127.0.0.1:0", upstream: v}`, port,
		fmt.Sprintf(`, {name: v, discover: {dns: {name: v.example, type: A, port: 80, servers: [%q]}}}`, silent.LocalAddr())))
	applied := make(chan error, 1)
	go func() { applied <- r.Apply(t.Context(), next) }()
	query := make([]byte, 1000)
	n, from, err := silent.ReadFrom(query)
	must(t, err)
	servedBy(t, at, "a")
	select {
	case err := <-applied:
		t.Errorf("the change is over before the client is served, with %v", err)
	default:
		query[2], query[3] = 0x80, 2 // SERVFAIL
		_, err = silent.WriteTo(query[:n], from)
		must(t, err)
		must(t, condition.Receive(t, "the change", applied))
	}
}

// TestStatusQuotesNoFile: a file that is no list of endpoints may be another user's secret, to which the path leads. The status names
// the place of the error, and the log has the content.
func TestStatusQuotesNoFile(t *testing.T) {
	t.Parallel()

	r := startUpstream(t, "discover: {file: {path: eps.yaml}}, health_check: off")
	for _, text := range []string{"- hunter2\n", "- hunter2: 1\n", "- {address: ':hunter2'}\n", "[*hunter2]\n", "- {address: 'a:1', name: hunter2}\n- {address: 'b:1', name: hunter2}\n", "- 'a:1'\n- {name: hunter2 , name: hunter2}\n"} {
		r.Write("eps.yaml", text)
		path := filepath.Join(r.Dir, "eps.yaml") + ":"
		var got string
		r.Until("the file is refused", func() bool {
			got = r.Status().Upstreams[0].Discovery.Error
			return strings.HasPrefix(got, path)
		})
		if strings.Contains(got, "hunter2") || !strings.HasSuffix(got, ": the list of endpoints cannot be used: the log says what is wrong here") {
			t.Errorf("%q: %s", text, got)
		}
		r.Write("eps.yaml", "[]")
		r.Until("the file is used", func() bool { return r.Status().Upstreams[0].Discovery.Error == "" })
	}
	if !strings.Contains(r.Log.String(), "hunter2") {
		t.Error("the log does not have the content")
	}
}
