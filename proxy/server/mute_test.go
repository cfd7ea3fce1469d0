package server_test

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

// TestMute: of three servers, without further configuration, one has never answered a client, and
// is judged by its peers' answers. The endpoint is ejected, and every later client is answered.
// Either its process is stopped, or it runs and its clients give up.
func TestMute(t *testing.T) {
	t.Run("stands still", func(t *testing.T) {
		t.Parallel()
		at, signal := echoProcess(t)
		signal(syscall.SIGSTOP)
		testMute(t, at, 0, "nor does it close a connection that was closed", func() { signal(syscall.SIGCONT) })
	})
	t.Run("lives", func(t *testing.T) {
		t.Parallel()
		at, _ := echoProcess(t, "mute")
		testMute(t, at, 3*time.Second, "of them have given up", nil)
	})
}

func testMute(t *testing.T, mute string, wait time.Duration, why string, mend func()) {
	one, _ := echoProcess(t)
	other, _ := echoProcess(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{name: e0, address: %q}, {name: e1, address: %q}, {name: e2, address: %q}]}]`, one, mute, other))
	at := r.At("l")
	c := newCrowd(t, func() (net.Conn, error) { return net.Dial("tcp", at) })
	c.wait = wait
	began := time.Now()
	c.come()
	state := func(want admin.State) func() bool {
		return func() bool { return r.Endpoint("u", "e1").State == want }
	}
	r.Until("the endpoint is ejected", state(admin.Ejected))
	t.Logf("ejected after %v", time.Since(began).Round(time.Millisecond))
	e := r.Endpoint("u", "e1")
	if !strings.HasPrefix(e.Why, "unanswered: ") || !strings.Contains(e.Why, "and no client before them; its peers answer") || !strings.Contains(e.Why, why) {
		t.Errorf("%+v", e)
	}
	answered, total := c.answered.Load(), e.Total
	r.Until("fifty more requests are answered", func() bool { return c.answered.Load() >= answered+50 })
	if e := r.Endpoint("u", "e1"); e.Total > total {
		t.Errorf("%d more clients were sent to it", e.Total-total)
	}
	if mend != nil {
		mend()
		r.Until("the endpoint is back", state(admin.Up))
	}
	c.leave()
	for _, name := range []string{"e0", "e2"} {
		if e := r.Endpoint("u", name); e.State != admin.Up || e.Silence != nil {
			t.Errorf("%+v", e)
		}
	}
}

// TestSilent: the only server is stopped, so its clients cannot be sent elsewhere. That is a
// problem in the status, and its beginning and end are logged.
func TestSilent(t *testing.T) {
	t.Parallel()
	address, signal := echoProcess(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{name: e, address: %q}]}]`, address))
	at := r.At("l")
	c := newCrowd(t, func() (net.Conn, error) { return net.Dial("tcp", at) })
	c.come()
	r.Until("the endpoint's answers are judged", func() bool { a := r.Endpoint("u", "e").Answers; return a != nil && a.Judged })
	signal(syscall.SIGSTOP)
	problem := func() bool { return r.Endpoint("u", "e").Silence != nil }
	r.Until("the silence is reported", problem)
	if e := r.Endpoint("u", "e"); e.State != admin.Up || e.Silence.Clients < 8 || e.Silence.Proof != "nor does it close a connection that was closed" {
		t.Errorf("%+v: %+v", e, e.Silence)
	}
	r.Logs("level=WARN", "msg=answers", "upstream=u endpoint=e", "state=silent", "clients have waited, the first for", "it used to answer")
	signal(syscall.SIGCONT)
	r.Until("the silence is over", func() bool { return !problem() })
	r.Logs("level=INFO", "msg=answers", "state=answering", "it answers again; no client was answered for")
}

// TestDrainedPeer: of two servers one is drained by an operator, and its sessions go on. The other one stops: it is
// reported, and not ejected, for there is no other to send clients to.
func TestDrainedPeer(t *testing.T) {
	t.Parallel()
	stays, signal := echoProcess(t)
	drained, _ := echoProcess(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, drain_timeout: 1m, endpoints: [{name: stays, address: %q}, {name: drained, address: %q}]}]`, stays, drained))
	at := r.At("l")
	c := newCrowd(t, func() (net.Conn, error) { return net.Dial("tcp", at) })
	c.come()
	r.Until("the endpoints' answers are judged", func() bool {
		a, b := r.Endpoint("u", "stays").Answers, r.Endpoint("u", "drained").Answers
		return a != nil && b != nil && a.Judged && b.Judged
	})
	if err := r.DrainEndpoint("u", "drained", true, "test"); err != nil {
		t.Fatal(err)
	}
	signal(syscall.SIGSTOP)
	r.Until("the silence is reported, or the endpoint is ejected", func() bool {
		e := r.Endpoint("u", "stays")
		return e.Silence != nil || e.State == admin.Ejected
	})
	if e := r.Endpoint("u", "stays"); e.State != admin.Up {
		t.Errorf("%+v", e)
	}
	signal(syscall.SIGCONT)
	r.Until("the silence is over", func() bool { return r.Endpoint("u", "stays").Silence == nil })
}
