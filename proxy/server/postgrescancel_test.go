package server_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/fanout"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
)

// TestPostgresCancel: a CancelRequest, in the clear or over TLS that ends here, gets to every endpoint that may have the query, and the
// client is closed once they have it.
func TestPostgresCancel(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	a, b := new(pgServer), new(pgServer)
	atA, atB := a.serve(t, "a", "S"), b.serve(t, "b", "N")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: through, bind: "127.0.0.1:0", postgres: passthrough, require_tls: true, upstream: b, routes: [{match: {sni: [a.test]}, upstream: a}]}
  - {name: ends, bind: "127.0.0.1:0", postgres: terminate, tls: {certificates: [{cert: c.pem, key: k.pem}]}, upstream: b, routes: [{match: {user: [ann]}, upstream: a}]}
upstreams:
  - {name: a, endpoints: [%q], health_check: off}
  - {name: b, endpoints: [%q, %q], health_check: off}`, atA, atB, sockets.Refusing(t)), "c.pem", cert, "k.pem", key)
	for i, listener := range []string{"through", "ends", "ends"} {
		conn := net.Conn(client(t, r.At(listener)))
		if i == 2 {
			_, _ = io.WriteString(conn, sslRequest)
			expect(t, conn, "S")
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		}
		drip(t, conn, cancel)
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
}

// TestPostgresCancelFlood: a flood of CancelRequests from one source, to endpoints that hold each connection, takes a bounded number of
// connections and places. The others are closed at once, and counted. A request from another source, and one at another listener, get through.
func TestPostgresCancelFlood(t *testing.T) {
	t.Parallel()

	const flood, endpoints = 400, 60
	var mu sync.Mutex
	var open, most int
	seen := make(map[string]int) // requests
	holder := sockets.Server(t, func(c net.Conn) {
		mu.Lock()
		open++
		most = max(most, open)
		mu.Unlock()
		b := make([]byte, len(cancel))
		if _, err := io.ReadFull(c, b); err == nil {
			mu.Lock()
			seen[string(b)]++
			mu.Unlock()
			_, _ = c.Read(b) // the other side gives up
		}
		mu.Lock()
		open--
		mu.Unlock()
	})
	var list []string
	for i := range endpoints {
		list = append(list, fmt.Sprintf("{name: e%d, address: %q}", i, holder))
	}
	a := new(pgServer)
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: many, bind: "127.0.0.1:0", postgres: passthrough, upstream: many}
  - {name: other, bind: "127.0.0.1:0", postgres: passthrough, upstream: a}
upstreams: [{name: many, endpoints: [%s], health_check: off}, {name: a, endpoints: [%q], health_check: off}]`, strings.Join(list, ", "), a.serve(t, "a", "S")))
	overload := func() int64 { return r.Refused("many", "cancel_overload") }
	for range flood {
		c := client(t, r.At("many"))
		_, _ = io.WriteString(c, cancel)
		c.Close()
	}
	r.Until("all have come, and some are refused", func() bool { // how many depends on how fast they come
		return r.Listener("many").Cancels.Requests == flood && overload() > 0
	})
	if n := r.Listener("many").Connections.Active; n > fanout.MaxJobs {
		t.Errorf("%d clients have places", n)
	}
	late := message(80877102, "87654321")
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c, err := dialer.Dial("tcp", r.At("many"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, late)
	elsewhere := client(t, r.At("other"))
	_, _ = io.WriteString(elsewhere, cancel)
	if _, err := elsewhere.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || r.Listener("other").Cancels.Sent != 1 {
		t.Errorf("at another listener: %v", err)
	}
	r.Until("the request of another source is sent", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return seen[late] > 0
	})
	mu.Lock()
	defer mu.Unlock()
	if most > 2*fanout.MaxSends { // those that are closed may not be seen closed yet
		t.Errorf("%d connections at a time", most)
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
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(test.source)}}).Dial("tcp", r.At(test.listener))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		if test.tls {
			_, _ = io.WriteString(conn, sslRequest)
			expect(t, conn, "S")
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		}
		_, _ = io.WriteString(conn, cancel)
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%+v: %v, want an end", test, err)
		}
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
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%+v: it got to %s", test, got)
		}
	}
}

// trapModule is a filter that fails for each client.
func trapModule() string {
	m := &Module{Pages: 1}
	m.Func("proxy_abi_version_0_2_1", "", "", 0)
	m.Func("proxy_on_memory_allocate", i32, i32, 0, Const(8192))
	m.Func("proxy_on_downstream_data", i32+i32+i32, i32, 0, Code(Unreachable))
	return string(m.Bytes())
}
