package server_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// steered is a load balancer with two listeners, and endpoints that say their names and echo.
func steered(t *testing.T) *rig {
	return start(t, fmt.Sprintf(`
listeners:
  - {name: web, bind: "127.0.0.1:0", upstream: u}
  - {name: api, bind: "127.0.0.1:0", upstream: v}
upstreams:
  - {name: u, endpoints: [{name: one, address: %q}]}
  - {name: v, endpoints: [{name: two, address: %q}]}`, named(t, "one"), named(t, "two")))
}

// TestSessionsOfMovedAddresses: where a reload swaps the addresses of two listeners, a session has the name of the listener
// that took it on, in the list, in the session log and when sessions of a listener are ended.
func TestSessionsOfMovedAddresses(t *testing.T) {
	t.Parallel()

	const text = `
session_log: {to: sessions.log, at: [start, end]}
listeners:
  - {name: web, bind: "127.0.0.1:%s", upstream: u}
  - {name: api, bind: "127.0.0.1:%s", upstream: u, session_log: false}
upstreams: [{name: u, endpoints: [%q]}]`
	a, one, other := named(t, "a"), sockets.Port(t), sockets.Port(t)
	r := start(t, fmt.Sprintf(text, one, other, a))
	var clients []net.Conn
	join := func(ports ...string) {
		for _, port := range ports {
			c := client(t, "127.0.0.1:"+port)
			line(t, c)
			clients = append(clients, c)
		}
	}
	join(one, other)
	r.Reload(fmt.Sprintf(text, other, one, a))
	join(one, other)
	const web, api = "web", "api"
	var got []string
	for _, c := range clients {
		for _, s := range r.list(admin.SessionQuery{}, admin.SessionOrder{}) {
			if s.Client == c.LocalAddr().String() {
				got = append(got, s.Listener)
			}
		}
	}
	if want := []string{web, api, api, web}; !slices.Equal(got, want) {
		t.Errorf("the listeners are %q, want %q", got, want)
	}
	if done, err := r.EndSessions(t.Context(), admin.EndQuery{SessionQuery: admin.SessionQuery{Listener: web}, Now: true}, "test"); err != nil || done.Ended != 2 {
		t.Errorf("%+v, %v", done, err)
	}
	for i, c := range clients {
		if got[i] == web {
			isReset(t, c)
		} else {
			echoes(t, c, "still here")
		}
	}
	r.Until("the log has the sessions of web alone", func() bool {
		b, err := os.ReadFile(filepath.Join(r.Dir, "sessions.log"))
		return err == nil && strings.Count(string(b), `"listener":"web"`) == 4 && strings.Count(string(b), "\n") == 4
	})
}

// TestSessionsAreSelected: sessions are selected, sorted, and found by their ids.
func TestSessionsAreSelected(t *testing.T) {
	t.Parallel()

	r := steered(t)
	small, large, other := client(t, r.At("web")), client(t, r.At("web")), client(t, r.At("api"))
	for _, c := range []net.Conn{small, large, other} {
		defer c.Close()
		line(t, c)
	}
	echoes(t, large, "many more bytes")
	who := func(list []admin.Session) (names []string) {
		for _, s := range list {
			for name, c := range map[string]net.Conn{"small": small, "large": large, "other": other} {
				// Clients of two listeners may have one port.
				if s.Client == c.LocalAddr().String() && (s.Listener == "api") == (name == "other") {
					names = append(names, name)
				}
			}
		}
		return names
	}
	all := r.list(admin.SessionQuery{}, admin.SessionOrder{By: "bytes"})
	if got := who(all); len(got) != 3 || got[0] != "large" {
		t.Fatalf("by bytes: %q", got)
	}
	for name, c := range map[string]struct {
		q    admin.SessionQuery
		want []string
	}{
		"listener":         {admin.SessionQuery{Listener: "api"}, []string{"other"}},
		"upstream":         {admin.SessionQuery{Upstream: "u"}, []string{"large", "small"}},
		"endpoint":         {admin.SessionQuery{Endpoint: "two"}, []string{"other"}},
		"endpoint address": {admin.SessionQuery{Endpoint: all[0].Endpoint}, []string{"large", "small"}},
		"source":           {admin.SessionQuery{Source: "127.0.0.0/8", Listener: "api"}, []string{"other"}},
		"no source":        {admin.SessionQuery{Source: "10.0.0.0/8"}, nil},
		"bytes":            {admin.SessionQuery{Bytes: 20}, []string{"large"}},
		"id":               {admin.SessionQuery{ID: all[0].ID}, []string{"large"}},
		"state":            {admin.SessionQuery{State: "client-ended"}, nil},
		"older":            {admin.SessionQuery{Older: time.Hour}, nil},
		"idle":             {admin.SessionQuery{Idle: time.Hour}, nil},
	} {
		if got := who(r.list(c.q, admin.SessionOrder{By: "bytes"})); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	for _, s := range r.list(admin.SessionQuery{Verdict: admin.AnyVerdict}, admin.SessionOrder{}) {
		if s.Verdict == "" {
			t.Errorf("%+v has no verdict", s)
		}
	}
	list, err := r.Sessions(t.Context(), admin.SessionQuery{}, admin.SessionOrder{By: "age", Top: 2})
	must(t, err)
	if got := slices.Collect(list.Sessions); len(got) != 2 || !list.More() || got[0].AgeUs < got[1].AgeUs {
		t.Errorf("the two oldest: %+v, more %v", got, list.More())
	}
	if w, err := r.Why(t.Context(), admin.WhyQuery{Session: all[0].ID}); err != nil || w.Count != 1 || w.Sessions[0].Client != all[0].Client {
		t.Errorf("why of an id: %+v, %v", w, err)
	}
	for want, q := range map[string]admin.SessionQuery{
		"there is no listener \"none\", known: api, web": {Listener: "none"}, "there is no upstream \"none\", known: u, v": {Upstream: "none"},
		"there is no endpoint \"none\", known: one, two": {Endpoint: "none"}, "there is no endpoint \"two\", known: one": {Upstream: "u", Endpoint: "two"},
	} {
		_, err := r.Sessions(t.Context(), q, admin.SessionOrder{})
		_, endErr := r.EndSessions(t.Context(), admin.EndQuery{SessionQuery: q}, "uid=7")
		if !errors.Is(err, admin.ErrNotFound) || err.Error() != want || !errors.Is(endErr, admin.ErrNotFound) {
			t.Errorf("%+v: %v, %v, want %s", q, err, endErr, want)
		}
	}
	for _, q := range []admin.SessionQuery{{Source: "x"}, {Source: "127.0.0.1/8"}, {ID: "x"}} {
		if _, err := r.Sessions(t.Context(), q, admin.SessionOrder{}); !errors.Is(err, admin.ErrInvalid) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// TestSessionsOfWhatIsGone: names that a reload has taken away select, as long as there are sessions with them.
func TestSessionsOfWhatIsGone(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	const text = "listeners: [{name: %[1]s, bind: \"127.0.0.1:0\", upstream: %[1]s}]\nupstreams: [{name: %[1]s, endpoints: [{name: %[1]s, address: %[2]q}], on_removed: drain, drain_timeout: 1h}]"
	r := start(t, fmt.Sprintf(text, "old", a))
	c := client(t, r.At("old"))
	line(t, c)
	r.Reload(fmt.Sprintf(text, "new", a))
	st := r.Status()
	if n := st.RemovedSessions; n["old"] != 1 || len(n) != 1 {
		t.Errorf("sessions of removed upstreams: %v", n)
	}
	closed := st.ClosedListeners["old"]
	for _, until := range []time.Time{st.RemovedUntil["old"], closed.Until} {
		if left := time.Until(until); left <= 59*time.Minute || left > time.Hour {
			t.Errorf("reset at %v", until)
		}
	}
	if closed.Sessions != 1 || len(st.ClosedListeners) != 1 {
		t.Errorf("%+v", st.ClosedListeners)
	}
	for _, q := range []admin.SessionQuery{{Listener: "old"}, {Upstream: "old"}, {Endpoint: "old"}} {
		if list := r.list(q, admin.SessionOrder{}); len(list) != 1 {
			t.Errorf("%+v: %+v", q, list)
		}
	}
	if e := r.end(admin.EndQuery{SessionQuery: admin.SessionQuery{Endpoint: "old"}, Now: true}); e.Ended != 1 {
		t.Errorf("%+v", e)
	}
	isReset(t, c)
	if _, err := r.Sessions(t.Context(), admin.SessionQuery{Listener: "old"}, admin.SessionOrder{}); !errors.Is(err, admin.ErrNotFound) {
		t.Error(err)
	}
}

// list returns the sessions of a query.
func (r *rig) list(q admin.SessionQuery, o admin.SessionOrder) []admin.Session {
	r.T.Helper()
	list, err := r.Sessions(r.T.Context(), q, o)
	must(r.T, err)
	return slices.Collect(list.Sessions)
}

// end ends sessions.
func (r *rig) end(q admin.EndQuery) admin.Ended {
	r.T.Helper()
	e, err := r.EndSessions(r.T.Context(), q, "uid=7")
	must(r.T, err)
	if !e.DryRun && e.Touched != e.Ended+e.Cut+e.Other+e.Left+e.Waiting+e.Kept+e.Stopped {
		r.T.Errorf("%+v does not add up", e)
	}
	return e
}

// ending begins to end sessions, and passes on the result.
func (r *rig) ending(t *testing.T, q admin.EndQuery, by string) <-chan admin.Ended {
	ended := make(chan admin.Ended, 1)
	go func() {
		e, err := r.EndSessions(t.Context(), q, by)
		if err != nil {
			t.Error(err)
		}
		ended <- e
	}()
	return ended
}

// TestEndNow: sessions end at once, are counted and logged as ended by an operator, and others go on.
func TestEndNow(t *testing.T) {
	t.Parallel()

	r := steered(t)
	one, other := client(t, r.At("web")), client(t, r.At("api"))
	defer other.Close()
	line(t, one)
	line(t, other)
	q := admin.EndQuery{SessionQuery: admin.SessionQuery{Endpoint: "one"}, Now: true, DryRun: true}
	if e := r.end(q); e.Touched != 1 || e.Ended+e.Waiting != 0 || !e.DryRun || !e.Done {
		t.Errorf("a dry run: %+v", e)
	}
	echoes(t, one, "it goes on")
	q.DryRun = false
	if e := r.end(q); e.Touched != 1 || e.Ended != 1 || !e.Done {
		t.Errorf("%+v", e)
	}
	isReset(t, one)
	echoes(t, other, "it goes on")
	r.Until("the end is counted", func() bool { return closesOf(r, "web")[tally.Operator] == 1 })
	r.Logs("sessions are being ended", "uid=7", "--endpoint one")
	r.Logs("the request to end sessions is done", "sessions=1 ended=1")
}

// TestEndGently: a session ends when it is quiet. A transfer is not cut in the middle, and no byte is lost.
func TestEndGently(t *testing.T) {
	t.Parallel()

	const size = 8 << 20
	begin := make(chan struct{})
	bulk := sockets.Server(t, func(c net.Conn) {
		if _, err := c.Read(make([]byte, 1)); err != nil {
			return // of the one that is idle
		}
		chunk := make([]byte, size/8)
		for range 8 { // with pauses in which all is delivered
			_, _ = c.Write(chunk)
			<-begin
		}
		_, _ = io.Copy(io.Discard, c)
	})
	r := forwarding(t, bulk, nil)
	idle, busy := client(t, r.At("l")), client(t, r.At("l"))
	sends(t, busy, "x")
	r.Until("both are joined", func() bool { return len(r.list(admin.SessionQuery{State: "joined"}, admin.SessionOrder{})) == 2 })
	ended := r.ending(t, admin.EndQuery{All: true, Quiet: time.Second}, "uid=7")
	total := int64(0)
	for range 8 {
		n, err := io.CopyN(io.Discard, busy, size/8)
		if total += n; err != nil {
			t.Fatalf("after %d bytes: %v", total, err)
		}
		begin <- struct{}{}
	}
	isReset(t, idle)
	isReset(t, busy)
	if e := <-ended; e.Touched != 2 || e.Ended != 2 || !e.Done || total != size {
		t.Errorf("%+v, %d bytes", e, total)
	}
}

// TestEndInAnAnswer: a session whose endpoint has sent something, and pauses in the middle of its answers, is not
// ended by a short silence: whether the answer is whole cannot be known.
func TestEndInAnAnswer(t *testing.T) {
	t.Parallel()

	proceed := make(chan struct{})
	release := sync.OnceFunc(func() { close(proceed) })
	r := forwarding(t, sockets.Server(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 10)) // two questions in one write
		_, _ = io.WriteString(c, "one\n")
		<-proceed
		_, _ = io.WriteString(c, "two\n")
		_, _ = io.Copy(io.Discard, c)
	}), nil)
	defer release()
	c := client(t, r.At("l"))
	sends(t, c, "ID\nWAIT 5\n")
	if got := line(t, c); got != "one" {
		t.Fatalf("%q", got)
	}
	// The grace is longer than the second that counted as quiet once, whatever the protocol.
	if e := r.end(admin.EndQuery{All: true, Grace: 1500 * time.Millisecond, Quiet: time.Minute}); e.Kept != 1 || !e.Done {
		t.Errorf("%+v, want one that is kept", e)
	}
	release()
	hears(t, c, "two")
	if e := r.end(admin.EndQuery{All: true, DryRun: true}); e.QuietUs != admin.DefaultQuiet.Microseconds() {
		t.Errorf("%+v, want the default time of quiet", e)
	}
}

// TestEndOfUnanswering: a session of an endpoint that is down is not quiet, for its endpoint may stand still in the
// middle of an answer.
func TestEndOfUnanswering(t *testing.T) {
	t.Parallel()

	role := newRole(t, false)
	r := startUpstream(t, `endpoints: [{address: %q, name: a}], on_unhealthy: keep, health_check: {type: http, port: %s, interval: 20ms, fast_interval: 20ms, fall: 2, http: {path: /primary, host: db.test}}`, named(t, "a"), role.port)
	c := client(t, r.At("l"))
	line(t, c)
	role.well.Store(false)
	r.Until("the endpoint is down", func() bool { return r.Endpoint("u", "a").State == "down" })
	q := admin.EndQuery{All: true, Quiet: time.Second, Grace: 1500 * time.Millisecond}
	if e := r.end(q); e.Unanswering != 1 || e.Kept != 1 || !e.Done {
		t.Errorf("%+v, want one that is kept", e)
	}
	echoes(t, c, "it goes on")
	q.ThenReset, q.Grace = true, time.Millisecond
	if e := r.end(q); e.Cut != 1 || e.Ended != 0 || !e.Done {
		t.Errorf("%+v, want one that is cut", e)
	}
	isReset(t, c)
}

// TestEndOver: ends are spread over a time, and can be called off.
func TestEndOver(t *testing.T) {
	t.Parallel()

	r := steered(t)
	clients := many(t, 20, r.At("web"))
	ended := r.ending(t, admin.EndQuery{All: true, Now: true, Over: time.Hour}, "uid=7")
	r.Logs("sessions are being ended", "sessions=20")
	if s := r.StopEnding("uid=8"); s.Requests != 1 || s.Kept < 15 { // each has its turn within the first second by one chance in 3600
		t.Errorf("%+v", s)
	}
	if e := <-ended; e.Touched != 20 || !e.Done || e.Stopped < 15 || e.Kept != 0 {
		t.Errorf("%+v", e)
	}
	r.Logs("requests to end sessions were stopped", "uid=8")
	slow := r.ending(t, admin.EndQuery{All: true, Now: true, Over: time.Hour}, "uid=9")
	r.Logs("sessions are being ended", "uid=9")
	e := r.end(admin.EndQuery{All: true, Now: true, Over: 300 * time.Millisecond})
	if e.Ended+e.Left != e.Touched || !e.Done {
		t.Errorf("%+v", e)
	}
	r.StopEnding("uid=8")
	if s := <-slow; s.Other < e.Ended || s.Stopped != 0 {
		t.Errorf("%+v, want the %d that the request after it has ended", s, e.Ended)
	}
	for _, c := range clients {
		isReset(t, c)
	}
}

// TestEndWithoutEndpoint: clients that have no endpoint yet are left alone, and counted.
func TestEndWithoutEndpoint(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, routes: [{match: {sni: [x.test]}, upstream: u}]}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, named(t, "one")))
	_ = client(t, r.At("l")) // its first bytes are waited for
	r.Until("it has come", func() bool {
		return len(r.list(admin.SessionQuery{State: "preread"}, admin.SessionOrder{})) == 1
	})
	if e := r.end(admin.EndQuery{All: true, Now: true}); e.Touched != 0 || e.WithoutEndpoint != 1 || !e.Done {
		t.Errorf("%+v, want one without an endpoint", e)
	}
}

// TestEndingsAreLimited: an end beyond those that may be under way is refused.
func TestEndingsAreLimited(t *testing.T) {
	t.Parallel()

	r := steered(t)
	line(t, client(t, r.At("web")))
	q := admin.EndQuery{All: true, Now: true, Over: admin.MaxEnd}
	const most = 16
	done := make(chan error, most)
	for i := range most {
		by := fmt.Sprintf("uid=%d", 100+i)
		go func() {
			_, err := r.EndSessions(t.Context(), q, by)
			done <- err
		}()
		r.Logs("sessions are being ended", by)
	}
	if _, err := r.EndSessions(t.Context(), q, "uid=7"); !errors.Is(err, admin.ErrEndings) {
		t.Errorf("one more: %v", err)
	}
	r.StopEnding("uid=7")
	for range most {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestSources: sources are added up by their prefixes, with their refused clients.
func TestSources(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners:
  - {name: web, bind: "127.0.0.1:0", upstream: u, deny: [127.0.1.0/24]}
upstreams:
  - {name: u, endpoints: [%q]}`, named(t, "one")))
	from := func(ip string) net.Conn {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).Dial("tcp", r.At("web"))
		if err != nil {
			return nil // it was reset before connect returned
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		return c
	}
	for _, ip := range []string{"127.0.0.7", "127.0.0.7", "127.0.0.8"} {
		line(t, from(ip))
	}
	from("127.0.1.1")
	r.Until("one is refused", func() bool { return r.Refused("web", "address") == 1 })
	top := func(q admin.SourceQuery) []admin.Source {
		t.Helper()
		s, err := r.Sources(t.Context(), q)
		must(t, err)
		return s.Sources
	}
	got := top(admin.SourceQuery{})
	if len(got) != 3 || got[0].Source != "127.0.0.7" || got[0].Connections != 2 || got[0].PerSecond < 0.2 || got[0].Bytes != 8 {
		t.Errorf("%+v", got)
	}
	if got := top(admin.SourceQuery{By: "refusals", Top: 1}); len(got) != 1 || got[0].Source != "127.0.1.1" || got[0].Refused != 1 || got[0].Connections != 0 {
		t.Errorf("by refusals: %+v", got)
	}
	if got := top(admin.SourceQuery{By: "rate", Prefix4: 24}); len(got) != 2 || got[0].Source != "127.0.0.0/24" || got[0].Connections != 3 {
		t.Errorf("by prefixes: %+v", got)
	}
}

// TestEndGentlyWithTLS: sessions whose TLS ends or begins here end when they are quiet, too.
func TestEndGentlyWithTLS(t *testing.T) {
	t.Parallel()

	g := newTLSRig(t)
	for _, listener := range []string{"ended", "begun"} {
		spoken, beneath, plain := g.session(listener)
		if listener == "begun" { // else the endpoint has said the last word
			sends(t, spoken, "y")
			must(t, second(io.ReadFull(plain, make([]byte, 1))))
		}
		if e := g.end(admin.EndQuery{SessionQuery: admin.SessionQuery{Listener: listener}, Quiet: time.Second}); e.Ended != 1 || !e.Done {
			t.Errorf("%s: %+v", listener, e)
		}
		for _, c := range []net.Conn{beneath, plain} {
			isReset(t, c)
		}
	}
}

// TestEndAfterHalfClose: a session of which the client's half has ended is ended, too. The endpoint keeps the end of
// file that it has got, and the client, which has got none, is reset.
func TestEndAfterHalfClose(t *testing.T) {
	t.Parallel()

	got := make(chan error, 1)
	hold := make(chan struct{})
	r := forwarding(t, sockets.Server(t, func(c net.Conn) {
		_, err := io.Copy(io.Discard, c)
		got <- err
		<-hold
	}), nil)
	defer close(hold)
	c := client(t, r.At("l"))
	must(t, c.CloseWrite())
	if err := <-got; err != nil {
		t.Errorf("the endpoint's end: %v", err)
	}
	if e := r.end(admin.EndQuery{SessionQuery: admin.SessionQuery{State: "client-ended"}, Quiet: time.Second}); e.Ended != 1 || !e.Done {
		t.Errorf("%+v", e)
	}
	isReset(t, c)
}

// socketPath is a path that is short enough for a socket, whatever the test's name.
func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(sockets.Dir(t), "s")
}

// says connects to a unix socket, sends a line, and returns the first line of the answer; empty
// if the client is refused.
func says(t *testing.T, path, sends string) string {
	t.Helper()
	c := dialUnix(t, path)
	defer c.Close()
	_, _ = io.WriteString(c, sends)
	got, err := sockets.ReadLine(c)
	if err != nil && got != "" {
		t.Errorf("%q, and then %v", got, err)
	}
	return got
}

// TestSourcesAreLogged: at debug level ended sessions are logged with their source, listener and endpoint, those with TLS too, and also if the
// client has reset; so are the sources of refused clients.
func TestSourcesAreLogged(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	path, a := socketPath(t), named(t, "a")
	r := &rig{loadbalancer.Setting{Level: slog.LevelDebug}.Start(t, fmt.Sprintf(`
listeners:
  - {name: served, bind: ["127.0.0.1:0", "unix:%s"], upstream: u}
  - {name: tls, bind: "127.0.0.1:0", upstream: u, tls: {certificates: [{cert: c.pem, key: c.key}]}}
  - {name: refused, bind: ["127.0.0.1:0", "unix:%[1]s2"], upstream: u, deny: [all]}
upstreams: [{name: u, endpoints: [{address: %q, name: e}], health_check: off}]`, path, a), "c.pem", cert, "c.key", key)}
	who := fmt.Sprintf("client=\"unix:uid=%d,gid=%d,pid=%d\"", os.Geteuid(), os.Getegid(), os.Getpid())
	c := client(t, r.At("served"))
	line(t, c)
	must(t, errors.Join(c.SetLinger(0), c.Close()))
	r.Logs("session ended", "listener=served", "upstream=u", "endpoint=e", "endpoint_address="+a, "client="+c.LocalAddr().String())
	secure, _, err := shake(t, r.At("tls"), &tls.Config{ServerName: "front.test", RootCAs: trusting(cert)})
	must(t, err)
	secure.Close()
	r.Logs("session ended", "listener=tls", "upstream=u", "endpoint=e", "endpoint_address="+a)
	says(t, path, "")
	r.Logs("session ended", who)
	refused(t, r.At("refused"))
	r.Logs("connection refused", "client=127.0.0.1:")
	says(t, path+"2", "")
	r.Logs("connection refused", who)
}
