package server_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/rollback"
	"github.com/penstock/penstock/proxy/server"
)

// TestUnhealthyEndpointsDrain: sessions of a failed endpoint may last for the drain timeout. They go on if the endpoint is
// healthy again by then, and the timer of that drain does not end the next one.
func TestUnhealthyEndpointsDrain(t *testing.T) {
	t.Parallel()

	role := newRole(t, false)
	r := startUpstream(t, `endpoints: [{address: %q, name: a}], on_unhealthy: drain, drain_timeout: 1h, health_check: {type: http, port: %s, interval: 20ms, fast_interval: 10ms, rise: 1, fall: 1, http: {path: /primary, host: db.test}}`, named(t, "a"), role.port)
	times := stopClock(r)
	c := client(t, r.At("l"))
	line(t, c)
	fall := func() *alarm {
		t.Helper()
		role.well.Store(false)
		return times.next(time.Hour)
	}
	heal := func() {
		t.Helper()
		role.well.Store(true)
		r.Until("the endpoint is up", func() bool { return r.Endpoint("u", "a").State == "up" })
	}
	first := fall()
	heal()
	fall()
	first.over()
	heal() // a check later, the first time would have cut it
	last := fall()
	echoes(t, c, "draining")
	last.over()
	isReset(t, c)
	r.Logs("level=INFO", "sessions were reset", "upstream=u", "endpoint=a", "sessions=1", `cause="its endpoint is unhealthy"`)
}

// TestLastStepOfADrain: a session that begins during the last step of a drain needs a drain of its own, as the step may have
// missed it.
func TestLastStepOfADrain(t *testing.T) {
	t.Parallel()

	r := startUpstream(t, `endpoints: [%q], health_check: off`, named(t, "a"))
	steps := make(chan [2]bool, 8)
	r.CutAfter(300*time.Millisecond, func(over, last bool) { steps <- [2]bool{over, last} })
	for last := false; !last; {
		step := condition.Receive(t, "a step of the drain", steps)
		if last = step[1]; step[0] != last {
			t.Errorf("over: %v, the last step: %v", step[0], last)
		}
	}
}

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
	r.Logs("level=WARN", `msg="the drain ends: the remaining clients are being reset"`, "active=300", "resets_within=2.94s")
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
		`msg="the drain waits for sessions" listener=l upstream=u sessions=7 oldest=`, `listener=m08 upstream=v sessions=1 oldest=`,
		`msg="the drain waits for more sessions" listeners_and_upstreams=2 sessions=2 until=`,
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
	must(t, r.End())
	if s := r.Status(); s.State != admin.Draining || s.Connections.Active != 0 || s.Connections.Accepted != 18 {
		t.Errorf("at the end: %v, %+v", s.State, s.Connections)
	}
}

// TestPartsSayWhatTheyWaitFor: for a draining endpoint or listener with sessions, the log reports
// every ten seconds how many there are and the end time. The same holds for a removed endpoint.
func TestPartsSayWhatTheyWaitFor(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	text := func(endpoints string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%s], drain_timeout: 1h}]`, endpoints)
	}
	r := start(t, text(fmt.Sprintf("{name: a, address: %q}, {name: b, address: %q}", a, b)))
	conns := many(t, 6, r.At("l"))
	rest := many(t, 2, r.At("m"))
	r.Until("all sessions are joined", func() bool { return r.Status().Upstreams[0].Active == 8 })
	says := func(when string, in time.Duration, lines ...string) {
		t.Helper()
		before := len(r.Log.String())
		r.TellDrains(in)
		text := r.Log.String()[before:]
		if n := strings.Count(text, "drain waits for"); n != len(lines) {
			t.Errorf("%s: %d lines, want %q:\n%s", when, n, lines, text)
		}
		for _, line := range lines {
			if !strings.Contains(text, line) {
				t.Errorf("%s: want %s:\n%s", when, line, text)
			}
		}
	}
	must(t, r.DrainEndpoint("u", "a", true, "test"))
	const ofA, ofB, ofL = `msg="a drain waits for sessions" upstream=u endpoint=a sessions=4 until=20`, "upstream=u endpoint=b sessions=4 until=20", "listener=l address=127.0.0.1:"
	says("soon", 9*time.Second)
	says("after ten seconds", 11*time.Second, ofA)
	says("soon after that", 20*time.Second)
	says("after ten more", 22*time.Second, ofA)
	must(t, r.DrainListener("l", "test"))
	says("with a listener", 33*time.Second, ofA, ofL)
	r.Reload(text(fmt.Sprintf("{name: a, address: %q}", a)))
	says("with one that is removed, and the listener drained still", 44*time.Second, ofA, ofB, ofL)
	must(t, r.DrainEndpoint("u", "a", false, "test"))
	says("without one that is taken back", 55*time.Second, ofB, ofL)
	for _, c := range append(conns, rest...) {
		c.Close()
	}
	r.Until("no client is connected", func() bool { return r.Status().Connections.Active == 0 })
	says("at the end", time.Minute+10*time.Second)
}

// TestDrainingUnder: sessions of an address that a reload or a drain of their listener has given up are known as such before the next reload, unless that gives
// them back.
func TestDrainingUnder(t *testing.T) {
	t.Parallel()

	two, three, to := sockets.Port(t), sockets.Port(t), sockets.Server(t, sockets.Echo)
	text := func(binds string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: [%s], upstream: u}, {name: m, bind: "127.0.0.1:%s", upstream: u}]
upstreams: [{name: u, drain_timeout: 40m, endpoints: [%q]}]`, binds, three, to)
	}
	const one = `"127.0.0.1:0"`
	less, both := text(one), text(one+`, "127.0.0.1:`+two+`"`)
	r := start(t, both)
	stays, drains, drained := client(t, r.At("l")), client(t, "127.0.0.1:"+two), client(t, "127.0.0.1:"+three)
	echoes(t, stays, "stays")
	echoes(t, drains, "drains")
	echoes(t, drained, "drained")
	expect := func(next string, want map[string]int64) {
		t.Helper()
		got := r.DrainingUnder(r.Load(next))
		for name, of := range got {
			if of.Sessions != want[name] || of.Within <= 0 || of.Within > 40*time.Minute {
				t.Errorf("%s: %+v, want %d", name, of, want[name])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	expect(less, map[string]int64{})
	r.Reload(less)
	expect(less, map[string]int64{"l": 1})
	expect(both, map[string]int64{})
	for _, first := range []bool{true, false} { // each answer says how many sessions are left, and until when
		done, err := r.Server.DrainListener("m", "test")
		if left := time.Until(done.Until); err != nil || done.Changed != first || done.Sessions != 1 || left <= 0 || left > time.Hour {
			t.Errorf("%+v, %v", done, err)
		}
	}
	expect(less, map[string]int64{"l": 1, "m": 1})
	r.Reload(both)
	expect(both, map[string]int64{"m": 1})
	drained.Close()
	r.Until("it has ended", func() bool { return len(r.DrainingUnder(r.Load(both))) == 0 })
}

// rest ends the time of each alarm that was set, and returns how many were still active.
func (c *clock) rest() (n int) {
	for {
		select {
		case a := <-c.set:
			if a.over() {
				n++
			}
		default:
			return n
		}
	}
}

// TestReturning: a listener or endpoint is removed and comes back before its sessions have ended.
// It is the same object again: its sessions and its counts continue.
func TestReturning(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	at := "127.0.0.1:" + sockets.Port(t)
	file := func(listeners, upstreams string) string {
		return fmt.Sprintf("listeners: [{name: other, bind: %q, upstream: other}%s]\nupstreams: [{name: other, endpoints: [%q]}%s]", "127.0.0.1:0", listeners, b, upstreams)
	}
	l := fmt.Sprintf(`, {name: l, bind: %q, upstream: u}`, at)
	u := func(endpoints string) string {
		return fmt.Sprintf(`, {name: u, drain_timeout: 1h, endpoints: [%s]}`, endpoints)
	}
	both := fmt.Sprintf(`{address: %q, name: a, connections: 2}, {address: %q, name: b, backup: true}`, a, b)
	for name, without := range map[string]string{
		"an endpoint":              file(l, u(fmt.Sprintf(`{address: %q, name: b, backup: true}`, b))),
		"a listener":               file("", u(both)),
		"a listener and upstreams": file("", ""),
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, file(l, u(both)))
			times := stopClock(r)
			c := client(t, at)
			line(t, c)
			r.Until("the session is counted", func() bool { return r.Endpoint("u", "a").Active == 1 })
			r.Reload(without)
			echoes(t, c, "while it is gone")
			if name == "an endpoint" {
				u := slices.IndexFunc(r.Status().Upstreams, func(u admin.Upstream) bool { return u.Name == "u" })
				if e := r.Endpoint("u", "a"); e.State != admin.Removed || e.Active != 1 || r.Status().Upstreams[u].Active != 1 {
					t.Errorf("%+v, want it removed, with a session", e)
				}
			}
			r.Reload(file(l, u(both)))
			times.rest()
			echoes(t, c, "when it is back")
			second := client(t, at)
			line(t, second)
			e := r.Endpoint("u", "a")
			if e.State != "up" || e.Active != 2 || e.Total != 2 {
				t.Errorf("the endpoint is %+v, want one that is up with both sessions", e)
			}
			s := r.Status()
			for i := range s.Upstreams {
				if s.Upstreams[i].Name == "u" && len(s.Upstreams[i].Endpoints) != 2 {
					t.Errorf("the endpoints are %+v", s.Upstreams[i].Endpoints)
				}
			}
			// A second removal drains as the first would have.
			r.Reload(without)
			echoes(t, c, "while it is gone again")
			if times.rest() == 0 {
				t.Error("no timer is set")
			}
			for _, conn := range []interface {
				SetReadDeadline(time.Time) error
				Read([]byte) (int, error)
			}{c, second} {
				_ = conn.SetReadDeadline(time.Now().Add(condition.Patience))
				if _, err := conn.Read(make([]byte, 100)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%v, want a reset", err)
				}
			}
			if name == "a listener" {
				r.Logs("level=INFO", `msg="sessions were reset" listener=l sessions=2`)
			}
		})
	}
}

// TestRemovedDuringItsDrain: the drain of an endpoint ends with its removal. Its sessions stay if on_removed says so, or if it comes
// back ready.
func TestRemovedDuringItsDrain(t *testing.T) {
	t.Parallel()

	const text = `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, drain_timeout: 1h, on_removed: %s, endpoints: [%s{address: %q, name: b, backup: true}]}]`
	a, b := fmt.Sprintf("{address: %q, name: a}, ", named(t, "a")), named(t, "b")
	for how, returns := range map[string]bool{"keep": false, "drain": true} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := start(t, fmt.Sprintf(text, how, a, b))
			times := stopClock(r)
			c := client(t, r.At("l"))
			hears(t, c, "a")
			must(t, r.DrainEndpoint("u", "a", true, "test"))
			r.Reload(fmt.Sprintf(text, how, "", b))
			if returns {
				r.Reload(fmt.Sprintf(text, how, a, b))
			}
			if e := r.Endpoint("u", "a"); (e.State == admin.Up) != returns || e.Active != 1 || !e.Until.IsZero() {
				t.Errorf("%+v, want its session to stay", e)
			}
			if n := times.rest(); n != 0 {
				t.Errorf("%d drains go on", n)
			}
			echoes(t, c, "it stays")
		})
	}
}

// TestReturningWithoutItsBreaker: an endpoint that is removed while its breaker is open, and comes back before its sessions
// have ended, gets clients again.
func TestReturningWithoutItsBreaker(t *testing.T) {
	t.Parallel()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	first := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		l.Close()
		first <- c
	}()
	endpoint := fmt.Sprintf(`{address: %q, name: a}`, l.Addr())
	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, health_check: off, outlier_detection: off, retry: {attempts: 1}, circuit_breaker: {failure_percentage: 50, min_volume: 2, open: 1h},
  endpoints: [%s{address: %q, name: b, backup: true}]}]`
	b := named(t, "b")
	r := start(t, fmt.Sprintf(text, endpoint+", ", b))
	client(t, r.At("l"))
	session := condition.Receive(t, "the first session", first)
	defer session.Close()
	for r.Endpoint("u", "a").Breaker != "open" {
		servedBy(t, r.At("l"), "b")
	}
	r.Reload(fmt.Sprintf(text, "", b))
	if l, err = net.Listen("tcp", l.Addr().String()); err != nil {
		t.Skip("another program has taken the port:", err)
	}
	sockets.Serve(t, l, func(c net.Conn) { fmt.Fprintln(c, "a") })
	r.Reload(fmt.Sprintf(text, endpoint+", ", b))
	if e := r.Endpoint("u", "a"); e.Active != 1 || e.Breaker != "" {
		t.Errorf("the endpoint is %+v, want it with its session, and its breaker closed", e)
	}
	servedBy(t, r.At("l"), "a")
}

// TestListenerDrainedAtTheEnd: a listener that the process has closed because it ends cannot be drained as well. Its descriptor
// may be a connection by then, which goes on.
func TestListenerDrainedAtTheEnd(t *testing.T) {
	lower := make([]int, 64) // descriptors below the listener's, which others in the process take before they take the listener's
	for i := range lower {
		fd, err := syscall.Dup(0)
		must(t, err)
		lower[i] = fd
	}
	echo := named(t, "a")
	r := &rig{loadbalancer.Setting{Drain: time.Hour}.Start(t, fmt.Sprintf("listeners: [{name: l, bind: \"127.0.0.1:0\", upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]", echo))}
	session, fd := client(t, r.At("l")), r.Descriptor("l")
	hears(t, session, "a")
	other := client(t, echo)
	hears(t, other, "a")
	raw, err := other.SyscallConn()
	must(t, err)
	for _, fd := range lower {
		syscall.Close(fd)
	}
	r.Stop()
	r.Until("the descriptor is the connection", func() bool {
		again, failed := -1, error(nil)
		must(t, raw.Control(func(of uintptr) { again, failed = sys.DupFrom(int(of), fd) })) // again is fd, or a higher descriptor while fd is in use
		must(t, failed)
		if again > fd {
			syscall.Close(again)
		}
		return again == fd
	})
	defer syscall.Close(fd)
	if err := r.DrainListener("l", "test"); !errors.Is(err, rollback.ErrClosed) {
		t.Errorf("%v, want that the process ends", err)
	}
	must(t, other.SetDeadline(time.Now().Add(5*time.Second))) // without the mend no byte comes
	echoes(t, other, "it goes on")
	session.Close()
	must(t, r.End())
}

// longDrain is start with a process that drains for hours once its end has begun.
func longDrain(t *testing.T, text string, files ...string) *rig {
	t.Helper()
	return &rig{loadbalancer.Setting{Drain: 100 * time.Hour}.Start(t, text, files...)}
}

// leave begins the end of the process.
func (r *rig) leave() {
	r.T.Helper()
	r.Stop()
	r.Logs("level=INFO", "msg=draining")
}

// TestUnhealthyWhileTheProcessDrains: on_unhealthy applies to the last sessions of a process too. Otherwise they would go on
// writing to a server that is no longer the primary, while the next process sends its clients to another one.
func TestUnhealthyWhileTheProcessDrains(t *testing.T) {
	t.Parallel()

	for _, how := range []string{"reset", "drain"} {
		role := newRole(t, false)
		r := longDrain(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], on_unhealthy: %s, drain_timeout: 100ms, health_check: {type: http, port: %s, interval: 20ms, fast_interval: 10ms, rise: 1, fall: 1, http: {path: /primary, host: db.test}}}]`, named(t, "a"), how, role.port))
		c := many(t, 1, r.At("l"))[0]
		r.leave()
		role.well.Store(false)
		isReset(t, c)
		r.Logs("level=INFO", "sessions were reset", "upstream=u", "endpoint=a", "sessions=1", `cause="its endpoint is unhealthy"`)
		must(t, r.End())
	}
}

// TestPartsDrainWhileTheProcessDrains: endpoints and listeners that were drained before the end of the process began, or
// since, keep their deadlines.
func TestPartsDrainWhileTheProcessDrains(t *testing.T) {
	t.Parallel()

	upstream := func(name string) string {
		return fmt.Sprintf("{name: %s, endpoints: [{address: %q, name: %[1]s}], drain_timeout: 1h}", name, named(t, name))
	}
	text := fmt.Sprintf(`
upstreams: [%s, %s]
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: v}`, upstream("u"), upstream("v"))
	r := longDrain(t, text+`, {name: removed, bind: "127.0.0.1:0", upstream: v}, {name: drained, bind: "127.0.0.1:0", upstream: v}]`)
	times := stopClock(r)
	before, since, drained, removed := client(t, r.At("l")), client(t, r.At("m")), client(t, r.At("drained")), client(t, r.At("removed"))
	for c, of := range map[net.Conn]string{before: "u", since: "v", drained: "v", removed: "v"} {
		hears(t, c, of)
	}
	must(t, r.DrainEndpoint("u", "u", true, "test"))
	endpoint := times.next(time.Hour)
	must(t, r.DrainListener("drained", "test"))
	listener := times.next(time.Hour)
	r.Reload(text + `, {name: drained, bind: "127.0.0.1:0", upstream: v}]`)
	gone := times.next(time.Hour)
	r.leave()
	times.next(100 * time.Hour)
	times.any(10 * time.Second) // the timer of the log lines
	for _, part := range []struct {
		ends *alarm
		c    net.Conn
	}{{endpoint, before}, {listener, drained}, {gone, removed}} {
		part.ends.over()
		isReset(t, part.c)
	}
	echoes(t, since, "it goes on")
	must(t, r.DrainEndpoint("v", "v", true, "test"))
	times.next(time.Hour).over()
	isReset(t, since)
	must(t, r.End())
}

// TestCutForTheEnd: sessions that an endpoint's drain resets while the process resets sessions too are not counted as cut by
// the process.
func TestCutForTheEnd(t *testing.T) {
	t.Parallel()

	r := longDrain(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], drain_timeout: 1h}]`, named(t, "a")))
	times := stopClock(r)
	const clients = 100
	conns := many(t, clients, r.At("l"))
	must(t, r.DrainEndpoint("u", "a", true, "test"))
	endpoint := times.next(time.Hour)
	r.leave()
	step := times.next(100 * time.Hour)
	times.any(10 * time.Second) // the timer of the log lines
	step.ring()
	times.any(worker.NewSpread(100 * time.Hour).Every) // the timer of the next step: the first one is over
	cut := clients - alive(t, conns)
	endpoint.over()
	if err := r.End(); cut == 0 && err != nil || cut > 0 && (!errors.Is(err, server.ErrCut) || !strings.HasSuffix(err.Error(), fmt.Sprintf(": %d", cut))) {
		t.Errorf("the process ends with %v, want %d cut", err, cut)
	}
}

// TestDiscoveryWhileTheProcessDrains: on_removed applies to sessions of an endpoint that discovery no longer finds.
func TestDiscoveryWhileTheProcessDrains(t *testing.T) {
	t.Parallel()

	r := longDrain(t, `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, discover: {file: {path: eps.yaml}}, on_removed: reset, health_check: off}]`, "eps.yaml", fmt.Sprintf("[{name: a, address: %q}]", named(t, "a")))
	c := many(t, 1, r.At("l"))[0]
	r.leave()
	r.Write("eps.yaml", fmt.Sprintf("[{name: b, address: %q}]", named(t, "b")))
	isReset(t, c)
	r.Logs("sessions were reset", "upstream=u", "endpoint=a", "sessions=1", `cause="its endpoint was removed"`)
	must(t, r.End())
}

// TestEndSessionsWhileTheProcessDrains: an operator can end the last sessions of a process, so that it need not reset them.
func TestEndSessionsWhileTheProcessDrains(t *testing.T) {
	t.Parallel()

	r := longDrain(t, fmt.Sprintf("listeners: [{name: l, bind: \"127.0.0.1:0\", upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]", named(t, "a")))
	c := many(t, 1, r.At("l"))[0]
	r.leave()
	if e := r.end(admin.EndQuery{All: true, Now: true}); e.Ended != 1 || !e.Done {
		t.Errorf("%+v, want the session ended", e)
	}
	isReset(t, c)
	must(t, r.End())
	if _, err := r.EndSessions(t.Context(), admin.EndQuery{All: true, Now: true}, "uid=7"); !errors.Is(err, rollback.ErrClosed) {
		t.Errorf("%v, want that the process has ended", err)
	}
}

// TestEndingsEndWithTheProcess: a session that ended by itself is not reported as going on because the process, whose last one
// it was, has ended too before the request to end sessions looked again.
func TestEndingsEndWithTheProcess(t *testing.T) {
	t.Parallel()

	r := longDrain(t, fmt.Sprintf("listeners: [{name: l, bind: \"127.0.0.1:0\", upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]", named(t, "a")))
	c := many(t, 1, r.At("l"))[0]
	ended := r.ending(t, admin.EndQuery{All: true, Quiet: time.Hour, Grace: time.Hour}, "uid=7")
	r.Logs("sessions are being ended", "uid=7")
	r.leave()
	c.Close()
	if e := condition.Receive(t, "the result", ended); e.Left != 1 || e.Stopped != 0 || !e.Done {
		t.Errorf("%+v, want one that had ended", e)
	}
	must(t, r.End())
}

// TestKeepDuringADrain: the status names the end of an unhealthy endpoint's drain, and a reload to on_unhealthy: keep calls
// the drain off.
func TestKeepDuringADrain(t *testing.T) {
	t.Parallel()

	role, address := newRole(t, false), named(t, "a")
	text := func(how string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: a}], on_unhealthy: %s, drain_timeout: 1h, health_check: {type: http, port: %s, interval: 20ms, fast_interval: 10ms, rise: 1, fall: 1, http: {path: /primary, host: db.test}}}]`, address, how, role.port)
	}
	r := start(t, text("drain"))
	times := stopClock(r)
	c := many(t, 1, r.At("l"))[0]
	role.well.Store(false)
	drain := times.next(time.Hour)
	if until := r.Endpoint("u", "a").Until; time.Until(until) < time.Minute {
		t.Errorf("its sessions are reset at %v", until)
	}
	r.Reload(text("keep"))
	if until := r.Endpoint("u", "a").Until; !until.IsZero() {
		t.Errorf("after the reload its sessions are reset at %v", until)
	}
	if drain.over() {
		t.Error("the drain goes on")
	}
	echoes(t, c, "it goes on")
}

// TestLastResortsAreReset: a client that gets to an unhealthy endpoint after one good check is reset like the sessions before
// if the next check finds that the endpoint must not serve.
func TestLastResortsAreReset(t *testing.T) {
	t.Parallel()

	role := newRole(t, false)
	role.well.Store(false)
	r := startUpstream(t, `endpoints: [{address: %q, name: a}], on_unhealthy: reset, queue: {hold: 1m}, health_check: {type: http, port: %s, interval: 20ms, fast_interval: 10ms, rise: 100, http: {path: /primary, host: db.test}}`, named(t, "a"), role.port)
	for range 2 {
		r.Until("the endpoint is down", func() bool { return r.Endpoint("u", "a").State == "down" })
		c := client(t, r.At("l"))
		r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
		role.well.Store(true)
		hears(t, c, "a")
		role.well.Store(false)
		isReset(t, c)
	}
}

// TestLastResortsDrain: a session that begins as a last resort during the drain of an unhealthy endpoint ends with it. No other
// drain begins, so a reload can call all of it off.
func TestLastResortsDrain(t *testing.T) {
	t.Parallel()

	role := newRole(t, false)
	r := startUpstream(t, `endpoints: [{address: %q, name: a}], on_unhealthy: drain, drain_timeout: 1h, queue: {hold: 1m}, health_check: {type: http, port: %s, interval: 20ms, fast_interval: 10ms, rise: 1000, fall: 1, http: {path: /primary, host: db.test}}`, named(t, "a"), role.port)
	times := stopClock(r)
	conns := many(t, 1, r.At("l"))
	role.well.Store(false)
	drain := times.next(time.Hour)
	for range 5 {
		r.Until("the endpoint is barred", func() bool { return r.Barred("u", "a") })
		c := client(t, r.At("l"))
		r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
		role.well.Store(true)
		hears(t, c, "a")
		role.well.Store(false)
		conns = append(conns, c)
	}
	if n := len(times.set); n > 0 {
		t.Errorf("%d more drains", n)
	}
	drain.over()
	for _, c := range conns {
		isReset(t, c)
	}
}
