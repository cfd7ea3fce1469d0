package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/server"
)

// TestOutageByHand: the log of an outage names the endpoints that were removed by hand, beside drained ones.
func TestOutageByHand(t *testing.T) {
	t.Parallel()

	r := start(t, `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, discover: {file: {path: eps.yaml}}, health_check: off}]`, "eps.yaml", `[{name: a, address: "127.0.0.1:1"}, {name: b, address: "127.0.0.1:2"}]`)
	r.change(t, admin.EndpointRemove, "b", 0)
	r.change(t, admin.EndpointDrain, "a", 0)
	r.Logs(`msg="an upstream has no usable endpoint" upstream=u cause="a: drained; b: removed by hand"`)
	r.change(t, admin.EndpointReady, "a", 0)
	r.Logs(`msg="an upstream has a usable endpoint again"`)
	r.change(t, admin.EndpointRemove, "a", 0)
	r.Logs(`msg="an upstream has no usable endpoint" upstream=u cause="b: removed by hand; a: removed by hand"`)
}

// TestOutageIsLogged: the log of an outage has the reason of each endpoint and, at its end, the
// number of clients it cost. Refused clients are summed up by reason.
func TestOutageIsLogged(t *testing.T) {
	t.Parallel()
	role := newRole(t, false)
	a := named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [{address: %q, name: a}, {address: %[1]q, name: b}, {address: %[1]q, name: c, weight: 0}, {address: %q, name: e}]
    outlier_detection: {consecutive_failures: 1, base_ejection_time: 1h, max_ejection_time: 1h}
    retry: {attempts: 0}
    queue: {hold: 0s}
    circuit_breaker: off
    health_check: {type: http, port: %s, interval: 20ms, fast_interval: 10ms, rise: 1, fall: 1, http: {path: /primary, host: db.test}}`,
		a, sockets.Refusing(t), role.port))
	must(t, r.DrainEndpoint("u", "b", true, "test"))
	r.Until("e is ejected", func() bool {
		if r.Endpoint("u", "e").State == "ejected" {
			return true
		}
		if c, err := net.Dial("tcp", r.At("l")); err == nil { // or the client is reset at once
			c.Close()
		}
		return false
	})
	role.well.Store(false)
	r.Logs("level=WARN", `msg="an upstream has no usable endpoint"`, "upstream=u", "a: down: ", "; b: drained; c: weight 0; e: ")
	for range 200 {
		refused(t, r.At("l"))
	}
	role.well.Store(true)
	r.Logs("level=INFO", `msg="an upstream has a usable endpoint again"`, "upstream=u")
	refusals := regexp.MustCompile(`msg="an upstream has a usable endpoint again" upstream=u duration=[0-9.]+m?s refused=(\d+) held=0 fallbacks=0`)
	if found := refusals.FindStringSubmatch(r.Log.String()); found == nil || len(found[1]) != 3 || found[1] < "200" {
		t.Errorf("the end of the outage says %q", found)
	}
	must(t, r.End()) // the rest of the minute is logged
	r.Logs(`level=WARN msg="clients refused" upstream=u times=`, `reasons="unavailable `)
	r.Logs(`level=WARN msg="clients refused" listener=l times=`, `reasons="upstream `)
}

// TestRefusalsByRuleAreNoWarning.
func TestRefusalsByRuleAreNoWarning(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, deny: ["127.0.0.0/8"]}]
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a")))
	for range 7 {
		refused(t, r.At("l"))
	}
	must(t, r.End())
	r.Logs("level=INFO", `msg="clients refused"`, "listener=l", `reasons="address `)
}

// TestLimitsInStatus: the status has the counts and their limits, the clients that wait to be
// accepted, and that no endpoint has room.
func TestLimitsInStatus(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "s")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: ["127.0.0.1:0", "unix:%s"], upstream: u, limits: {connections: 1}, socket: {backlog: 5}}
  - {name: m, bind: "127.0.0.1:0", upstream: u}
upstreams: [{name: u, queue: {size: 5, timeout: 1h}, endpoints: [{address: %q, name: a, connections: 1}]}]`, path, named(t, "a")))
	if u := r.Status().Upstreams[0]; u.Outage != nil {
		t.Errorf("at first: %+v", u.Outage)
	}
	c := client(t, r.At("l"))
	line(t, c)
	for range 3 {
		client(t, r.At("l"))
	}
	for range 2 {
		dialUnix(t, path)
	}
	client(t, r.At("m"))
	r.Until("the clients wait", func() bool {
		q := r.Listener("l").Queues
		return q[0].Length == 3 && q[1].Length == 2 && r.Status().Upstreams[0].Pending == 1
	})
	l, e, s := r.Listener("l"), r.Endpoint("u", "a"), r.Status()
	if want := (admin.Queue{Address: l.Addresses[0], Known: true, Length: 3, Most: 5, DroppedKnown: true}); l.Queues[0] != want {
		t.Errorf("%+v, want %+v", l.Queues[0], want)
	}
	if want := (admin.Queue{Address: "unix:" + path, Known: true, Length: 2, Most: 5}); l.Queues[1] != want {
		t.Errorf("%+v, want %+v", l.Queues[1], want)
	}
	if c := l.Connections; c.Active != 1 || c.Most != 1 || e.Active != 1 || e.Max != 1 || s.Connections.Most != 5000 || r.Listener("m").Connections.Most != 0 {
		t.Errorf("%+v, %+v, %+v", c, e, s.Connections)
	}
	if o := s.Upstreams[0].Outage; o == nil || !o.Full || o.Refused != 0 || o.Since.IsZero() {
		t.Errorf("%+v, want the endpoint full", o)
	}
	c.Close()
	r.Until("one of those that wait is accepted", func() bool { // at either address
		q := r.Listener("l").Queues
		return q[0].Length+q[1].Length < 5
	})
}

// TestOverflowsAreCounted: overflows of each accept queue are counted and logged. A listening socket's drops are no overflows if the
// network namespace has counted none. They are unknown if that count cannot be read.
func TestOverflowsAreCounted(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, limits: {connections: 1}, socket: {backlog: 1}}]
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a")))
	var all atomic.Uint64
	all.Store(7)
	r.Server.ReadOverflows(func() (uint64, error) { return all.Load(), nil })
	line(t, client(t, r.At("l")))
	drops := int64(0)
	more := func() bool {
		if c, err := net.DialTimeout("tcp", r.At("l"), 10*time.Millisecond); err == nil {
			defer c.Close()
		}
		return r.Server.SocketDrops() >= drops+3
	}
	r.Until("the socket has dropped some", more)
	if q := r.Listener("l").Queues[0]; !q.DroppedKnown || q.Dropped != 0 {
		t.Errorf("%+v, want no overflow: the namespace has had none", q)
	}
	all.Add(2)
	drops = r.Server.SocketDrops()
	r.Until("the socket drops more", more)
	dropped := func() int64 { return r.Listener("l").Queues[0].Dropped } // a look between the two has one of them
	r.Until("one or two drops were overflows", func() bool { return dropped() > 0 })
	if n := dropped(); n > 2 {
		t.Errorf("%d drops were overflows, the namespace has had 2", n)
	}
	r.Logs("level=WARN", `msg="the accept queue overflowed`, "listener=l", "times=")
	r.Server.ReadOverflows(func() (uint64, error) { return 0, os.ErrPermission })
	r.Until("the overflows are unknown", func() bool { return !r.Listener("l").Queues[0].DroppedKnown })
}

// TestStalledLoopIsLogged: a stalled loop is logged once, with its end. A loop that is late by
// less than a second is not.
func TestStalledLoopIsLogged(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		var text software.Output
		var took atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			server.WatchStalls(ctx, slog.New(slog.NewTextHandler(&text, nil)), func(ctx context.Context) error {
				select {
				case <-time.After(time.Duration(took.Swap(0))):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		}()
		pass := func(turn time.Duration) string {
			took.Store(int64(turn))
			time.Sleep(5500 * time.Millisecond)
			synctest.Wait()
			return text.String()
		}
		if log := pass(900 * time.Millisecond); log != "" {
			t.Errorf("for a loop that is late by less than a second: %s", log)
		}
		log := pass(3 * time.Second)
		if strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, "the event loop runs again") || !strings.Contains(log, "duration=3s") {
			t.Errorf("for a loop that took 3 s: %s", log)
		}
		took.Store(int64(time.Hour))
		time.Sleep(2 * time.Second)
		stop()
		<-done
	})
}

// TestCountersBeginAnew: a listener, an upstream and an endpoint that come back after their last session have no counters of the
// time before.
func TestCountersBeginAnew(t *testing.T) {
	t.Parallel()

	const without = `
listeners: [{name: other, bind: "127.0.0.1:0", upstream: v}]
upstreams: [{name: v, endpoints: ["127.0.0.1:1"], health_check: off}]
`
	with := fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off, on_removed: keep}]
`, sockets.Server(t, sockets.Echo))
	r := start(t, with)
	session := client(t, r.At("l"))
	echoes(t, session, "x")
	r.Reload(without)
	session.Close()
	r.Until("the session has ended", func() bool {
		s := r.Status()
		return s.Connections.Active == 0 && len(s.RemovedSessions) == 0
	})
	r.Reload(with)
	u := r.Status().Upstreams[0]
	if l, e := r.Listener("l"), &u.Endpoints[0]; l.Connections.Accepted != 0 || u.Bytes != (admin.Bytes{}) || e.Total != 0 || e.Bytes != (admin.Bytes{}) {
		t.Errorf("the listener has accepted %d clients, the upstream has %+v, the endpoint %d sessions and %+v", l.Connections.Accepted, u.Bytes, e.Total, e.Bytes)
	}
}

// TestCountersOfPartsThatComeBack: a listener and an upstream are removed while they have a session, and come back. What they
// counted before is not counted for the last minute again.
func TestCountersOfPartsThatComeBack(t *testing.T) {
	t.Parallel()

	const without = `
listeners: [{name: other, bind: "127.0.0.1:0", upstream: v}]
upstreams: [{name: v, endpoints: ["127.0.0.1:1"], health_check: off}]
`
	with := fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", routes: [{match: {source: [127.0.0.1]}, upstream: u, filter: {wasm: f.wasm, preread: 16, on_error: allow}}]}
upstreams: [{name: u, endpoints: [{address: %q, connections: 1}], queue: {size: 0}, health_check: off}]
`, speaker(t, "a"))
	r := start(t, with, "f.wasm", filterModule("1"))
	fails := func() { // the filter, and the search for an endpoint
		t.Helper()
		if by := answeredBy(t, r.At("l"), "t"); by != "" {
			t.Errorf("a client is served by %q", by)
		}
		r.Until("the client is refused", func() bool { return r.Summary().Connections.Active == 1 })
	}
	session := client(t, r.At("l"))
	sends(t, session, "a")
	hears(t, session, "a")
	for range 3 {
		fails()
	}
	r.Observe(0)
	r.Reload(without)
	r.Observe(2 * time.Minute)
	r.Reload(with)
	fails()
	r.Observe(2 * time.Minute)
	u := r.Status().Upstreams[0]
	if by := u.LastMinute.RefusedBy; u.LastMinute.Refused != 1 || len(by) != 1 || by["full"] != 1 {
		t.Errorf("the upstream has refused %d clients in the last minute, %v", u.LastMinute.Refused, by)
	}
	if n := r.Listener("l").Filters[0].FailedLastMinute; n != 1 {
		t.Errorf("the filter has failed %d times in the last minute, want once", n)
	}
}
