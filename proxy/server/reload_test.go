package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestReloadKeepsWhatIsThere: a reload keeps the sockets whose addresses stay, the sessions, and
// the state of endpoints.
func TestReloadKeepsWhatIsThere(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	text := `
listeners: [{name: %s, bind: "127.0.0.1:%s", upstream: %s}]
upstreams: [{name: u, endpoints: [%q]}, {name: v, endpoints: [%q]}]`
	port := sockets.Port(t)
	r := start(t, fmt.Sprintf(text, "l", port, "u", a, b))
	at := r.At("l")
	old := client(t, at)
	if got := line(t, old); got != "a" {
		t.Fatal(got)
	}
	r.Reload(fmt.Sprintf(text, "renamed", port, "v", a, b))
	if got := whose(t, at); got != "b" {
		t.Errorf("after the reload: %s", got)
	}
	echoes(t, old, "still with a")
	if e := r.Endpoint("u", a); e.Total != 1 || e.Active != 1 {
		t.Errorf("%+v, want its former counts", e)
	}
}

// TestAFailedReloadChangesNothing: an address is taken by another process.
func TestAFailedReloadChangesNothing(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := sockets.Port(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:%s", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, port, a))
	whose(t, r.At("l"))
	before := runtime.NumGoroutine()
	for range 3 {
		err = r.Apply(context.Background(), r.Load(fmt.Sprintf(`
listeners: [{name: new, bind: "127.0.0.1:0", upstream: u}, {name: l, bind: ["127.0.0.1:%s", %q], upstream: u}]
upstreams: [{name: u, endpoints: [%q, "127.0.0.1:9"]}]`, port, taken.Addr(), b)))
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "listener l") {
			t.Fatalf("%v", err)
		}
	}
	if got := whose(t, r.At("l")); got != "a" {
		t.Error(got)
	}
	if n := len(r.Status().Listeners); n != 1 {
		t.Errorf("%d listeners", n)
	}
	if n := len(r.Status().Upstreams[0].Endpoints); n != 1 {
		t.Errorf("%d endpoints", n)
	}
	r.Until("no goroutines are left", func() bool { return runtime.NumGoroutine() <= before+2 })
}

// TestRemovedEndpoints: as on_removed says, the sessions of removed endpoints are kept, reset at
// once, or reset after the drain timeout.
func TestRemovedEndpoints(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	for how, want := range map[string]bool{"keep": true, "reset": false, "drain": false} {
		t.Run(how, func(t *testing.T) {
			text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], on_removed: ` + how + `, drain_timeout: 100ms}]`
			r := start(t, fmt.Sprintf(text, a))
			c := client(t, r.At("l"))
			line(t, c)
			r.Reload(fmt.Sprintf(text, b))
			if got := whose(t, r.At("l")); got != "b" {
				t.Error(got)
			}
			if how != "keep" {
				if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%v", err)
				}
				return
			}
			echoes(t, c, "kept")
			if !want {
				t.Error("unreachable")
			}
		})
	}
}

// TestRemovedListeners: a removed listener stops listening at once. Its sessions continue, until
// their upstream's drain timeout at the latest.
func TestRemovedListeners(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}%s]
upstreams: [{name: u, endpoints: [%q], drain_timeout: 1s}]`
	r := start(t, fmt.Sprintf(text, `, {name: m, bind: "127.0.0.1:0", upstream: u}`, a))
	at := r.At("m")
	c, other := client(t, at), client(t, r.At("l"))
	line(t, c)
	line(t, other)
	r.Reload(fmt.Sprintf(text, "", a))
	echoes(t, c, "still here")
	if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	r.Logs("level=INFO", `msg="sessions cut" listener=m sessions=1`)
	if n, err := net.Dial("tcp", at); err == nil {
		n.Close()
		t.Error("a socket still listens")
	}
	echoes(t, other, "not touched")
}

// TestUnhealthyEndpoints: when the checks of an endpoint fail its sessions are reset if
// on_unhealthy says so, and kept otherwise.
func TestUnhealthyEndpoints(t *testing.T) {
	t.Parallel()

	var well atomic.Bool
	well.Store(true)
	check := sockets.Server(t, func(c net.Conn) {
		_, _ = sockets.ReadLine(c)
		if well.Load() {
			fmt.Fprint(c, "+PONG\r\n")
		}
	})
	_, port, _ := net.SplitHostPort(check)
	a := named(t, "a")
	text := `
listeners: [{name: keep, bind: "127.0.0.1:0", upstream: keep}, {name: reset, bind: "127.0.0.1:0", upstream: reset}]
upstreams:`
	for _, how := range []string{"keep", "reset"} {
		text += fmt.Sprintf(`
  - {name: %s, endpoints: [{address: %q, name: a}], on_unhealthy: %s, health_check: {port: %s, interval: 20ms, timeout: 2s, fast_interval: 20ms, fall: 2, send: "PING\r\n", expect: "+PONG"}}`, how, a, how, port)
	}
	r := start(t, text)
	kept, reset := client(t, r.At("keep")), client(t, r.At("reset"))
	line(t, kept)
	line(t, reset)
	well.Store(false)
	if err := gone(t, reset); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	r.Until("both endpoints are down", func() bool {
		return r.Endpoint("keep", "a").State == "down" && r.Endpoint("reset", "a").State == "down"
	})
	echoes(t, kept, "kept")
	if got := whose(t, r.At("keep")); got != "a" { // the endpoint has not answered at all, not even with a refusal
		t.Errorf("as a last resort: %q", got)
	}
	well.Store(true)
	r.Until("the endpoint is up again", func() bool { return r.Endpoint("keep", "a").State == "up" })
	if got := whose(t, r.At("keep")); got != "a" {
		t.Error(got)
	}
}

// TestReloadsUnderLoad: no connection is closed, none is refused, and no resource grows.
func TestReloadsUnderLoad(t *testing.T) {
	const idle, listeners, reloads = 300, 20, 100
	a, b := named(t, "a"), named(t, "b")
	port := sockets.Port(t)
	text := func(i int) string {
		var s strings.Builder
		fmt.Fprintf(&s, "upstreams: [{name: u, endpoints: [%q, %q]}, {name: v%d, endpoints: [%q]}]\nlisteners:\n", a, b, i%3, a)
		fmt.Fprintf(&s, "  - {name: l, bind: \"127.0.0.1:%s\", upstream: u, timeouts: {idle: %ds}}\n", port, 1000+i)
		for n := range listeners {
			fmt.Fprintf(&s, "  - {name: l%d, bind: \"127.0.0.1:0\", upstream: v%d}\n", (n+i)%(listeners*3/2), i%3)
		}
		return s.String()
	}
	r := start(t, text(0))
	at := r.At("l")
	var conns []*net.TCPConn
	for range idle {
		c := client(t, at)
		line(t, c)
		conns = append(conns, c)
	}
	stop, failed := make(chan struct{}), make(chan error, 1)
	served := 0
	go func() {
		defer close(failed)
		for {
			select {
			case <-stop:
				return
			default:
			}
			c, err := net.DialTimeout("tcp", at, patience)
			if err == nil {
				_ = c.SetDeadline(time.Now().Add(patience))
				_, err = sockets.ReadLine(c)
				c.Close()
			}
			if err != nil {
				failed <- err
				return
			}
			served++
		}
	}()
	settle := func() (int, int) {
		runtime.GC()
		return runtime.NumGoroutine(), descriptors(t)
	}
	for i := 1; i <= 10; i++ {
		r.Reload(text(i))
	}
	goroutines, fds := settle()
	for i := 11; i <= reloads; i++ {
		r.Reload(text(i))
	}
	r.Until("goroutines and descriptors are as before", func() bool {
		g, f := settle()
		return g <= goroutines+10 && f <= fds+20
	})
	close(stop)
	if err := <-failed; err != nil {
		t.Errorf("after %d clients one was not served: %v", served, err)
	}
	for i, c := range conns {
		echoes(t, c, fmt.Sprint(i))
	}
	if s := r.Summary(); s.Connections.Refused != 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// TestSplit: the percentages of a canary hold, also when they change at run time.
func TestSplit(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	text := `
listeners: [{name: l, bind: "127.0.0.1:0", routes: [{split: [{upstream: a, percent: %d}, {upstream: b, percent: %d}]}]}]
upstreams: [{name: a, endpoints: [%q]}, {name: b, endpoints: [%q]}]`
	r := start(t, fmt.Sprintf(text, 90, 10, a, b))
	count := func() (n int) {
		for range 20 {
			if whose(t, r.At("l")) == "b" {
				n++
			}
		}
		return n
	}
	if n := count(); n < 1 || n > 3 {
		t.Errorf("%d of 20, want 2", n)
	}
	if err := r.SetSplit("l", 0, map[string]float64{"a": 50, "b": 50}, "test"); err != nil {
		t.Fatal(err)
	}
	if n := count(); n < 9 || n > 11 {
		t.Errorf("%d of 20, want 10", n)
	}
	r.Reload(fmt.Sprintf(text, 90, 10, a, b))
	if n := count(); n < 9 || n > 11 {
		t.Errorf("%d of 20 after a reload of the same file, want 10", n)
	}
	r.Reload(fmt.Sprintf(text, 0, 100, a, b))
	if n := count(); n != 20 {
		t.Errorf("%d of 20, want all", n)
	}
}

// TestDrain: established sessions continue, until the drain timeout at the latest.
func TestDrain(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, a))
	at := r.At("l")
	one, two := client(t, at), client(t, at)
	line(t, one)
	line(t, two)
	r.Stop()
	r.Until("no socket listens", func() bool {
		c, err := net.Dial("tcp", at)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	echoes(t, one, "draining")
	_ = one.CloseWrite()
	if rest, err := io.ReadAll(one); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if err := gone(t, two); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset when the drain timeout is over", err)
	}
	r.End()
}

// TestReplacedEndpointsRefuseNobody: while all endpoints are replaced each client gets an old one
// or a new one.
func TestReplacedEndpointsRefuseNobody(t *testing.T) {
	t.Parallel()

	names := []string{named(t, "a"), named(t, "b")}
	text := `
listeners: [{name: l, bind: "127.0.0.1:%s", upstream: u}]
upstreams: [{name: u, endpoints: [%q], retry: {attempts: 0}, on_removed: keep}]`
	port := sockets.Port(t)
	r := start(t, fmt.Sprintf(text, port, names[0]))
	stop := hammer(t, r.At("l"), 4)
	for i := range 300 {
		r.Reload(fmt.Sprintf(text, port, names[(i+1)%2]))
	}
	stop()
}

// TestSplitToAHundredth: an operator can set percentages as fine as those in the file.
func TestSplitToAHundredth(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", routes: [{split: [{upstream: a, percent: 99.75}, {upstream: b, percent: 0.25}]}]}]
upstreams: [{name: a, endpoints: [%q]}, {name: b, endpoints: [%[1]q]}]`, named(t, "a")))
	told := func(a, b float64) {
		t.Helper()
		to := r.Status().Listeners[0].Routes[0].To
		if to["a"] != a || to["b"] != b {
			t.Errorf("the status has %v, want %v and %v", to, a, b)
		}
	}
	told(99.75, 0.25)
	if err := r.SetSplit("l", 0, map[string]float64{"a": 99.5, "b": 0.5}, "test"); err != nil {
		t.Fatal(err)
	}
	told(99.5, 0.5)
}
