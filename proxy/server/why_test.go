package server_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// TestWhy: sessions are found by each of their names, and the verdict is that of the side that keeps them waiting.
func TestWhy(t *testing.T) {
	t.Parallel()

	silent := answering(t, func(*net.TCPConn, []byte) bool { return true })
	r := &rig{loadbalancer.Setting{Level: slog.LevelDebug}.Start(t, fmt.Sprintf(`
listeners:
  - {name: a, bind: "127.0.0.1:0", upstream: slow}
  - {name: b, bind: "127.0.0.1:0", upstream: quick}
upstreams:
  - {name: slow, endpoints: [{name: s, address: %q}]}
  - {name: quick, endpoints: [{name: q, address: %q}]}
`, silent, named(t, "q")))}
	slow, quick := client(t, r.Listener("a").Addresses[0]), client(t, r.Listener("b").Addresses[0])
	sends(t, slow, "?")
	line(t, quick)
	r.Until("the endpoint keeps a session waiting", func() bool {
		w := r.why(admin.WhyQuery{Upstream: "slow"})
		return w.Count == 1 && w.Verdict == "endpoint" && w.Sessions[0].Client == slow.LocalAddr().String() && w.Verdicts["endpoint"] == 1 && w.Sessions[0].AgeUs > 100_000
	})
	for _, q := range []admin.WhyQuery{
		{Session: slow.LocalAddr().String()}, {Endpoint: "s"}, {Endpoint: silent}, {Listener: "a"},
	} {
		if w := r.why(q); w.Count != 1 || len(w.Sessions) != 1 || w.Sessions[0].Name != "s" || w.Sessions[0].EndpointLeg == nil {
			t.Errorf("%+v finds %+v", q, w)
		}
	}
	for q, want := range map[admin.WhyQuery]int64{
		{}: 2, {Source: netip.MustParsePrefix("127.0.0.0/8")}: 2, {Source: netip.MustParsePrefix("10.0.0.0/8")}: 0,
	} {
		if w := r.why(q); w.Count != want || w.Waiting != 0 || strings.Contains(w.Advice, "without an endpoint") {
			t.Errorf("%+v finds %d, of whom %d wait, want %d: %s", q, w.Count, w.Waiting, want, w.Advice)
		}
	}
	for q, want := range map[admin.WhyQuery]string{
		{Session: "127.0.0.1:1", For: time.Hour}: "GET /v1/sessions", {Upstream: "none"}: "known: quick, slow",
		{Listener: "none", For: time.Hour}: "known: a, b", {Endpoint: "none", For: time.Hour}: "known: q, s",
	} {
		if _, err := r.Server.Why(t.Context(), q); !errors.Is(err, admin.ErrNotFound) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	slow.Close()
	r.Logs("session ended", "listener=a", "verdict=")
}

// TestWhyNamesTheEndpoint: the endpoint that has most of the time of the verdict is named, or else its upstream, with
// figures that add up.
func TestWhyNamesTheEndpoint(t *testing.T) {
	t.Parallel()

	silent := func() string { return sockets.Server(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }) }
	slow, other := silent(), silent()
	r := &rig{loadbalancer.Setting{}.Start(t, fmt.Sprintf(`
listeners:
  - {name: a, bind: "127.0.0.1:0", upstream: one}
  - {name: b, bind: "127.0.0.1:0", upstream: two}
  - {name: c, bind: "127.0.0.1:0", upstream: quick}
upstreams:
  - {name: one, endpoints: [{name: s, address: %q}]}
  - {name: two, endpoints: [{name: o, address: %q}, {name: p, address: %q}]}
  - {name: quick, endpoints: [{name: q, address: %q}]}
`, slow, other, silent(), named(t, "q")))}
	asks := func(listener string, n int) {
		t.Helper()
		for range n {
			must(t, second(client(t, r.Listener(listener).Addresses[0]).Write([]byte("?"))))
		}
	}
	asks("a", 3)
	line(t, client(t, r.Listener("c").Addresses[0]))
	var w admin.Why
	r.Until("the endpoint keeps the sessions waiting", func() bool {
		w = r.why(admin.WhyQuery{})
		return w.Count == 4 && w.Verdict == "endpoint" && w.Most != nil && w.Most.Limited == 3 && w.Most.Share >= 0.9
	})
	if m := w.Most; m.Upstream != "one" || m.Endpoint != slow || m.Name != "s" || m.Sessions != 3 || m.Share < 0.9 {
		t.Errorf("most of the time has %+v", w.Most)
	}
	sessions, share := int64(0), 0.0
	for _, e := range w.Endpoints {
		sessions, share = sessions+e.Sessions, share+e.Share
	}
	if len(w.Endpoints) != 2 || w.Endpoints[0].Name != "s" || w.Endpoints[1].Name != "q" || sessions != w.Count || share < 0.99 || share > 1.01 {
		t.Errorf("%+v: %d sessions, %v of the time", w.Endpoints, sessions, share)
	}
	asks("b", 8)
	r.Until("both endpoints of the other upstream keep theirs waiting", func() bool {
		w = r.why(admin.WhyQuery{For: 150 * time.Millisecond})
		return w.Verdict == "endpoint" && w.Most != nil && w.Most.Upstream == "two"
	})
	if m := w.Most; m.Endpoint != "" || m.Name != "" || m.Sessions != 8 || m.Upstream != "two" {
		t.Errorf("most of the time has %+v", m)
	}
	if w := r.why(admin.WhyQuery{Upstream: "two"}); w.Most == nil || w.Most.Endpoint != "" {
		t.Errorf("of two endpoints that are equally slow, %+v is named", w.Most)
	}
	if w := r.why(admin.WhyQuery{Upstream: "quick"}); w.Most != nil && w.Verdict != "endpoint" { // which is slow on a busy machine
		t.Errorf("%+v is named for the verdict %s", w.Most, w.Verdict)
	}
}

// TestWhyNamesWhoKeepsClientsWaiting: an endpoint that answers nothing is named, though most of the time is of many other clients, each of
// which takes its time for the next question. They are named once nobody waits for an answer.
func TestWhyNamesWhoKeepsClientsWaiting(t *testing.T) {
	t.Parallel()

	r := &rig{loadbalancer.Setting{}.Start(t, fmt.Sprintf(`
listeners:
  - {name: a, bind: "127.0.0.1:0", upstream: slow}
  - {name: b, bind: "127.0.0.1:0", upstream: quick}
upstreams:
  - {name: slow, endpoints: [{name: frozen, address: %q}]}
  - {name: quick, endpoints: [{name: q, address: %q}]}
`, sockets.Server(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), sockets.Server(t, func(c net.Conn) { _, _ = io.Copy(c, c) })))}
	for range 10 {
		c := client(t, r.Listener("b").Addresses[0])
		go func() {
			for answer := make([]byte, 1); ; time.Sleep(50 * time.Millisecond) {
				if _, err := c.Write([]byte("?")); err != nil {
					return
				}
				if _, err := c.Read(answer); err != nil {
					return
				}
			}
		}()
	}
	window := admin.WhyQuery{For: 300 * time.Millisecond}
	r.Until("the clients are silent for most of the time", func() bool {
		w := r.why(window)
		return w.Count == 10 && w.Verdict == "client" && w.Shares["client"] > 0.6
	})
	waits := client(t, r.Listener("a").Addresses[0])
	sends(t, waits, "?")
	var w admin.Why
	r.Until("the endpoint is named, though most of the time is the clients'", func() bool {
		w = r.why(window)
		return w.Count == 11 && w.Shares["client"] > 0.5 && w.Verdict == "endpoint" && w.Most != nil && w.Most.Name == "frozen"
	})
	if w.Sessions[0].Client != waits.LocalAddr().String() {
		t.Errorf("most of it %+v, and the first session is %+v", w.Most, w.Sessions[0])
	}
}

// TestWhyOfNobody: without a session there is no verdict, and clients that wait are counted.
func TestWhyOfNobody(t *testing.T) {
	t.Parallel()

	r := startUpstream(t, `endpoints: [{name: e, address: %q}], health_check: off, queue: {hold: 1m}`, sockets.Refusing(t))
	if w := r.why(admin.WhyQuery{}); w.Verdict != admin.NoVerdict || w.Advice != "no client is connected to an endpoint now" || w.Waiting != 0 || w.Endpoints == nil || w.Most != nil {
		t.Errorf("%+v", w)
	}
	for range 2 {
		client(t, r.At("l"))
	}
	r.Until("the clients are held", func() bool { return r.Status().Upstreams[0].Pending == 2 })
	for q, want := range map[admin.WhyQuery]int64{
		{}: 2, {Upstream: "u"}: 2, {Listener: "l"}: 2, {Source: netip.MustParsePrefix("10.0.0.0/8")}: 0, {Endpoint: "e"}: 0,
	} {
		r.Until(fmt.Sprintf("%+v: %d wait", q, want), func() bool { // one that is trying an endpoint does not wait
			w := r.why(q)
			return w.Waiting == want && w.Verdict == admin.NoVerdict && strings.Contains(w.Advice, "clients without an endpoint: 2, see penstock status") == (want > 0)
		})
	}
}

// why returns the verdict on the sessions of a query.
func (r *rig) why(q admin.WhyQuery) admin.Why {
	r.T.Helper()
	w, err := r.Why(r.T.Context(), q)
	must(r.T, err)
	return w
}
