package server_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/server"
)

// many returns n clients of an address that are served.
func many(t *testing.T, n int, address string) []*net.TCPConn {
	t.Helper()
	conns := make([]*net.TCPConn, n)
	for i := range conns {
		conns[i] = client(t, address)
		line(t, conns[i])
	}
	return conns
}

// alive returns how many of some connections still echo. Each of the others must have been reset.
func alive(t *testing.T, conns []*net.TCPConn) (n int) {
	t.Helper()
	for _, c := range conns {
		_, err := c.Write([]byte("x"))
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		switch {
		case err == nil:
			n++
		case !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE):
			t.Errorf("%v, want a reset", err)
		}
	}
	return n
}

// TestEndOfADrainIsSpread: at the end of the process's drain some of the remaining sessions are
// reset in each step, and all of them by its end. The process reports that number.
func TestEndOfADrainIsSpread(t *testing.T) {
	t.Parallel()

	const clients = 300
	r := &rig{loadbalancer.Setting{Drain: 30 * time.Second}.Start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a")))}
	spread, times := worker.NewSpread(30*time.Second), stopClock(r)
	conns := many(t, clients, r.At("l"))
	r.Stop()
	step := times.next(30 * time.Second)
	times.any(10 * time.Second) // the timer of the log lines
	before := clients
	for n := 1; ; n++ {
		step.ring()
		if n == spread.Steps {
			break
		}
		step = times.any(spread.Every) // the timer of the next step
		left := int(r.Status().Connections.Active)
		if cut := before - left; cut > clients/5 || n == spread.Steps/2 && (left < clients/3 || left > clients*2/3) {
			t.Errorf("step %d of %d cuts %d, and leaves %d of %d", n, spread.Steps, cut, left, clients)
		}
		before = left
	}
	if err := r.End(); !errors.Is(err, server.ErrCut) || !strings.HasSuffix(err.Error(), fmt.Sprintf(": %d", clients)) {
		t.Errorf("the process ends with %v, want %d cut", err, clients)
	}
	if n := alive(t, conns); n != 0 {
		t.Errorf("%d sessions survive", n)
	}
	r.Logs("level=WARN", `msg="drain timeout"`, "active=300", "resets_within=2.94s")
}

// TestDrainSaysWhatItWaitsFor: every ten seconds the log reports the sessions that the drain
// waits for, with the oldest one of each listener and upstream. Meanwhile the status is draining,
// until the end and after it.
func TestDrainSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	text := "listeners:\n  - {name: l, bind: \"127.0.0.1:0\", upstream: u}\n"
	for i := range 11 {
		text += fmt.Sprintf("  - {name: m%02d, bind: \"127.0.0.1:0\", upstream: v}\n", i)
	}
	began := time.Now()
	r := &rig{loadbalancer.Setting{Drain: time.Hour}.Start(t, text+fmt.Sprintf("upstreams: [{name: u, endpoints: [%q]}, {name: v, endpoints: [%[1]q]}]", a))}
	times := stopClock(r)
	conns := many(t, 7, r.At("l"))
	for i := range 11 {
		conns = append(conns, many(t, 1, r.At(fmt.Sprintf("m%02d", i)))...)
	}
	r.Stop()
	times.next(time.Hour)
	for range 2 {
		look := times.any(10 * time.Second)
		look.ring()
	}
	times.any(10 * time.Second)
	text = r.Log.String()
	for _, want := range []string{
		`msg="drain waits for sessions" listener=l upstream=u sessions=7 oldest=`, `listener=m08 upstream=v sessions=1 oldest=`,
		`msg="drain waits for further sessions" listeners_and_upstreams=2 sessions=2 until=`,
	} {
		if strings.Count(text, want) != 2 {
			t.Errorf("the log has %q %d times", want, strings.Count(text, want))
		}
	}
	s := r.Status()
	if s.Listeners[0].State != admin.Draining || s.Listeners[0].DrainedByHand {
		t.Errorf("a listener of a process that drains is %+v", s.Listeners[0])
	}
	if s.State != admin.Draining || s.Connections.Active != 18 || s.DrainEnds.Before(began.Add(time.Hour)) || s.DrainEnds.After(time.Now().Add(time.Hour)) {
		t.Errorf("%v, %d sessions, until %v", s.State, s.Connections.Active, s.DrainEnds)
	}
	for _, c := range conns {
		c.Close()
	}
	if err := r.End(); err != nil {
		t.Error(err)
	}
	if s := r.Status(); s.State != admin.Draining || s.Connections.Active != 0 || s.Connections.Accepted != 18 {
		t.Errorf("at the end: %v, %+v", s.State, s.Connections)
	}
}

// TestDrainOfAnEndpointIsSpread: in half of the steps about half of its sessions are reset. If
// the drain is then cancelled the others continue.
func TestDrainOfAnEndpointIsSpread(t *testing.T) {
	t.Parallel()

	const clients = 200
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], drain_timeout: 1h}]`, named(t, "a")))
	times, spread := stopClock(r), worker.NewSpread(time.Hour)
	conns := many(t, clients, r.At("l"))
	began := time.Now()
	if err := r.DrainEndpoint("u", "a", true, "test"); err != nil {
		t.Fatal(err)
	}
	step := times.next(time.Hour)
	if e := r.Endpoint("u", "a"); e.State != admin.Draining || e.Until.Before(began.Add(time.Hour)) {
		t.Errorf("%v until %v", e.State, e.Until)
	}
	for range spread.Steps / 2 {
		then, ok := step.step()
		if !ok || len(then) != 1 || then[0].after != spread.Every {
			t.Fatalf("%v, %+v", ok, then)
		}
		step = then[0]
	}
	r.Until("some sessions are cut", func() bool { return r.Endpoint("u", "a").Active < clients*2/3 })
	if err := r.DrainEndpoint("u", "a", false, "test"); err != nil {
		t.Fatal(err)
	}
	if step.over() {
		t.Error("there is a step after the drain was cancelled")
	}
	if e := r.Endpoint("u", "a"); !e.Until.IsZero() {
		t.Errorf("the drain is cancelled, and ends at %v", e.Until)
	}
	var n int
	r.Until("those of the last step are cut", func() bool { n = alive(t, conns); return int64(n) == r.Endpoint("u", "a").Active })
	if n < clients/3 || n > clients*2/3 {
		t.Errorf("%d of %d sessions survive", n, clients)
	}
}
