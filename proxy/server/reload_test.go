package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
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
	servedBy(t, at, "b")
	echoes(t, old, "still with a")
	if e := r.Endpoint("u", a); e.Total != 1 || e.Active != 1 {
		t.Errorf("%+v, want its former counts", e)
	}
}

// TestAFailedReloadChangesNothing: an address is taken by another process. Neither endpoints that were prepared nor a source that was asked are
// in force, they are forgotten, and do not count for max_ejected.
func TestAFailedReloadChangesNothing(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	port := sockets.Port(t)
	text := func(further, endpoints string) string {
		return fmt.Sprintf("listeners: [{name: l, bind: [\"127.0.0.1:%s\"%s], upstream: u}]\nupstreams: [{name: u, health_check: off, %s}]", port, further, endpoints)
	}
	one, three := fmt.Sprintf("endpoints: [%q]", a), fmt.Sprintf("endpoints: [%q, %q, \"127.0.0.1:9\"]", a, b)
	r := start(t, text("", one), "b.yaml", fmt.Sprintf("[%q]", b))
	whose(t, r.At("l"))
	held, before := r.Held(), runtime.NumGoroutine()
	for range 3 {
		for _, upstream := range []string{three, "discover: {file: {path: b.yaml}}"} {
			cfg := r.Load(strings.Replace(text(fmt.Sprintf(", %q", taken.Addr()), upstream), "[{name: l", `[{name: new, bind: "127.0.0.1:0", upstream: u}, {name: l`, 1))
			if err := r.Apply(context.Background(), cfg); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "listener l") {
				t.Fatalf("%v", err)
			}
		}
	}
	servedBy(t, r.At("l"), "a")
	if n := len(r.Status().Listeners); n != 1 || !held.Equal(r.Held()) {
		t.Errorf("the configuration in force has changed: %d listeners", n)
	}
	if !r.Knows("u", a) || r.Knows("u", b) || r.Judged("u") != 1 || len(r.Status().Upstreams[0].Endpoints) != 1 {
		t.Errorf("the upstream knows endpoints that never came into force, or lacks those in force: %d are judged", r.Judged("u"))
	}
	r.Until("no goroutines are left", func() bool { return runtime.NumGoroutine() <= before+2 })
	for _, c := range []struct {
		endpoints string
		judged    int
	}{{three, 3}, {one, 1}} {
		if r.Reload(text("", c.endpoints)); r.Judged("u") != c.judged {
			t.Errorf("%d endpoints are judged, want %d", r.Judged("u"), c.judged)
		}
	}
}

// TestRemovedEndpoints: as on_removed says, the sessions of removed endpoints are kept, reset at
// once, or reset after the drain timeout.
func TestRemovedEndpoints(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	for _, how := range []string{"keep", "reset", "drain"} {
		t.Run(how, func(t *testing.T) {
			text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], on_removed: ` + how + `, drain_timeout: 100ms}]`
			r := start(t, fmt.Sprintf(text, a))
			c := client(t, r.At("l"))
			line(t, c)
			_, before := r.Kept()
			r.Reload(fmt.Sprintf(text, b))
			servedBy(t, r.At("l"), "b")
			if how == "keep" {
				echoes(t, c, "kept")
				if _, timers := r.Kept(); timers != before {
					t.Errorf("%d timers, and %d before: its session is to be cut", timers, before)
				}
			} else {
				isReset(t, c)
			}
		})
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
	must(t, r.SetSplit("l", 0, map[string]float64{"a": 50, "b": 50}, "test"))
	r.Logs("by=test", "what=split", "listener=l", "route=0", "from=a:90,b:10", "to=a:50,b:50")
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

// TestRulesOfBothWhileSwapped: a reload names an endpoint that serves, and rules that a waiting client does not
// meet. From the moment that the endpoint gets clients, that one gets none of it, nor does one that comes in
// then, although the sockets are still those of the configuration before. A client that meets both is served.
func TestRulesOfBothWhileSwapped(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		before, after string // the listeners
		unix          bool   // the client that is refused comes by the unix socket
	}{
		"denied":                {`{name: l, bind: "127.0.0.1:PORT"}`, `{name: l, bind: "127.0.0.1:PORT", deny: [127.0.1.9]}`, false},
		"not allowed":           {`{name: l, bind: "127.0.0.1:PORT"}`, `{name: l, bind: "127.0.0.1:PORT", allow: [127.0.1.8]}`, false},
		"denied, wider":         {`{name: l, bind: "127.0.0.1:PORT"}`, `{name: l, bind: ":PORT", deny: [127.0.1.9]}`, false},
		"denied, narrower":      {`{name: l, bind: ":PORT"}`, `{name: l, bind: "127.0.0.1:PORT", deny: [127.0.1.9]}`, false},
		"denied, renamed":       {`{name: l, bind: "127.0.0.1:PORT"}`, `{name: m, bind: "127.0.0.1:PORT", deny: [127.0.1.9]}`, false},
		"denied, wider renamed": {`{name: l, bind: "127.0.0.1:PORT"}`, `{name: m, bind: "0.0.0.0:PORT", deny: [127.0.1.9]}`, false},
		"denied by one of two": {
			`{name: l, bind: "0.0.0.0:PORT"}`,
			`{name: m, bind: "127.0.0.1:PORT", deny: [127.0.1.9]}, {name: l, bind: "127.0.0.2:PORT"}`, false,
		},
		"denied, gone and elsewhere": {`{name: l, bind: "127.0.0.1:PORT"}`, `{name: l, bind: "127.0.0.1:0", deny: [127.0.1.9]}`, false},
		"a header is asked for": {
			`{name: l, bind: "127.0.0.1:PORT"}`, `{name: l, bind: ":PORT", accept_proxy: {from: [127.0.1.9]}}`, false,
		},
		"unix": {`{name: l, bind: ["127.0.0.1:PORT", "unix:SOCKET"]}`, `{name: l, bind: [":PORT", "unix:SOCKET"], deny: [unix]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			port, socket := sockets.Port(t), filepath.Join(t.TempDir(), "s")
			dead, alive := sockets.Port(t), named(t, "served")
			text := func(listeners, endpoint string) string {
				listeners = strings.NewReplacer("PORT", port, "SOCKET", socket, "}, {", ", upstream: u}, {").Replace(listeners)
				listeners = strings.TrimSuffix(listeners, "}") + ", upstream: u}"
				return fmt.Sprintf("listeners: [%s]\nupstreams: [{name: u, endpoints: [%q], health_check: off, queue: {hold: 1m}}]", listeners, endpoint)
			}
			r := start(t, text(test.before, "127.0.0.1:"+dead))
			comes := func() (net.Conn, error) {
				if test.unix {
					return net.Dial("unix", socket)
				}
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, 9)}, Timeout: condition.Patience}
				return d.Dial("tcp", "127.0.0.1:"+port)
			}
			denied, err := comes()
			must(t, err)
			defer denied.Close()
			allowed := from(t, 8, "127.0.0.1:"+port)
			r.Until("both are held", func() bool { return r.Status().Upstreams[0].Pending == 2 })
			refused := func(c net.Conn) {
				t.Helper()
				_ = c.SetDeadline(time.Now().Add(condition.Patience))
				if err := gone(t, c); test.unix == errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("its session ends with %v", err)
				}
			}
			var late net.Conn
			var lateErr error
			err = r.ApplyWith(context.Background(), r.Load(text(test.after, alive)), func() {
				refused(denied)
				late, lateErr = comes()
				hears(t, allowed, "served")
			})
			must(t, err)
			if lateErr == nil { // else it was reset at once
				refused(late)
				late.Close()
			} else if !errors.Is(lateErr, syscall.ECONNRESET) {
				t.Error(lateErr)
			}
			if got := servedAt(t, port, name); got != "served" {
				t.Errorf("a client afterwards gets %q", got)
			}
		})
	}
}

// servedAt returns the line that a new client gets, or "served" where the listener has left the port.
func servedAt(t *testing.T, port, name string) string {
	if strings.Contains(name, "elsewhere") {
		return "served"
	}
	return line(t, from(t, 8, "127.0.0.1:"+port))
}

// TestRulesOfNeitherWhileSwapped: a reload gives an address to another listener, and the one that had it denies a
// client from then on. In the moment in which that one is in force, and the socket is its own still, a client that comes
// in is served: it meets the rules of the listener that had the address, and of the one that is about to have it.
func TestRulesOfNeitherWhileSwapped(t *testing.T) {
	t.Parallel()

	const deny = ", deny: [127.0.1.9]"
	for name, test := range map[string]struct{ before, after string }{ // the listeners
		"moved": {
			`{name: l, bind: "127.0.0.1:PORT", upstream: u}`,
			`{name: l, bind: "127.0.0.1:0", upstream: u` + deny + `}, {name: new, bind: "127.0.0.1:PORT", upstream: u}`,
		},
		"moved to one that denied others": {
			`{name: l, bind: "127.0.0.1:PORT", upstream: u}, {name: new, bind: "127.0.0.1:OTHER", upstream: u` + deny + `}`,
			`{name: new, bind: "127.0.0.1:PORT", upstream: u}, {name: l, bind: "127.0.0.1:OTHER", upstream: u` + deny + `}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			port, other, alive := sockets.Port(t), sockets.Port(t), named(t, "served")
			text := func(listeners string) string {
				return fmt.Sprintf("listeners: [%s]\nupstreams: [{name: u, endpoints: [%q], health_check: off}]",
					strings.NewReplacer("PORT", port, "OTHER", other).Replace(listeners), alive)
			}
			r := start(t, text(test.before))
			served := func() {
				t.Helper()
				c := from(t, 9, "127.0.0.1:"+port)
				defer c.Close()
				hears(t, c, "served")
			}
			must(t, r.ApplyCommitted(t.Context(), r.Load(text(test.after)), served))
			served()
		})
	}
}
