package balancer_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// TestRefusedClientsAreAnOutage: an upstream whose clients are refused because no connection
// can be made has an outage from the first of them, whatever the verdicts on its endpoints
// say, and until one is served.
func TestRefusedClientsAreAnOutage(t *testing.T) {
	for name, check := range map[string]string{
		"no check":              "health_check: off",
		"a check of other port": "health_check: {port: %s, interval: 20ms, fast_interval: 10ms}",
	} {
		t.Run(name, func(t *testing.T) {
			role, port := newRole(t, true), sockets.Port(t)
			check = strings.ReplaceAll(check, "%s", role.port)
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: "127.0.0.1:%s", name: a}], circuit_breaker: off, queue: {hold: 0s}, %s}]`, port, check))
			if u := r.Status().Upstreams[0]; u.Outage != nil || u.Endpoints[0].LastFailure != nil {
				t.Fatalf("at first: %+v, %+v", u.Outage, u.Endpoints[0].LastFailure)
			}
			refused(t, r.At("l"))
			u := r.Status().Upstreams[0]
			if e := u.Endpoints[0]; u.Outage == nil || u.Outage.Full || e.State != "up" || e.LastFailure == nil || e.LastFailure.Over ||
				e.LastFailure.Cause != "cannot be connected to: connection refused" || time.Since(e.LastFailure.Time).Abs() > patience {
				t.Fatalf("after a client was refused: %+v, %+v, %+v", u.Outage, e, e.LastFailure)
			}
			r.Logs("level=WARN", `msg="upstream has no usable endpoint"`, "upstream=u", "a: cannot be connected to: connection refused")
			for range 9 {
				refused(t, r.At("l"))
			}
			serverAt(t, port, "back")
			r.Until("a client is served", func() bool {
				c := client(t, r.At("l"))
				defer c.Close()
				_, err := sockets.ReadLine(c)
				return err == nil
			})
			if u := r.Status().Upstreams[0]; u.Outage != nil || !u.Endpoints[0].LastFailure.Over {
				t.Errorf("when a client was served: %+v, %+v", u.Outage, u.Endpoints[0].LastFailure)
			}
			r.Logs("level=INFO", `msg="upstream has a usable endpoint again"`, "upstream=u", "refused=1") // 10 or more
		})
	}
}

// TestCheckEndsAnOutage: one that connects to the endpoint itself, and nothing else has failed.
func TestCheckEndsAnOutage(t *testing.T) {
	port := sockets.Port(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - {name: u, endpoints: ["127.0.0.1:%s"], queue: {hold: 0s}, health_check: {interval: 20ms, fast_interval: 10ms, fall: 1000}}`, port))
	refused(t, r.At("l"))
	if u := r.Status().Upstreams[0]; u.Outage == nil {
		t.Fatal("it has no outage")
	}
	serverAt(t, port, "back")
	r.Until("a check has connected", func() bool {
		u := r.Status().Upstreams[0]
		return u.Outage == nil && u.Endpoints[0].LastFailure.Over
	})
}

// TestCausesOfHandshakes: why an endpoint's certificate is not accepted is in the status, and
// in the lines on the outage, the ejection and the breakers. A check that connects is no
// evidence of the contrary.
func TestCausesOfHandshakes(t *testing.T) {
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
	if e.LastFailure == nil { // it was the other one's client
		e = u.Endpoints[1]
	}
	const cause = "cannot be connected to: TLS handshake: tls: failed to verify certificate: x509: certificate signed by unknown authority"
	if u.Outage == nil || e.LastFailure == nil || !strings.HasPrefix(e.LastFailure.Cause, cause) {
		t.Fatalf("%+v, %+v", u.Outage, e.LastFailure)
	}
	for range 30 {
		refused(t, r.At("l"))
	}
	r.Logs(`msg="upstream has no usable endpoint"`, "x509: ")
	r.Logs("msg=ejection", "state=ejected", "3 failures in a row, the last: "+cause)
	r.Logs("msg=circuit", "state=open", "the last: "+cause)
	time.Sleep(100 * time.Millisecond) // in which five checks are due; with more or fewer nothing must change
	if u := r.Status().Upstreams[0]; u.Outage == nil || u.Endpoints[0].LastFailure.Over {
		t.Errorf("after checks: %+v, %+v", u.Outage, u.Endpoints[0].LastFailure)
	}
}

// TestLastResortThatAnswersNobody: an endpoint whose checks are not answered gets clients, as it
// has not said that it must not; but that these are served is not said before it is so.
func TestLastResortThatAnswersNobody(t *testing.T) {
	silent := sockets.Server(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - {name: u, endpoints: [{address: %q, name: a}], health_check: {send: PING, expect: PONG, interval: 100ms, fast_interval: 50ms, timeout: 50ms, fall: 1}}`, silent))
	r.Until("it is down", func() bool { return r.Endpoint("u", "a").State == "down" })
	c := client(t, r.At("l"))
	fmt.Fprintln(c, "hello")
	r.Until("the client is sent there", func() bool { return r.Status().Upstreams[0].LastMinute.LastResort == 1 })
	u := r.Status().Upstreams[0]
	if m := u.LastMinute; u.Outage == nil || u.LastResort != 1 || u.LastResortAnswered != 0 || m.LastResortAnswered != 0 || m.Refused+m.Held != 0 {
		t.Errorf("%+v", u)
	}
	r.Logs("level=INFO", `msg="connections made as a last resort" upstream=u times=1 within=`, "answered=0")
}

// TestCauseOfThisMachine: that it has not the address to connect from is told.
func TestCauseOfThisMachine(t *testing.T) {
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - {name: u, source_address: 192.0.2.1, endpoints: [{address: %q, name: a}], queue: {hold: 0s}, health_check: {interval: 20ms, fast_interval: 10ms}}`, named(t, "a")))
	refused(t, r.At("l"))
	u := r.Status().Upstreams[0]
	if f := u.Endpoints[0].LastFailure; u.Outage == nil || f == nil || f.Over || f.Cause != "this machine cannot connect: cannot assign requested address" {
		t.Errorf("%+v, %+v", u.Outage, f)
	}
	r.Logs("level=WARN", `msg="upstream has no usable endpoint"`, "a: this machine cannot connect: cannot assign requested address")
}

// TestWithheldEjections name the endpoints, and what fails there; a single endpoint has none.
func TestWithheldEjections(t *testing.T) {
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: one}]
upstreams:
  - {name: u, endpoints: [{address: %q, name: a}, {address: %q, name: b}], outlier_detection: {consecutive_failures: 1}, queue: {hold: 0s}, health_check: off}
  - {name: one, endpoints: [{address: %q, name: c}], outlier_detection: {consecutive_failures: 1}, queue: {hold: 0s}, health_check: off}`,
		sockets.Refusing(t), sockets.Refusing(t), sockets.Refusing(t)))
	var kept admin.Endpoint
	r.Until("one of two is kept", func() bool {
		refused(t, r.At("l"))
		refused(t, r.At("m"))
		for _, e := range r.Status().Upstreams[1].Endpoints {
			if e.EjectionsWithheldLastMinute > 0 {
				kept = e
				return true
			}
		}
		return false
	})
	if kept.State != admin.Up || kept.EjectionsWithheld == 0 || kept.WithheldWhy != "cannot be connected to: connection refused" {
		t.Errorf("%+v", kept)
	}
	r.Logs("level=WARN", `msg="ejections held back by max_ejected" upstream=u`, fmt.Sprintf(`endpoints="%s: `, kept.Name), ", the last: cannot be connected to: connection refused")
	if one := r.Status().Upstreams[0]; one.Name != "one" || one.EjectionsWithheld != 0 || one.LastMinute.EjectionsWithheld != 0 || one.Endpoints[0].EjectionsWithheld != 0 || one.Endpoints[0].Failures == 0 {
		t.Errorf("%+v", one)
	}
}

// TestDeadEndpointIsNoNews: while its checks say that it is down, its ejections and the states of
// its breaker change, and no line says so.
func TestDeadEndpointIsNoNews(t *testing.T) {
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [{address: %q, name: a}]
    outlier_detection: {consecutive_failures: 1, base_ejection_time: 20ms, max_ejection_time: 20ms, max_ejected: 1}
    circuit_breaker: {min_volume: 1, open: 20ms}
    queue: {hold: 0s}
    health_check: {interval: 20ms, fast_interval: 10ms, fall: 1}`, sockets.Refusing(t)))
	r.Until("it is down", func() bool { return r.Endpoint("u", "a").State == "down" })
	before, _ := r.Counter("transitions")
	r.Until("verdicts come and go", func() bool {
		refused(t, r.At("l"))
		now, _ := r.Counter("transitions")
		return now >= before+20
	})
	for line := range strings.Lines(r.Log.String()) {
		if strings.Contains(line, `subject="endpoint u/a"`) && !strings.Contains(line, "msg=health") {
			t.Errorf("logged %s", line)
		}
	}
}
