package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestTheSmallestFile: one listener, one upstream, two endpoints in turn.
func TestTheSmallestFile(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	r := start(t, fmt.Sprintf(`
listeners: [{name: db, bind: "127.0.0.1:0", upstream: pg}]
upstreams: [{name: pg, endpoints: [%q, %q]}]`, a, b))
	got := map[string]int{}
	for range 10 {
		got[whose(t, r.At("db"))]++
	}
	if got["a"] != 5 || got["b"] != 5 {
		t.Errorf("%v, want 5 each", got)
	}
}

// TestRoutesBySource: the first matching route wins. A client without a matching route goes to
// the default; without a default it is refused and counted.
func TestRoutesBySource(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: one, bind: "127.0.0.1:0", routes: [{match: {source: ["10.0.0.0/8"]}, upstream: b}, {match: {source: ["127.0.0.0/8"]}, upstream: a}], upstream: b}
  - {name: two, bind: "127.0.0.1:0", routes: [{match: {source: ["10.0.0.0/8"]}, upstream: a}], upstream: b}
  - {name: none, bind: "127.0.0.1:0", routes: [{match: {source: ["10.0.0.0/8"]}, upstream: a}]}
upstreams: [{name: a, endpoints: [%q]}, {name: b, endpoints: [%q]}]`, a, b))
	if got := whose(t, r.At("one")); got != "a" {
		t.Errorf("one: %s", got)
	}
	if got := whose(t, r.At("two")); got != "b" {
		t.Errorf("two: %s", got)
	}
	refused(t, r.At("none"))
	r.Until("the refusal is counted", func() bool { return r.Refused("none", "no_route") == 1 })
}

// TestAccess: deny wins over allow, and a client that is not allowed is reset and counted.
func TestAccess(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: open, bind: "127.0.0.1:0", allow: ["127.0.0.0/8"], upstream: a}
  - {name: shut, bind: "127.0.0.1:0", allow: ["127.0.0.0/8"], deny: ["127.0.0.1"], upstream: a}
upstreams: [{name: a, endpoints: [%q]}]`, a))
	if got := whose(t, r.At("open")); got != "a" {
		t.Error(got)
	}
	refused(t, r.At("shut"))
	r.Until("the refusal is counted", func() bool { return r.Refused("shut", "address") == 1 })
}

// TestRetriesFindAnotherEndpoint: an endpoint that refuses connections costs no client as long as
// another one answers.
func TestRetriesFindAnotherEndpoint(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: bad}, {address: %q, name: good}], health_check: off, outlier_detection: off, circuit_breaker: off, retry: {attempts: 1, backoff: 1ms}}]`,
		sockets.Refusing(t), a))
	for range 20 {
		if got := whose(t, r.At("l")); got != "a" {
			t.Fatal(got)
		}
	}
	if e := r.Endpoint("u", "bad"); e.Failures < 10 || e.Active != 0 {
		t.Errorf("%+v, want at least 10 failures, and none under way", e)
	}
}

// TestEndpointsThatFailAreEjected: failed connections alone eject an endpoint, which is then no
// longer tried.
func TestEndpointsThatFailAreEjected(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: bad}, {address: %q, name: good}], health_check: off, circuit_breaker: off, outlier_detection: {consecutive_failures: 3}}]`,
		sockets.Refusing(t), a))
	for range 20 {
		if got := whose(t, r.At("l")); got != "a" {
			t.Fatal(got)
		}
	}
	e := r.Endpoint("u", "bad")
	if e.Failures != 3 || e.State != "ejected" {
		t.Errorf("%+v, want it ejected after 3 failures", e)
	}
}

// TestFallback: clients without a usable endpoint go to another upstream, or get a response and
// an orderly end.
func TestFallback(t *testing.T) {
	t.Parallel()

	a, dead := named(t, "a"), sockets.Refusing(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: v}]
upstreams:
  - {name: u, endpoints: [%q], fallback: {upstream: w}, retry: {attempts: 0}}
  - {name: v, endpoints: [%q], fallback: {respond: sorry.txt}, retry: {attempts: 0}}
  - {name: w, endpoints: [%q]}`, dead, dead, a), "sorry.txt", "sorry\n")
	if got := whose(t, r.At("l")); got != "a" {
		t.Error(got)
	}
	c := client(t, r.At("m"))
	if got, err := io.ReadAll(c); err != nil || string(got) != "sorry\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestFirstByte: an endpoint that accepts and sends nothing fails in time. Another connection is
// not affected.
func TestFirstByte(t *testing.T) {
	t.Parallel()

	mute, a := sockets.Server(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, timeouts: {first_byte: 200ms}}, {name: m, bind: "127.0.0.1:0", upstream: v, timeouts: {first_byte: 200ms}}]
upstreams: [{name: u, endpoints: [{address: %q, name: mute}], health_check: off, outlier_detection: {consecutive_failures: 2, max_ejected: 1.0}}, {name: v, endpoints: [%q]}]`, mute, a))
	other := client(t, r.At("m"))
	line(t, other)
	for range 2 {
		c := client(t, r.At("l"))
		began := time.Now()
		if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, want a reset", err)
		}
		if took := time.Since(began); took > 10*200*time.Millisecond {
			t.Errorf("the reset took %v", took)
		}
	}
	r.Until("the endpoint is ejected", func() bool { return r.Endpoint("u", "mute").State == "ejected" })
	if e := r.Endpoint("u", "mute"); e.Failures != 2 {
		t.Errorf("%+v, want 2 failures", e)
	}
	echoes(t, other, "still here")
}

// TestEndpointLimitsAndQueue: at the limit clients wait in turn. A client that has waited too
// long, or finds the queue full, is refused.
func TestEndpointLimitsAndQueue(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a, connections: 1}], queue: {size: 2, timeout: 20s}}]`, a))
	first := client(t, r.At("l"))
	line(t, first)
	var waiting []*net.TCPConn
	for i := range 2 {
		waiting = append(waiting, client(t, r.At("l")))
		r.Until("the client waits", func() bool { return r.Status().Upstreams[0].Pending == int64(i+1) })
	}
	refused(t, r.At("l")) // the queue is full
	echoes(t, first, "first")
	first.Close()
	for _, c := range waiting { // in turn
		line(t, c)
		echoes(t, c, "next")
		c.Close()
	}
	r.Until("no client waits", func() bool {
		u := r.Status().Upstreams[0]
		return u.Pending == 0 && u.Active == 0
	})
}

// TestHungUpClientsGiveWay: a client of a unix socket sends bytes and closes while it is queued.
// It keeps its place as long as no other client needs it, and its bytes are delivered. A client
// that wants an answer takes the place.
func TestHungUpClientsGiveWay(t *testing.T) {
	t.Parallel()

	got := make(chan string, 10)
	address := sockets.Server(t, func(c net.Conn) {
		fmt.Fprintln(c, "hello")
		text, _ := io.ReadAll(c)
		got <- string(text)
	})
	path := filepath.Join(t.TempDir(), "s")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "unix:%s", upstream: u}]
upstreams: [{name: u, health_check: off, endpoints: [{address: %q, connections: 1}], queue: {size: 2, timeout: 1m}}]`, path, address))
	connect := func() net.Conn {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	waits := func(n int64) {
		t.Helper()
		r.Until(fmt.Sprintf("%d clients wait", n), func() bool { return r.Status().Upstreams[0].Pending == n })
	}
	first := connect()
	line(t, first)
	for i := range 2 {
		c := connect()
		waits(int64(i + 1))
		if _, err := fmt.Fprintf(c, "left by %d", i); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	second := connect()
	r.Until("one client gives way", func() bool { return r.Status().Upstreams[0].Reasons["full"] == 1 })
	waits(2)
	first.Close()
	<-got // the first client has sent nothing
	if text := <-got; text != "left by 1" {
		t.Errorf("the endpoint got %q", text)
	}
	line(t, second)
	fmt.Fprint(second, "and more")
	second.Close()
	if text := <-got; text != "and more" {
		t.Errorf("the endpoint got %q", text)
	}
}

// TestQueueTimeout: a client that has waited for the queue timeout is refused.
func TestQueueTimeout(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, connections: 1}], queue: {size: 2, timeout: 100ms}}]`, a))
	first := client(t, r.At("l"))
	line(t, first)
	began := time.Now()
	refused(t, r.At("l"))
	if took := time.Since(began); took < 100*time.Millisecond || took > 4*time.Second {
		t.Errorf("the refusal took %v", took)
	}
	echoes(t, first, "first")
}

// TestListenerLimits: clients beyond the limit wait to be accepted; those beyond the limit of one
// source are refused.
func TestListenerLimits(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", upstream: u, limits: {connections: 2}}
  - {name: m, bind: "127.0.0.1:0", upstream: u, limits: {per_source: 2}}
upstreams: [{name: u, endpoints: [%q]}]`, a))
	var there []*net.TCPConn
	for range 2 {
		c := client(t, r.At("l"))
		line(t, c)
		there = append(there, c)
	}
	late := client(t, r.At("l"))
	_ = late.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := late.Read(make([]byte, 1)); !errors.Is(err, errTimeout) {
		t.Errorf("%v, want it to wait", err)
	}
	_ = late.SetReadDeadline(time.Now().Add(patience))
	there[0].Close()
	line(t, late)
	for range 2 {
		line(t, client(t, r.At("m")))
	}
	refused(t, r.At("m"))
	r.Until("the refusal is counted", func() bool { return r.Refused("m", "per_source") == 1 })
}
