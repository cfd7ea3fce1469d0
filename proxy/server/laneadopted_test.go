package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// leaveBy has a session of a listener leave user space, the nth of the process.
func (r *rig) leaveBy(t *testing.T, listener string, n int) *net.TCPConn {
	t.Helper()
	c := client(t, r.At(listener))
	r.Until("it has left", func() bool {
		echoes(t, c, "there and back")
		return r.Status().Lane.Left == int64(n)
	})
	return c
}

// silentTo is an echo that does not answer a question.
func silentTo(c net.Conn) {
	b := make([]byte, 64)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if b[0] != '?' {
			if _, err := c.Write(b[:n]); err != nil {
				return
			}
		}
	}
}

// adoptedBy lists the adopted sessions that a query selects, by client.
func (r *rig) adoptedBy(t *testing.T, q admin.SessionQuery) map[string]admin.Session {
	t.Helper()
	list, err := r.Sessions(context.Background(), q, admin.SessionOrder{})
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]admin.Session)
	for s := range list.Sessions {
		if s.Adopted {
			all[s.Client] = s
		}
	}
	return all
}

// wantEnd expects that a client is reset, and that the log has the end of its adopted session with these words.
func (r *rig) wantEnd(t *testing.T, c *net.TCPConn, words ...string) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience)) // to start may have taken as long
	if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v: %v", words, err)
	}
	r.Logs(append([]string{"an adopted session has ended", "client=" + c.LocalAddr().String()}, words...)...)
}

// TestLaneAdoptedNames: adopted sessions are of the listeners, upstreams and endpoints that the file still has, with their age: they
// are listed, selected, counted and ended as others of these. A part that the file has no more is not known, and not guessed.
func TestLaneAdoptedNames(t *testing.T) {
	t.Parallel()

	pins := pinned(t)
	if pins == "" {
		return
	}
	shop, parts := sockets.Server(t, sockets.Echo), sockets.Server(t, silentTo)
	text := `
lane: {devices: [lo], sessions: 64, after: 5ms, default: require, leave: true, pins: ` + pins + `}
listeners: [{name: web, bind: "127.0.0.1:0", upstream: shop}, {name: api, bind: "127.0.0.1:0", upstream: parts}%s]
upstreams:
  - {name: shop, health_check: off, queue: {timeout: 1m}, on_removed: reset, endpoints: [{name: one, address: %q, connections: 2}]}
  - {name: parts, health_check: off, endpoints: [%q]}`
	before := start(t, fmt.Sprintf(text, `, {name: old, bind: "127.0.0.1:0", upstream: shop}`, shop, parts))
	began := time.Now()
	web, api, old := before.leaveBy(t, "web", 1), before.leaveBy(t, "api", 2), before.leaveBy(t, "old", 3)
	if _, err := io.WriteString(api, "?"); err != nil { // most of its time its endpoint is waited for
		t.Fatal(err)
	}
	if err := before.End(); err != nil {
		t.Fatal(err)
	}
	left := time.Now()
	r := start(t, fmt.Sprintf(text, "", shop, "127.0.0.1:1"))
	least := time.Since(left)
	all := r.adoptedBy(t, admin.SessionQuery{Verdict: admin.AnyVerdict})
	for c, want := range map[*net.TCPConn][3]string{web: {"web", "shop", "one"}, api: {"api", "parts", ""}, old: {"", "shop", "one"}} {
		s := all[c.LocalAddr().String()]
		if [3]string{s.Listener, s.Upstream, s.Name} != want || s.State != "joined" || s.Verdict == "" {
			t.Errorf("%v: %+v", want, s)
		}
		if most := time.Since(began); s.AgeUs < least.Microseconds() || s.AgeUs > most.Microseconds() {
			t.Errorf("%v: age %d us, want %v to %v", want, s.AgeUs, least, most)
		}
	}
	for name, one := range map[string]struct {
		q    admin.SessionQuery
		want *net.TCPConn
	}{
		"by listener": {admin.SessionQuery{Listener: "web"}, web},
		"by upstream": {admin.SessionQuery{Upstream: "parts"}, api},
		"by endpoint": {admin.SessionQuery{Endpoint: "one", Listener: "web"}, web},
		"by verdict":  {admin.SessionQuery{Verdict: "endpoint", Upstream: "parts"}, api},
		"by age":      {admin.SessionQuery{Upstream: "parts", Older: least}, api},
	} {
		if got := r.adoptedBy(t, one.q); len(got) != 1 || got[one.want.LocalAddr().String()].Client == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	r.counted(t, "web", 1, 2)
	waits := client(t, r.At("web"))
	r.Until("their places are taken", func() bool {
		return slices.ContainsFunc(r.Status().Upstreams, func(u admin.Upstream) bool { return u.Name == "shop" && u.Pending == 1 })
	})
	ended, err := r.EndSessions(t.Context(), admin.EndQuery{SessionQuery: admin.SessionQuery{Listener: "web"}, Now: true}, "test")
	if err != nil || ended.Ended != 1 || ended.Touched != 1 {
		t.Error(ended, err)
	}
	r.wantEnd(t, web, "listener=web", "upstream=shop", "endpoint=one", "verdict=")
	echoes(t, waits, "a place is free")
	r.counted(t, "web", 1, 2)
	ended, err = r.EndSessions(t.Context(), admin.EndQuery{SessionQuery: admin.SessionQuery{Verdict: "endpoint", Upstream: "parts"}, Now: true}, "test")
	if err != nil || ended.Ended != 1 {
		t.Error(ended, err)
	}
	r.wantEnd(t, api, "listener=api", "upstream=parts", "endpoint=@unknown", "verdict=endpoint")
	_ = old.SetDeadline(time.Now().Add(patience))
	echoes(t, old, "it goes on")
	r.Reload(fmt.Sprintf(text, "", "127.0.0.1:1", "127.0.0.1:1"))
	r.wantEnd(t, old, "listener=@unknown", "upstream=shop", "endpoint=one", "its endpoint was removed")
}

// counted expects that a listener and the endpoint one have so many sessions.
func (r *rig) counted(t *testing.T, listener string, clients, sessions int64) {
	t.Helper()
	r.Until("they are counted", func() bool {
		return r.Listener(listener).Connections.Active == clients && r.Endpoint("shop", "one").Active == sessions
	})
}

// TestLaneAdoptedEnds: the timeouts of an adopted session are those that its listener has now, and it ends with its endpoint.
func TestLaneAdoptedEnds(t *testing.T) {
	t.Parallel()

	pins := pinned(t)
	if pins == "" {
		return
	}
	far, over := make(chan net.Conn, 10), make(chan struct{})
	endpoint := sockets.Server(t, func(c net.Conn) {
		far <- c
		silentTo(c)
		<-over
	})
	t.Cleanup(func() { close(over) })
	var failing [2]net.Listener // as the sessions are adopted, and later
	for i := range failing {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		sockets.Serve(t, l, sockets.Echo)
		failing[i] = l
	}
	fail := func(l net.Listener) {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	text := `
lane: {devices: [lo], sessions: 64, after: 5ms, default: auto, leave: true, pins: ` + pins + `}
listeners:
  - {name: rests, bind: "127.0.0.1:0", upstream: u}
  - {name: idle, bind: "127.0.0.1:0", upstream: u, timeouts: {idle: %s}}
  - {name: half, bind: "127.0.0.1:0", upstream: u, timeouts: {half_close: %[1]s}}
  - {name: life, bind: "127.0.0.1:0", upstream: u, timeouts: {lifetime: %[1]s}}
  - {name: deaf, bind: "127.0.0.1:0", upstream: u, socket: {user_timeout: %[1]s}}
  - {name: ill, bind: "127.0.0.1:0", upstream: ill}
  - {name: sick, bind: "127.0.0.1:0", upstream: sick}
upstreams:
  - {name: u, health_check: off, outlier_detection: off, endpoints: [` + endpoint + `]}
  - {name: ill, on_unhealthy: reset, health_check: %s, endpoints: [` + failing[0].Addr().String() + `]}
  - {name: sick, on_unhealthy: reset, health_check: %[2]s, endpoints: [` + failing[1].Addr().String() + `]}`
	before := start(t, fmt.Sprintf(text, "1h", "off"))
	clients := make(map[string]*net.TCPConn)
	for n, listener := range []string{"rests", "idle", "half", "life", "deaf", "ill", "sick"} {
		clients[listener] = before.leaveBy(t, listener, n+1)
	}
	if err := before.End(); err != nil {
		t.Fatal(err)
	}
	fail(failing[0])
	r := start(t, fmt.Sprintf(text, "1h", "{interval: 100ms, timeout: 2s, fall: 1}"))
	r.Until("they are adopted", func() bool { return r.Status().Lane.Adopted == int64(len(clients)) })
	r.wantEnd(t, clients["ill"], "listener=ill", "upstream=ill", "its endpoint is unhealthy")
	delete(clients, "ill")
	for _, c := range clients {
		_ = c.SetDeadline(time.Now().Add(patience))
		echoes(t, c, "adopted")
	}
	fail(failing[1])
	r.wantEnd(t, clients["sick"], "listener=sick", "upstream=sick", "its endpoint is unhealthy")
	if err := clients["half"].CloseWrite(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		c := (<-far).(*net.TCPConn)
		defer c.Close() // a deaf one learns of no end
		if c.RemoteAddr().String() == r.adoptedBy(t, admin.SessionQuery{Listener: "deaf"})[clients["deaf"].LocalAddr().String()].EndpointLocal {
			if err := filter(sockets.FD(t, c), syscall.SO_ATTACH_FILTER); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := clients["deaf"].Write([]byte("unheard")); err != nil {
		t.Fatal(err)
	}
	r.Until("one is half-closed", func() bool { return len(r.adoptedBy(t, admin.SessionQuery{State: "client-ended"})) == 1 })
	r.Reload(fmt.Sprintf(text, "400ms", "off"))
	r.wantEnd(t, clients["half"], "listener=half", "after an end of file")
	r.wantEnd(t, clients["idle"], "listener=idle", "it was idle for too long")
	r.wantEnd(t, clients["life"], "listener=life", "it has reached its lifetime")
	r.wantEnd(t, clients["deaf"], "listener=deaf", "has not acknowledged bytes for too long")
	echoes(t, clients["rests"], "the others bind it not")
	if got := r.adoptedBy(t, admin.SessionQuery{Listener: "rests"}); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}
