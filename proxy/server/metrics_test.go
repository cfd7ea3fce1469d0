package server_test

import (
	"fmt"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/testutil/collector"
)

// sampled returns a sample.
func (r *rig) sampled() *metrics.Sample {
	m := new(metrics.Sample)
	r.Metrics(m)
	return m
}

// TestMetricsOfSessions: a session is counted for its listener, its upstream and its endpoint alike, with the
// reason of its end, and its bytes while it runs.
func TestMetricsOfSessions(t *testing.T) {
	t.Parallel()

	r := forwarding(t, named(t, "a"), nil)
	c := client(t, r.At("l"))
	line(t, c)
	echoes(t, c, "hello\n")
	m := r.sampled()
	l, u, e := &m.Listeners[0], &m.Upstreams[0], &m.Endpoints[0]
	if l.Connections.Accepted != 1 || l.Connections.Active != 1 || u.Active != 1 || e.Active != 1 || e.Total != 1 || l.State != admin.Serving || e.State != admin.Up || u.States[admin.Up] != 1 {
		t.Errorf("while it runs: %+v %+v %+v", l, u, e)
	}
	for name, bytes := range map[string]metrics.Bytes{"listener": l.Bytes, "upstream": u.Bytes, "endpoint": e.Bytes} {
		if bytes.ClientToEndpoint.All() != 6 || bytes.EndpointToClient.All() != 8 {
			t.Errorf("%s: %+v", name, bytes)
		}
	}
	for name, counts := range map[string]tally.Counts{"listener": l.Tally, "upstream": u.Tally, "endpoint": e.Tally} {
		if counts.Connects.Count() != 1 || counts.Connects.Sum <= 0 || counts.Sessions.Count() != 0 {
			t.Errorf("%s: %+v", name, counts)
		}
	}
	c.Close()
	r.Until("the session has ended", func() bool { return r.Summary().Connections.Active == 0 })
	m = r.sampled()
	for name, counts := range map[string]tally.Counts{"listener": m.Listeners[0].Tally, "upstream": m.Upstreams[0].Tally, "endpoint": m.Endpoints[0].Tally} {
		if counts.Sessions.Count() != 1 || counts.Sessions.Sum <= 0 || counts.Closes[tally.ClientClosed] != 1 {
			t.Errorf("%s: %+v", name, counts)
		}
	}
	if queues := m.Listeners[0].Queues; len(queues) != 1 || !queues[0].Known {
		t.Errorf("queues: %+v", queues)
	}
}

// TestMetricsOfEnds: the reason of an end names the side that has begun it.
func TestMetricsOfEnds(t *testing.T) {
	t.Parallel()

	reset := func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }
	closes := sockets.Server(t, func(c net.Conn) { fmt.Fprintln(c, "hello") })
	resets := sockets.Server(t, func(c net.Conn) {
		fmt.Fprintln(c, "hello")
		_, _ = c.Read(make([]byte, 1))
		reset(c)
	})
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: closes, bind: "127.0.0.1:0", upstream: closes}
  - {name: resets, bind: "127.0.0.1:0", upstream: resets}
  - {name: idle, bind: "127.0.0.1:0", upstream: stays, timeouts: {idle: 100ms}}
  - {name: lives, bind: "127.0.0.1:0", upstream: stays, timeouts: {lifetime: 100ms}}
upstreams:
  - {name: closes, endpoints: [%q], health_check: off}
  - {name: resets, endpoints: [%q], health_check: off}
  - {name: stays, endpoints: [%q], health_check: off}`, closes, resets, named(t, "stays")))
	for _, one := range []struct {
		listener string
		want     tally.Close
		act      func(c *net.TCPConn)
	}{
		{"closes", tally.EndpointClosed, func(*net.TCPConn) {}},
		{"resets", tally.EndpointReset, func(c *net.TCPConn) { fmt.Fprint(c, "x") }},
		{"lives", tally.Lifetime, func(*net.TCPConn) {}},
		{"idle", tally.Idle, func(*net.TCPConn) {}},
	} {
		c := client(t, r.At(one.listener))
		_, _ = sockets.ReadLine(c) // which an end by a time limit may overtake
		one.act(c)
		_, _ = io.Copy(io.Discard, c)
		c.Close()
		r.Until(one.listener+" has the end counted", func() bool { return closesOf(r, one.listener)[one.want] == 1 })
	}
	c := client(t, r.At("closes"))
	line(t, c)
	r.Until("the endpoint's end of file is there", func() bool { _, err := c.Read(make([]byte, 1)); return err == io.EOF })
	c.Close()
	r.Until("it is counted", func() bool { return closesOf(r, "closes")[tally.EndpointClosed] == 2 })
	long := client(t, r.At("lives"))
	_, _ = sockets.ReadLine(long)
	reset(long)
	long.Close()
	r.Until("the client's reset is counted", func() bool {
		n := closesOf(r, "lives")
		return n[tally.ClientReset]+n[tally.Lifetime] == 2 && n[tally.Other] == 0
	})
}

func closesOf(r *rig, listener string) (n [tally.Closes]int64) {
	for _, l := range r.sampled().Listeners {
		if l.Name == listener {
			return l.Tally.Closes
		}
	}
	return n
}

// TestMetricsOfStates: transitions, ejections, breakers, and refusals, which are there before they occur.
func TestMetricsOfStates(t *testing.T) {
	t.Parallel()

	bad := sockets.Server(t, func(net.Conn) {})
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, limits: {connections: 5}}]
upstreams:
  - name: u
    endpoints: [%q, {address: %q, name: gone}]
    health_check: {interval: 50ms, fast_interval: 50ms, fall: 1}
    retry: {attempts: 0}`, bad, sockets.Refusing(t)))
	r.Until("the check has failed", func() bool { return r.sampled().Upstreams[0].States[admin.Down] == 1 })
	m := r.sampled()
	gone := m.Endpoints[1]
	if gone.Name != "gone" || gone.Transitions != 1 || gone.State != admin.Down || m.Endpoints[0].Transitions != 0 {
		t.Errorf("%+v", m.Endpoints)
	}
	if !slices.Contains(m.Listeners[0].Refused, tally.Count{Of: "address"}) || m.Listeners[0].Connections.Most != 5 {
		t.Errorf("%+v", m.Listeners[0])
	}
	if !slices.Contains(m.Upstreams[0].Refused, tally.Count{Of: "full"}) {
		t.Errorf("%+v", m.Upstreams[0])
	}
	if !slices.Contains(m.Process.Refusals, tally.Count{Of: "upstream"}) {
		t.Errorf("%+v", m.Process)
	}
	must(t, r.DrainEndpoint("u", "gone", true, "test"))
	if got := r.sampled().Endpoints[1].State; got != admin.Draining {
		t.Errorf("state %s", got)
	}
}

// TestMetricsOfReports: lines of the session log and spans are counted, those that were dropped with their reason.
func TestMetricsOfReports(t *testing.T) {
	t.Parallel()

	to := collector.Start(t, "grpc", nil)
	r := start(t, "session_log: {to: sessions.log, per_second: 1}\n"+tracedConfig(to, sockets.Server(t, sockets.Echo), ", max_queue_size: 1, max_export_batch_size: 1"))
	if m := r.sampled(); m.Process.SessionLog.Lines != 0 || m.Process.Traces.Sampled != 0 {
		t.Errorf("before: %+v, %+v", m.Process.SessionLog, m.Process.Traces)
	}
	talked(t, r.At("a"), 20)
	r.Until("lines and spans are counted", func() bool {
		l, s := r.sampled().Process.SessionLog, r.sampled().Process.Traces
		return l.Lines+l.Dropped["rate"] == 20 && s.Exported+s.Dropped["queue_full"] == 20
	})
	if l := r.sampled().Process.SessionLog; l.Dropped["rate"] == 0 || l.Lines == 0 {
		t.Errorf("%+v", l)
	}
}

// TestRouted: the metrics name the upstreams to which no listener sends clients: 0 % of a split is none, until an operator gives it some.
func TestRouted(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners:
  - name: l
    bind: "127.0.0.1:0"
    upstream: other
    mirror: {upstream: shadow}
    routes: [{match: {port: 1}, split: [{upstream: blue, percent: 100}, {upstream: green, percent: 0}]}]
upstreams:
  - {name: other, endpoints: [%[1]q]}
  - {name: shadow, endpoints: [%[1]q]}
  - {name: blue, endpoints: [%[1]q], fallback: {upstream: last}}
  - {name: last, endpoints: [%[1]q]}
  - {name: green, endpoints: [%[1]q], fallback: {upstream: later}}
  - {name: later, endpoints: [%[1]q]}`, named(t, "a")))
	routed := func() (list []string) {
		for _, u := range r.sampled().Upstreams {
			if u.Routed {
				list = append(list, u.Name)
			}
		}
		return list
	}
	if got := fmt.Sprint(routed()); got != "[blue last other shadow]" {
		t.Error(got)
	}
	must(t, r.SetSplit("l", 0, map[string]float64{"blue": 0, "green": 100}, "test"))
	if got := fmt.Sprint(routed()); got != "[green later other shadow]" {
		t.Error(got)
	}
}

// TestFallbackServes: the metrics say of an upstream with a fallback whether that fallback, or the fallback's own, takes clients,
// or responds.
func TestFallbackServes(t *testing.T) {
	t.Parallel()

	dead, well := sockets.Refusing(t), named(t, "a")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: far}]
upstreams:
  - {name: far, endpoints: [%q], fallback: {upstream: near}}
  - {name: near, endpoints: [%[1]q], fallback: {upstream: last}}
  - {name: last, endpoints: [%[2]q]}
  - {name: vain, endpoints: [%[2]q], fallback: {upstream: dead}}
  - {name: page, endpoints: [%[1]q], fallback: {respond: sorry.txt}}
  - {name: later, endpoints: [%[1]q], fallback: {upstream: page}}
  - {name: dead, endpoints: [%[1]q], health_check: {type: tcp, interval: 20ms, fall: 1}}`, dead, well), "sorry.txt", "sorry\n")
	r.Until("the fallbacks are known to serve or not", func() bool {
		got := make(map[string]string)
		for _, u := range r.sampled().Upstreams {
			got[u.Name] = "none"
			if u.FallbackServes != nil {
				got[u.Name] = fmt.Sprint(*u.FallbackServes)
			}
		}
		return fmt.Sprint(got) == "map[dead:none far:true last:none later:true near:true page:true vain:false]"
	})
}
