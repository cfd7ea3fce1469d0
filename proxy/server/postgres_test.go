package server_test

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
)

// Messages of clients of PostgreSQL.
var (
	sslRequest = message(80877103, "")
	gssRequest = message(80877104, "")
	cancel     = message(80877102, "12345678")
	startup    = message(3<<16, "user\x00ann\x00database\x00shop\x00\x00")
)

// message is one with a code and a body.
func message(code uint32, body string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	return string(binary.BigEndian.AppendUint32(b, code)) + body
}

// A pgServer is an endpoint that answers an SSLRequest, and otherwise sends its name and a line for the bytes that came.
type pgServer struct {
	mu      sync.Mutex
	cancels []string     // messages
	asked   atomic.Int64 // number of SSLRequests
}

// serve returns its address. answer is what it sends to an SSLRequest; S begins TLS, and end is none.
func (p *pgServer) serve(t *testing.T, name, answer string) string {
	t.Helper()
	return sockets.Server(t, p.handler(t, name, answer))
}

func (p *pgServer) handler(t *testing.T, name, answer string) func(net.Conn) {
	t.Helper()
	cert, key := certificate.New(t, name+".test")
	pair := pairOf(t, cert, key)
	return func(c net.Conn) {
		b := make([]byte, 8)
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		if string(b) == sslRequest {
			p.asked.Add(1)
			if answer == "end" {
				return
			}
			if _, _ = io.WriteString(c, answer); answer != "S" {
				_, _ = c.Read(b)
				return
			}
			secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"postgresql"}})
			if _, err := io.ReadFull(secure, b); err != nil {
				return
			}
			c = secure
		}
		rest := make([]byte, binary.BigEndian.Uint32(b)-8)
		if _, err := io.ReadFull(c, rest); err != nil {
			return
		}
		if binary.BigEndian.Uint32(b[4:]) == 80877102 {
			p.mu.Lock()
			p.cancels = append(p.cancels, string(b)+string(rest))
			p.mu.Unlock()
			return
		}
		fmt.Fprintf(c, "%s %q\n", name, rest)
		sockets.Echo(c)
	}
}

// A dripper writes what TLS writes a byte at a time.
type dripper struct {
	net.Conn
	t *testing.T
}

func (d dripper) Write(b []byte) (int, error) {
	writeBytes(d.t, d.Conn, string(b))
	return len(b), nil
}

// TestPostgres: clients that speak a byte at a time are served, by TLS that is passed through or ends here, with and without a
// declined request for GSSAPI before it; and by TLS that begins without a request (PostgreSQL 17).
func TestPostgres(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	a, plain := new(pgServer).serve(t, "a", "S"), new(pgServer).serve(t, "plain", "N")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: through, bind: "127.0.0.1:0", postgres: passthrough, routes: [{match: {sni: [a.test]}, upstream: a}, {match: {user: [ann]}, upstream: plain}]}
  - {name: ends, bind: "127.0.0.1:0", postgres: terminate, tls: {certificates: [{cert: c.pem, key: k.pem}]}, routes: [{match: {user: [ann], database: [shop]}, upstream: plain}]}
  - {name: unix, bind: "unix:sock", postgres: passthrough, routes: [{match: {sni: [a.test]}, upstream: a}, {match: {user: [ann]}, upstream: plain}]}
  - {name: header, bind: "127.0.0.1:0", postgres: passthrough, upstream: plain}
upstreams: [{name: a, endpoints: [%q], health_check: off}, {name: plain, endpoints: [%q], health_check: off}]`, a, plain), "c.pem", cert, "k.pem", key)
	const parameters = `"user\x00ann\x00database\x00shop\x00\x00"`
	for _, c := range []struct {
		listener string
		gss      bool
		tls      string // plain, asked or direct
		want     string
	}{
		{"through", false, "asked", "a " + parameters},
		{"through", true, "asked", "a " + parameters},
		{"through", false, "plain", "plain " + parameters},
		{"through", true, "plain", "plain " + parameters},
		{"ends", false, "asked", "plain " + parameters},
		{"ends", true, "asked", "plain " + parameters},
		{"ends", false, "plain", "plain " + parameters},
		{"ends", false, "direct", "plain " + parameters},
		{"unix", true, "asked", "a " + parameters},
		{"unix", false, "plain", "plain " + parameters},
	} {
		t.Run(fmt.Sprint(c.listener, " ", c.tls, " ", c.gss), func(t *testing.T) {
			conn := pgDial(t, r.At(c.listener))
			if c.gss {
				writeBytes(t, conn, gssRequest)
				receives(t, conn, "N")
			}
			if c.tls == "asked" {
				writeBytes(t, conn, sslRequest)
				receives(t, conn, "S")
			}
			if c.tls != "plain" {
				secure := tls.Client(dripper{conn, t}, &tls.Config{ServerName: "a.test", InsecureSkipVerify: true, NextProtos: []string{"postgresql"}})
				must(t, secure.Handshake())
				conn = secure
			}
			writeBytes(t, conn, startup)
			hears(t, conn, c.want)
			echoes(t, conn, "and so on")
		})
	}
}

// pgDial connects to an address, which may be that of a unix socket.
func pgDial(t *testing.T, address string) net.Conn {
	t.Helper()
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return dialUnix(t, path)
	}
	return client(t, address)
}

// TestHalfAStartupMessage: a client whose message is half there when its time is over learns that, and not that no server is reached.
func TestHalfAStartupMessage(t *testing.T) {
	t.Parallel()

	r := start(t, `
listeners: [{name: l, bind: "127.0.0.1:0", timeouts: {preread: 100ms}, routes: [{match: {user: [ann]}, upstream: u}]}]
upstreams: [{name: u, endpoints: ["127.0.0.1:1"], health_check: off}]`)
	c := client(t, r.At("l"))
	sends(t, c, startup[:len(startup)/2])
	if answer, err := io.ReadAll(c); err != nil || !strings.Contains(string(answer), "was not complete in time") || !strings.Contains(string(answer), "08P01") {
		t.Errorf("%q, %v", answer, err)
	}
}

// TestPostgresRefusals: a client that injects bytes behind its request, asks twice, sends something else, or nothing, is
// reset, and counted by reason; one that does not ask for TLS and has to gets an error of PostgreSQL.
func TestPostgresRefusals(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	a := new(pgServer).serve(t, "a", "S")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: through, bind: "127.0.0.1:0", postgres: passthrough, require_tls: true, upstream: a, timeouts: {preread: 1s}}
  - {name: ends, bind: "127.0.0.1:0", postgres: terminate, require_tls: true, tls: {certificates: [{cert: c.pem, key: k.pem}]}, upstream: a, timeouts: {preread: 1s}}
upstreams: [{name: a, endpoints: [%q], health_check: off}]`, a), "c.pem", cert, "k.pem", key)
	for _, listener := range []string{"through", "ends"} {
		for _, c := range []struct {
			name, reason string
			say          func(c net.Conn)
		}{
			{"a startup message behind the request", "postgres", func(c net.Conn) { _, _ = io.WriteString(c, sslRequest+startup) }},
			{"a byte behind the request", "postgres", func(c net.Conn) { _, _ = io.WriteString(c, gssRequest+"x") }},
			{"HTTP", "postgres", func(c net.Conn) { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n") }},
			{"a startup message without a user, a byte at a time", "postgres", func(c net.Conn) { _, _ = io.WriteString(c, message(3<<16, "database\x00shop\x00\x00")) }},
			{"a second GSSENCRequest", "postgres", func(c net.Conn) {
				_, _ = io.WriteString(c, gssRequest)
				receives(t, c, "N")
				_, _ = io.WriteString(c, gssRequest)
			}},
			{"nothing", "preread", func(net.Conn) {}},
			{"a part", "preread", func(c net.Conn) { _, _ = io.WriteString(c, startup[:20]) }},
		} {
			before := r.Refused(listener, c.reason)
			conn := client(t, r.At(listener))
			c.say(conn)
			isReset(t, conn)
			r.Until(c.name+" is counted as "+c.reason, func() bool { return r.Refused(listener, c.reason) == before+1 })
		}
		conn := client(t, r.At(listener))
		_, _ = io.WriteString(conn, startup)
		b, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(b), "E\x00\x00\x00") || !strings.Contains(string(b), "SFATAL\x00VFATAL\x00C28000\x00Mthis server requires TLS") {
			t.Errorf("%s: a client without TLS gets %q, %v", listener, b, err)
		}
		r.Until("it is counted", func() bool { return r.Refused(listener, "unencrypted") == 1 })
	}
	// In place of a hello.
	conn := client(t, r.At("through"))
	_, _ = io.WriteString(conn, sslRequest)
	receives(t, conn, "S")
	_, _ = io.WriteString(conn, startup)
	gone(t, conn)
	r.Until("the client without a hello is counted", func() bool { return r.Refused("through", "hello") == 1 })
	// TLS for another protocol, and for none, without a request.
	for _, protocols := range [][]string{nil, {"h2"}} {
		direct := tls.Client(client(t, r.At("ends")), &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
		if err := direct.Handshake(); err == nil {
			_, err = direct.Read(make([]byte, 1))
			if err == nil {
				t.Errorf("TLS for %v is served", protocols)
			}
		}
	}
}

// TestPostgresNoHello: a client that was promised TLS and sends anything else, or a part of a hello, gets to no upstream, though there is
// one by default and TLS is not required.
func TestPostgresNoHello(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners:
  - {name: sni_hello, bind: "127.0.0.1:0", postgres: passthrough, upstream: a, routes: [{match: {sni: [a.test]}, upstream: a}], timeouts: {preread: 10m}}
  - {name: sni_preread, bind: "127.0.0.1:0", postgres: passthrough, upstream: a, routes: [{match: {sni: [a.test]}, upstream: a}], timeouts: {preread: 300ms}}
  - {name: none_hello, bind: "127.0.0.1:0", postgres: passthrough, upstream: a, timeouts: {preread: 10m}}
  - {name: none_preread, bind: "127.0.0.1:0", postgres: passthrough, upstream: a, timeouts: {preread: 300ms}}
upstreams: [{name: a, endpoints: [%q], health_check: off}]`, new(pgServer).serve(t, "a", "S")))
	for _, listener := range []string{"sni", "none"} {
		for say, reason := range map[string]string{
			startup: "hello", sslRequest: "hello", gssRequest: "hello", cancel: "hello", "junk\r\n\r\n": "hello", "\x16\x03\x01\x00\x05hello": "hello",
			"\x16": "preread", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc": "preread", "": "preread",
		} {
			at := listener + "_" + reason
			before := r.Refused(at, reason)
			conn := client(t, r.At(at))
			_, _ = io.WriteString(conn, sslRequest)
			receives(t, conn, "S")
			if _, err := io.WriteString(conn, say); !errors.Is(err, syscall.ECONNRESET) { // which is told once
				isReset(t, conn)
			}
			r.Until(fmt.Sprintf("%q is counted as %s", say, reason), func() bool { return r.Refused(at, reason) == before+1 })
		}
	}
}

// TestPostgresHiddenLogin: a client that hides its user in TLS that is passed through takes no route behind one that the user would decide.
func TestPostgresHiddenLogin(t *testing.T) {
	t.Parallel()

	a, admin := new(pgServer).serve(t, "a", "S"), new(pgServer).serve(t, "admin", "S")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", postgres: passthrough, upstream: a, routes: [{match: {sni: [a.test]}, upstream: a}, {match: {user: [admin]}, upstream: admin}, {match: {database: [shop]}, upstream: admin}]}
  - {name: any, bind: "127.0.0.1:0", postgres: passthrough, upstream: a}
upstreams: [{name: a, endpoints: [%q], health_check: off}, {name: admin, endpoints: [%q], health_check: off}]`, a, admin))
	for i, asks := range []bool{true, false} {
		conn := client(t, r.At("l"))
		if asks {
			_, _ = io.WriteString(conn, sslRequest)
			receives(t, conn, "S")
		}
		secure := tls.Client(conn, &tls.Config{ServerName: "other.test", InsecureSkipVerify: true, NextProtos: []string{"postgresql"}})
		if err := secure.Handshake(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, want a reset", err)
		}
		r.Until("the client is counted", func() bool { return r.Refused("l", "first_bytes") == int64(i)+1 })
	}
	for said, want := range map[string]string{
		"user\x00admin": "admin ", "user\x00ann": "a ", "user\x00ann\x00database\x00shop": "admin ", "user\x00admin\x00options\x00-cdatabase=x": "admin ",
		"user\x00Admin": "E", "user\x00ann\x00database\x00SHOP": "E", "user\x00ann\x00options\x00--database=shop": "E",
		"user\x00ann\x00user\x00admin": "E", "user\x00ann\x00database\x00shop\x00database\x00x": "E", "user\x00ann\x00USER\x00admin": "E", "user\x00" + strings.Repeat("x", 64): "E",
	} {
		conn, certain := client(t, r.At("l")), client(t, r.At("any"))
		_, _ = io.WriteString(certain, message(3<<16, said+"\x00\x00"))
		if got := line(t, certain); !strings.HasPrefix(got, "a ") {
			t.Errorf("without a route by user, %q gets to %s", said, got)
		}
		_, _ = io.WriteString(conn, message(3<<16, said+"\x00\x00"))
		if want == "E" { // an ErrorResponse
			receives(t, conn, want)
		} else if got := line(t, conn); !strings.HasPrefix(got, want) {
			t.Errorf("%q gets to %s", said, got)
		}
	}
	r.Until("the clients in doubt are counted", func() bool { return r.Refused("l", "first_bytes") == 9 })
}

// TestPostgresEndpoints: an endpoint that does not answer an SSLRequest by S alone gets no client whose TLS is passed through. That one goes
// to another endpoint, or is refused, with the answer in the session log. However many are, others go on to be served by the endpoint.
func TestPostgresEndpoints(t *testing.T) {
	t.Parallel()

	good := new(pgServer).serve(t, "good", "S")
	for name, c := range map[string]struct {
		answer, log string
		clients     int64
	}{
		"N":       {"N", "it answered N to the SSLRequest", 12},
		"error":   {"E\x00\x00\x00\x05x", "with an error", 12},
		"garbage": {"HTTP/1.1 400 Bad Request\r\n\r\n", `it answered \"H\" to the SSLRequest`, 12},
		"more":    {"S\x16\x03\x01", "more bytes after its S", 12},
		"silent":  {"", "it did not answer the SSLRequest in time", 1},
		"end":     {"end", "", 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := new(pgServer).serve(t, "bad", c.answer)
			r := start(t, fmt.Sprintf(`
session_log: {to: sessions.log}
listeners:
  - {name: one, bind: "127.0.0.1:0", postgres: passthrough, upstream: one, timeouts: {connect: 300ms}}
  - {name: plain, bind: "127.0.0.1:0", upstream: one}
  - {name: both, bind: "127.0.0.1:0", postgres: passthrough, upstream: both, timeouts: {connect: 300ms}}
upstreams:
  - name: one
    endpoints: [%q]
    health_check: off
    queue: {hold: 0s}
    retry: {attempts: 0}
    outlier_detection: {consecutive_failures: 3, base_ejection_time: 1h, max_ejection_time: 1h}
    circuit_breaker: {min_volume: 3, open: 1h}
  - {name: both, balance: first, endpoints: [%[1]q, %q], health_check: off}`, bad, good))
			serve := func() {
				conn := client(t, r.At("plain"))
				defer conn.Close()
				_, _ = io.WriteString(conn, startup)
				if got := line(t, conn); !strings.HasPrefix(got, "bad ") {
					t.Fatalf("got %q", got)
				}
			}
			serve()
			conn := client(t, r.At("both"))
			_, _ = io.WriteString(conn, sslRequest)
			receives(t, conn, "S")
			secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			_, _ = io.WriteString(secure, startup)
			if got := line(t, secure); !strings.HasPrefix(got, "good ") {
				t.Errorf("served by %s", got)
			}
			conn.Close()
			for range c.clients {
				conn := client(t, r.At("one"))
				_, _ = io.WriteString(conn, sslRequest)
				receives(t, conn, "S")
				if err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake(); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%v, want a reset", err)
				}
			}
			r.Until("the clients are counted", func() bool { return r.Refused("one", "endpoint_tls") == c.clients })
			serve()
			if e := r.Endpoint("one", bad); e.State != "up" || name != "end" && (e.Failures != 0) != (name == "silent") {
				t.Errorf("the endpoint is %+v", e)
			}
			if got := string(r.logged(t, c.clients+3)); !strings.Contains(got, c.log) {
				t.Errorf("the session log has %s, want %s", got, c.log)
			}
		})
	}
}

// TestPostgresDeclinedClients: a client to which an endpoint has answered N is refused at once, after as many attempts as retry allows. It is
// not held, tries no dead endpoint as a last resort, and is no outage: the endpoint accepts connections and serves others.
func TestPostgresDeclinedClients(t *testing.T) {
	t.Parallel()

	port, server := sockets.Port(t), new(pgServer)
	var many []any
	for range 5 {
		many = append(many, server.serve(t, "many", "N"))
	}
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: half, bind: "127.0.0.1:0", postgres: passthrough, upstream: half}
  - {name: many, bind: "127.0.0.1:0", postgres: passthrough, upstream: many}
  - {name: back, bind: "127.0.0.1:0", postgres: passthrough, upstream: back}
upstreams:
  - {name: half, endpoints: [{name: dead, address: %q}, {name: live, address: %q}], health_check: {interval: 50ms}}
  - {name: many, endpoints: [%q, %q, %q, %q, %q], retry: {attempts: 1}, health_check: off}
  - {name: back, endpoints: ["127.0.0.1:%s"], queue: {hold: 0s}, health_check: off}`,
		append(append([]any{sockets.Refusing(t), new(pgServer).serve(t, "live", "N")}, many...), port)...))
	asksForTLS := func(listener string) {
		t.Helper()
		before := r.Refused(listener, "endpoint_tls")
		conn := client(t, r.At(listener))
		_, _ = io.WriteString(conn, sslRequest)
		receives(t, conn, "S")
		if err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, want a reset", err)
		}
		r.Until("the client is counted", func() bool { return r.Refused(listener, "endpoint_tls") == before+1 })
	}

	r.Until("the dead endpoint is down", func() bool { return r.Endpoint("half", "dead").State == "down" })
	for range 3 {
		asksForTLS("half")
		conn := client(t, r.At("half"))
		_, _ = io.WriteString(conn, startup)
		hears(t, conn, `live "user\x00ann\x00database\x00shop\x00\x00"`)
		conn.Close()
	}
	u := r.Status().Upstreams[1] // by name
	if u.Held != 0 || u.Failures != 0 || u.Outage != nil {
		t.Errorf("%d were held, %d connections failed, outage %+v", u.Held, u.Failures, u.Outage)
	}

	asksForTLS("many")
	r.Logs("level=INFO", `msg="clients refused"`, "upstream=many", `reasons="declined 1"`)
	if n := server.asked.Load(); n != 2 {
		t.Errorf("%d endpoints were asked for TLS, want 2", n)
	}

	conn := client(t, r.At("back"))
	_, _ = io.WriteString(conn, startup)
	receives(t, conn, "E")
	ln, err := net.Listen("tcp", "127.0.0.1:"+port)
	must(t, err)
	sockets.Serve(t, ln, new(pgServer).handler(t, "back", "N"))
	asksForTLS("back")
	if u := r.Status().Upstreams[0]; u.Outage != nil || !u.Endpoints[0].LastFailure.Over {
		t.Errorf("after the endpoint has answered: outage %+v, last failure %+v", u.Outage, u.Endpoints[0].LastFailure)
	}
}

// TestPostgresCancel: a CancelRequest, in the clear or over TLS that ends here, gets to every endpoint that may have the query, and the
// client is closed once they have it. Requests above a quarter of the limit of connections are refused.
func TestPostgresCancel(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	a, b := new(pgServer), new(pgServer)
	atA, atB := a.serve(t, "a", "S"), b.serve(t, "b", "N")
	r := start(t, fmt.Sprintf(`
session_log: {to: sessions.log, format: template, template: "{listener} {outcome} {state}"}
listeners:
  - {name: unsent, bind: "127.0.0.1:0", postgres: passthrough, upstream: none}
  - {name: busy, bind: "127.0.0.1:0", postgres: passthrough, upstream: busy, limits: {connections: 4}, session_log: false}
  - {name: through, bind: "127.0.0.1:0", postgres: passthrough, require_tls: true, upstream: b, routes: [{match: {sni: [a.test]}, upstream: a}]}
  - {name: ends, bind: "127.0.0.1:0", postgres: terminate, tls: {certificates: [{cert: c.pem, key: k.pem}]}, upstream: b, routes: [{match: {user: [ann]}, upstream: a}]}
upstreams:
  - {name: a, endpoints: [%q], health_check: off}
  - {name: b, endpoints: [%q, %q], health_check: off}
  - {name: none, endpoints: [%[3]q], health_check: off}
  - {name: busy, endpoints: [%[4]q], health_check: off}`, atA, atB, sockets.Refusing(t), sockets.Silent(t)), "c.pem", cert, "k.pem", key)
	for i, listener := range []string{"through", "ends", "ends"} {
		conn := net.Conn(client(t, r.At(listener)))
		if i == 2 {
			_, _ = io.WriteString(conn, sslRequest)
			receives(t, conn, "S")
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		}
		writeBytes(t, conn, cancel)
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v, want an end", listener, err)
		}
		for _, p := range []*pgServer{a, b} {
			p.mu.Lock()
			if len(p.cancels) != i+1 || p.cancels[i] != cancel {
				t.Errorf("%s: an endpoint got %q", listener, p.cancels)
			}
			p.mu.Unlock()
		}
	}
	r.Until("requests are counted", func() bool {
		c := r.Listener("ends").Cancels
		return c.Requests == 2 && c.Sent == 4 && c.Failed == 2
	})
	conn := client(t, r.At("unsent"))
	_, _ = io.WriteString(conn, cancel)
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("no endpoint: %v, want an end", err)
	}
	r.Until("one is refused while another one, which may be a quarter of the limit, is being sent", func() bool {
		c := client(t, r.At("busy"))
		_, _ = io.WriteString(c, cancel)
		return r.Refused("busy", "cancel_overload") > 0
	})
	lines := strings.Fields(strings.ReplaceAll(string(r.logged(t, 4)), " ", "_"))
	slices.Sort(lines)
	if got := strings.Join(lines, " "); got != "ends_cancel_sent_-- ends_cancel_sent_-- through_cancel_sent_-- unsent_cancel_unsent_SC" {
		t.Errorf("the session log has %s", got)
	}
}

// TestPostgresCancelByRoutes: a CancelRequest gets to the upstreams that its client's routes may have led to, and to no other: one of another
// source, one behind the first route that fits for certain, and one whose filter denies the client.
func TestPostgresCancelByRoutes(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	servers := make(map[string]*pgServer)
	var upstreams strings.Builder
	for _, name := range []string{"one", "ann", "two", "denied", "allowed", "rest"} {
		servers[name] = new(pgServer)
		fmt.Fprintf(&upstreams, "\n  - {name: %s, endpoints: [%q], health_check: off}", name, servers[name].serve(t, name, "N"))
	}
	const byLogin = `routes: [{match: {source: [127.0.0.1], user: [eve]}, upstream: one}, {match: {user: [ann]}, upstream: ann}, {match: {source: [127.0.0.2]}, upstream: two}]`
	r := start(t, `
listeners:
  - {name: ends, bind: "127.0.0.1:0", postgres: terminate, tls: {certificates: [{cert: c.pem, key: k.pem}]}, upstream: rest, `+byLogin+`}
  - name: through
    bind: "127.0.0.1:0"
    postgres: passthrough
    require_tls: true
    upstream: rest
    routes:
      - {match: {source: [127.0.0.1], sni: [one.test]}, upstream: one}
      - {match: {source: [127.0.0.1]}, upstream: denied, filter: {name: x, wasm: trap.wasm, preread: 16}}
      - {match: {sni: [two.test]}, upstream: two, filter: {name: y, wasm: trap.wasm, preread: 16}}
      - {upstream: allowed, filter: {name: z, wasm: trap.wasm, preread: 16, on_error: allow}}
upstreams:`+upstreams.String(), "c.pem", cert, "k.pem", key, "trap.wasm", trapModule())
	for _, test := range []struct {
		source, listener string
		tls              bool
		want             string
	}{
		{"127.0.0.1", "ends", false, "ann one rest"},
		{"127.0.0.1", "ends", true, "ann one rest"},
		{"127.0.0.2", "ends", false, "ann two"},
		{"127.0.0.2", "ends", true, "ann two"},
		{"127.0.0.1", "through", false, "one"},
		{"127.0.0.2", "through", false, "allowed"},
	} {
		conn := net.Conn(dialFrom(t, test.source, r.At(test.listener)))
		if test.tls {
			_, _ = io.WriteString(conn, sslRequest)
			receives(t, conn, "S")
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		}
		_, _ = io.WriteString(conn, cancel)
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%+v: %v, want an end", test, err)
		}
		if got := cancelled(servers); got != test.want {
			t.Errorf("%+v: it got to %s", test, got)
		}
	}
}

// cancelled returns the names of the servers that have got a CancelRequest since the last call.
func cancelled(servers map[string]*pgServer) string {
	var got []string
	for name, p := range servers {
		p.mu.Lock()
		if len(p.cancels) > 0 {
			got = append(got, name)
		}
		p.cancels = nil
		p.mu.Unlock()
	}
	slices.Sort(got)
	return strings.Join(got, " ")
}

// TestPostgresCancelAfterReload: a CancelRequest also gets to a removed endpoint and a former upstream that still have sessions of the
// listener, but not to an upstream of another source.
func TestPostgresCancelAfterReload(t *testing.T) {
	t.Parallel()

	servers, at := make(map[string]*pgServer), make(map[string]string)
	for _, name := range []string{"blue", "green", "gone", "other"} {
		servers[name] = new(pgServer)
		at[name] = servers[name].serve(t, name, "N")
	}
	serving := func(to, more string, green ...string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", postgres: passthrough, upstream: %s, routes: [{match: {source: [127.0.0.2]}, upstream: other}]}]
upstreams: [{name: green, endpoints: [%s], health_check: off}, {name: other, endpoints: [%q], health_check: off}%s]`, to, strings.Join(green, ", "), at["other"], more)
	}
	blue := fmt.Sprintf(", {name: blue, endpoints: [%q], health_check: off}", at["blue"])
	r := start(t, serving("blue", blue, at["gone"]))
	hold := func(source string) {
		c := dialFrom(t, source, r.At("l"))
		_, _ = io.WriteString(c, startup)
		line(t, c)
	}
	cancels := func(want string) {
		t.Helper()
		c := client(t, r.At("l"))
		_, _ = io.WriteString(c, cancel)
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%v, want an end", err)
		}
		if got := cancelled(servers); got != want {
			t.Errorf("it got to %q, want %q", got, want)
		}
	}
	hold("127.0.0.1")
	hold("127.0.0.2")
	cancels("blue")
	r.Reload(serving("green", blue, at["gone"])) // blue stays, but the listener leads to green
	cancels("blue gone")
	hold("127.0.0.1")
	r.Reload(serving("green", "", at["green"])) // blue goes, and green gets another endpoint
	cancels("blue gone green")
}

// trapModule is a filter that fails for each client.
func trapModule() string {
	m := &Module{Pages: 1}
	m.Func("proxy_abi_version_0_2_1", "", "", 0)
	m.Func("proxy_on_memory_allocate", i32, i32, 0, Const(8192))
	m.Func("proxy_on_downstream_data", i32+i32+i32, i32, 0, Code(Unreachable))
	return string(m.Bytes())
}

// TestPostgresRefusalAnswers: a client of PostgreSQL that is refused gets an ErrorResponse with the SQLSTATE of the cause, and
// then the end of file; one whose first message has not come, and one that speaks TLS to the endpoint, are reset.
func TestPostgresRefusalAnswers(t *testing.T) {
	t.Parallel()

	full := named(t, "full")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: filter, bind: "127.0.0.1:0", postgres: passthrough, upstream: full, filter: {wasm: denies.wasm, timeout: 10s}}
  - {name: first, bind: "127.0.0.1:0", routes: [{match: {protocol: [postgres]}, upstream: full, filter: {wasm: denies.wasm, timeout: 10s}}]}
  - {name: route, bind: "127.0.0.1:0", postgres: passthrough, routes: [{match: {user: [eve]}, upstream: full}]}
  - {name: full, bind: "127.0.0.1:0", postgres: passthrough, upstream: full}
  - {name: dead, bind: "127.0.0.1:0", postgres: passthrough, upstream: dead}
upstreams:
  - {name: full, endpoints: [{address: %q, connections: 1}], health_check: off, queue: {size: 0}}
  - {name: dead, endpoints: [%q], health_check: off, queue: {hold: 0s}, retry: {attempts: 0}}`, full, sockets.Refusing(t)), "denies.wasm", gateModule(true))
	occupies := client(t, r.At("full"))
	fmt.Fprint(occupies, startup)
	line(t, occupies)
	for of, code := range map[string]string{"filter": "28000", "first": "28000", "route": "08004", "full": "53300", "dead": "57P03"} {
		c := client(t, r.At(of))
		fmt.Fprint(c, startup)
		b, err := io.ReadAll(c)
		if got := string(b); err != nil || !strings.HasPrefix(got, "E") || !strings.Contains(got, "SFATAL\x00VFATAL\x00C"+code+"\x00M") {
			t.Errorf("%s: %q, %v, want an ErrorResponse with %s", of, got, err, code)
		}
	}
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", sslRequest + sslRequest} {
		c := client(t, r.At("route"))
		fmt.Fprint(c, text)
		if b, err := io.ReadAll(c); len(b) > 0 || err == nil {
			t.Errorf("after %q: %q, %v", text, b, err)
		}
	}
	c := client(t, r.At("filter"))
	fmt.Fprint(c, sslRequest)
	receives(t, c, "S")
	c2, err := hello(t, r.At("route"), "a.test")
	if err == nil {
		t.Error("a handshake with no endpoint")
	}
	c2.Close()
}
