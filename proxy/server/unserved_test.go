package server_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// TestRefusedClientsAreAnOutage: an upstream's clients are refused because no connection can be
// made. The outage begins with the first of them, whatever the verdicts on the endpoints, and
// lasts until a client is served, or a check connects to the endpoint's own address and nothing else has failed.
func TestRefusedClientsAreAnOutage(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]string{
		"no check":              "health_check: off",
		"a check of other port": "health_check: {port: %s, interval: 20ms, fast_interval: 10ms}",
		"a check that connects": "health_check: {interval: 20ms, fast_interval: 10ms, fall: 1000}",
	} {
		t.Run(name, func(t *testing.T) {
			role, port := newRole(t, true), sockets.Port(t)
			check = strings.ReplaceAll(check, "%s", role.port)
			before, err := net.Listen("tcp", "127.0.0.1:"+port)
			must(t, err)
			r := startUpstream(t, `endpoints: [{address: "127.0.0.1:%s", name: a}], circuit_breaker: off, queue: {hold: 0s}, %s`, port, check)
			if name == "a check that connects" { // the first one decides alone
				c, err := before.Accept()
				must(t, err)
				c.Close()
			}
			must(t, before.Close())
			condition.Await(t, "the port is closed", func() bool { // a child of another test may hold the socket until it has begun
				c, err := net.Dial("tcp", "127.0.0.1:"+port)
				if err == nil {
					c.Close()
				}
				return err != nil
			})
			if u := r.Status().Upstreams[0]; u.Outage != nil || u.Endpoints[0].LastFailure != nil {
				t.Fatalf("at first: %+v, %+v", u.Outage, u.Endpoints[0].LastFailure)
			}
			refused(t, r.At("l"))
			u := r.Status().Upstreams[0]
			if e := u.Endpoints[0]; u.Outage == nil || u.Outage.Full || e.State != "up" || e.LastFailure == nil || e.LastFailure.Over ||
				e.LastFailure.Cause != "connect failed: connection refused" || time.Since(e.LastFailure.Time).Abs() > condition.Patience {
				t.Fatalf("after a client was refused: %+v, %+v, %+v", u.Outage, e, e.LastFailure)
			}
			r.Logs("level=WARN", `msg="an upstream has no usable endpoint"`, "upstream=u", "a: connect failed: connection refused")
			for range 9 {
				refused(t, r.At("l"))
			}
			if u := r.Status().Upstreams[0]; u.Outage == nil || u.Outage.Refused < sumOf(slices.Collect(maps.Values(u.Reasons))) {
				t.Errorf("the outage has cost %+v, refused are %v", u.Outage, u.Reasons)
			}
			serverAt(t, port, "back")
			r.Until("a client is served, or the check has connected", func() bool {
				if name == "a check that connects" {
					return r.Status().Upstreams[0].Outage == nil
				}
				return served(r.At("l")) == "back"
			})
			if u := r.Status().Upstreams[0]; u.Outage != nil || !u.Endpoints[0].LastFailure.Over {
				t.Errorf("when a client was served: %+v, %+v", u.Outage, u.Endpoints[0].LastFailure)
			}
			r.Logs("level=INFO", `msg="an upstream has a usable endpoint again"`, "upstream=u", "refused=1") // 10 or more
		})
	}
}

// TestHeldClientsAreAnOutage: an upstream's clients are held because no endpoint accepts. The
// outage begins with the first of them, before a client is refused or a check has failed, even if
// clients were served just before. It lasts until a client is served.
func TestHeldClientsAreAnOutage(t *testing.T) {
	t.Parallel()

	port := sockets.Port(t)
	r := startUpstream(t, `endpoints: [{address: "127.0.0.1:%s", name: a}, {address: %q, name: b}], circuit_breaker: off, queue: {hold: 1m}, health_check: off`, port, sockets.Refusing(t))
	for range 2 {
		c := client(t, r.At("l"))
		r.Until("the client is held, and that is an outage", func() bool {
			u := r.Status().Upstreams[0]
			return u.Held > 0 && u.Outage != nil && !u.Outage.Full && !u.Outage.Served
		})
		r.Logs("level=WARN", `msg="an upstream has no usable endpoint"`, "upstream=u", "a: connect failed: connection refused")
		ln := serverAt(t, port, "back")
		line(t, c)
		if u := r.Status().Upstreams[0]; u.Outage != nil || len(u.Reasons) != 0 {
			t.Errorf("when the client was served: %+v, refused %v", u.Outage, u.Reasons)
		}
		_, _ = ln.Close(), c.Close()
		r.Until("the session has ended", func() bool { return r.Endpoint("u", "a").Active == 0 })
	}
	must(t, r.End())
	r.Logs("level=WARN", `msg="clients were held, because no endpoint could serve them" upstream=u times=`)
}

// TestFormerUpstreamsAreLogged: clients that connected before a reload removed their upstream
// are refused by it afterwards. They are summed up under its name.
func TestFormerUpstreamsAreLogged(t *testing.T) {
	t.Parallel()
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: v}]
upstreams:
  - {name: u, endpoints: [%q], health_check: off, queue: {hold: 4s}, drain_timeout: 1s}
  - {name: v, endpoints: [%[1]q], drain_timeout: 1s}`, sockets.Refusing(t)))
	c := client(t, r.At("l"))
	r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Held == 1 })
	r.Reload(fmt.Sprintf(`
listeners: [{name: m, bind: "127.0.0.1:0", upstream: v}]
upstreams: [{name: v, endpoints: [%q], drain_timeout: 1s}]`, sockets.Refusing(t)))
	if n := strings.Count(r.Log.String(), `msg="clients refused"`); n != 0 {
		t.Fatal("the client was refused before the reload, which took longer than it was held")
	}
	if w := r.Status().RemovedWaiting; len(w) != 1 || w["u"] != 1 {
		t.Errorf("after the reload the waiting clients are %v", w)
	}
	gone(t, c)
	r.Until("no client waits", func() bool { return len(r.Status().RemovedWaiting) == 0 })
	r.Until("the refusal is logged", func() bool {
		runtime.GC()
		return regexp.MustCompile(`msg="clients refused" upstream=u times=1 age=\S+ reasons="failed 1"`).MatchString(r.Log.String())
	})
	const more = 8
	for i := range more {
		r.Reload(fmt.Sprintf(`
listeners: [{name: m, bind: "127.0.0.1:0", upstream: v%d}]
upstreams: [{name: v%[1]d, endpoints: [%q], drain_timeout: 1s}]`, i, sockets.Refusing(t)))
	}
	r.Until("some upstreams are forgotten", func() bool { // the others stay in memory for a while
		runtime.GC()
		return r.Former() < more+1
	})
}

// TestCausesOfHandshakes: the reason why an endpoint's certificate is rejected is in the status,
// and in the log lines on the outage, the ejection and the breakers. A check that connects does
// not refute it.
func TestCausesOfHandshakes(t *testing.T) {
	t.Parallel()

	ca, _ := certificate.New(t, "other.test")
	address := secure(t, "a", "a.test")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [{address: %q, name: a}, {address: %q, name: b}]
    tls: {ca: ca.pem, sni: a.test}
    queue: {hold: 0s}
    retry: {attempts: 0}
    outlier_detection: {consecutive_failures: 3}
    circuit_breaker: {min_volume: 5}
    health_check: {interval: 20ms, fast_interval: 10ms}`, address, secure(t, "b", "a.test")), "ca.pem", ca)
	refused(t, r.At("l"))
	u := r.Status().Upstreams[0]
	e := u.Endpoints[0]
	if e.LastFailure == nil { // the client was the other endpoint's
		e = u.Endpoints[1]
	}
	const cause = "connect failed: TLS handshake: tls: failed to verify certificate: x509: certificate signed by unknown authority"
	if u.Outage == nil || e.LastFailure == nil || !strings.HasPrefix(e.LastFailure.Cause, cause) {
		t.Fatalf("%+v, %+v", u.Outage, e.LastFailure)
	}
	for range 30 {
		refused(t, r.At("l"))
	}
	r.Logs(`msg="an upstream has no usable endpoint"`, "x509: ")
	r.Logs("msg=ejection", "state=ejected", "3 failures in a row, the last: "+cause)
	r.Logs("msg=circuit", "state=open", "the last: "+cause)
	time.Sleep(100 * time.Millisecond) // five checks are due by then; with more or fewer nothing must change
	if u := r.Status().Upstreams[0]; u.Outage == nil || u.Endpoints[0].LastFailure.Over {
		t.Errorf("after checks: %+v, %+v", u.Outage, u.Endpoints[0].LastFailure)
	}
}

// TestFailingEndpointIsTold: the only endpoint of an upstream, which cannot be ejected, accepts
// its clients and ends each at once. That is a problem in the status and a log line until a
// client is served. Without outlier_detection and circuit_breaker it is no problem.
func TestFailingEndpointIsTold(t *testing.T) {
	t.Parallel()

	for judges, told := range map[string]bool{"": true, ", outlier_detection: off": true, ", outlier_detection: off, circuit_breaker: off": false} {
		t.Run(judges, func(t *testing.T) {
			var well atomic.Bool
			up := sockets.Server(t, func(c net.Conn) {
				if well.Load() {
					fmt.Fprintln(c, "well")
				}
			})
			r := startUpstream(t, `endpoints: [{address: %q, name: a}]%s`, up, judges)
			failing := func() *admin.Failing { return r.Status().Upstreams[0].Endpoints[0].Failing }
			for range 5 {
				if f := failing(); f != nil {
					t.Fatalf("too soon: %+v", f)
				}
				c := client(t, r.At("l"))
				if err := gone(t, c); errors.Is(err, errTimeout) {
					t.Fatal(err)
				}
				c.Close()
				r.Until("the session has ended", func() bool { return r.Status().Connections.Active == 0 })
			}
			if f := failing(); (f != nil) != told || told && (f.Clients != 5 || time.Since(f.Since).Abs() > condition.Patience) {
				t.Fatalf("%+v", f)
			}
			r.Logs(`msg="sessions ended without a byte from the endpoint"`, "upstream=u")
			well.Store(true)
			if got := line(t, client(t, r.At("l"))); got != "well" {
				t.Fatal(got)
			}
			r.Until("the problem is over", func() bool { return failing() == nil })
		})
	}
}

// TestLostConnections: an endpoint accepts its clients, but packets of its sessions are dropped, as where large ones do not pass. TCP gives these sessions up: because of data, also within TLS, or because the host is away (keepalive). The
// endpoint is ejected, and the status has the cause.
func TestLostConnections(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "up.test")
	with := &tls.Config{Certificates: []tls.Certificate{pairOf(t, cert, key)}, SessionTicketsDisabled: true}
	for name, c := range map[string]struct {
		socket, upstream string
		sends            bool
	}{
		"data":      {"keepalive: 0s, user_timeout: 300ms", "", true},
		"TLS":       {"keepalive: 0s, user_timeout: 300ms", ", tls: {ca: ca.pem, sni: up.test}", true},
		"keepalive": {"keepalive: 1s, user_timeout: 1s", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			accepted := make(chan *net.TCPConn, 2)
			up := sockets.Server(t, func(conn net.Conn) {
				if c.upstream != "" && tls.Server(conn, with).Handshake() != nil {
					return
				}
				accepted <- conn.(*net.TCPConn)
				<-t.Context().Done()
			})
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, socket: {%s}}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], health_check: off, outlier_detection: {consecutive_failures: 2, max_ejected: 1}%s}]`, c.socket, up, c.upstream), "ca.pem", cert)
			for range 2 {
				conn := client(t, r.At("l"))
				filter(t, sockets.FD(t, <-accepted), syscall.SO_ATTACH_FILTER)
				if c.sends {
					sends(t, conn, "unheard")
				}
				isReset(t, conn)
			}
			r.Until("the sessions have ended", func() bool { return r.Status().Connections.Active == 0 })
			const cause = "2 failures in a row, the last: connection lost before its first byte (TCP time-out, or no route)"
			if e := r.Endpoint("u", "a"); e.State != "ejected" || e.Why != cause || e.Failures != 2 {
				t.Errorf("%s after %d failures: %q", e.State, e.Failures, e.Why)
			}
		})
	}
}

// TestUnreachableBehindAFallback: an endpoint refuses connections, and no check or verdict
// reports it. Its status and a log line do so from the first client on, although the fallback
// serves, until a connection succeeds.
func TestUnreachableBehindAFallback(t *testing.T) {
	t.Parallel()

	port := sockets.Port(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - {name: u, endpoints: [{address: "127.0.0.1:%s", name: a}], health_check: off, fallback: {upstream: v}}
  - {name: v, endpoints: [{address: %q, name: b}], health_check: off}`, port, named(t, "b")))
	unreachable := func() bool {
		e := r.Endpoint("u", "a")
		return e.State == admin.Up && e.LastFailure != nil && e.LastFailure.Connecting && !e.LastFailure.Over
	}
	if unreachable() {
		t.Error("before the first client")
	}
	if got := line(t, client(t, r.At("l"))); got != "b" || !unreachable() {
		t.Errorf("served by %s: %+v", got, r.Endpoint("u", "a"))
	}
	r.Logs("level=INFO", `msg="attempts to connect to endpoints have failed"`, "upstream=u", "times=1", `reasons="refused 1"`)
	serverAt(t, port, "a")
	if got := line(t, client(t, r.At("l"))); got != "a" || unreachable() {
		t.Errorf("then served by %s: %+v", got, r.Endpoint("u", "a"))
	}
}

// TestLocalFaults: some connections fail for a local reason, here the lack of the address to
// connect from. The log has their cause, it is the reason of the refusals, and it is reported as
// a problem. 192.0.2.1 is assigned to no host (RFC 5737).
func TestLocalFaults(t *testing.T) {
	t.Parallel()

	r := start(t, `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: "127.0.0.1:9", name: a}], source_address: 192.0.2.1, queue: {hold: 0s}, health_check: off}]`)
	refused(t, r.At("l"))
	const cause = "cannot assign requested address"
	r.Logs("level=WARN", `msg="connections to endpoints failed because this machine lacks a resource"`, "upstream=u", `reasons="`+cause)
	r.Logs("level=WARN", `msg="clients refused"`, "upstream=u", `reasons="local 1"`)
	u := r.Status().Upstreams[0]
	if u.LocalFaults[cause] == 0 || u.Reasons["local"] != 1 || u.LastMinute.LocalFaults == 0 {
		t.Errorf("%+v", u)
	}
	r.Logs("level=WARN", `msg="an upstream has no usable endpoint"`, "a: this machine cannot connect: "+cause)
	if e := u.Endpoints[0]; e.State != "up" || u.Outage == nil || e.LastFailure == nil || e.LastFailure.Over || e.LastFailure.Cause != "this machine cannot connect: "+cause {
		t.Errorf("%+v", e)
	}
}

// TestUnresolvedEndpoint: the status of an endpoint without a check says that its name does not resolve, before a client finds out.
func TestUnresolvedEndpoint(t *testing.T) {
	t.Parallel()

	r := start(t, `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{name: none, address: "none.invalid:1"}, {name: local, address: "localhost:1"}, {name: literal, address: "127.0.0.1:1"}], health_check: off}]`)
	r.Until("the name is looked up", func() bool { return r.Endpoint("u", "none").Unresolved != "" })
	for _, name := range []string{"local", "literal"} {
		if why := r.Endpoint("u", name).Unresolved; why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
}
