package server_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// TestWhy: sessions are found by each of their names, and the verdict is that of the side that keeps them waiting.
func TestWhy(t *testing.T) {
	silent := sockets.Server(t, func(c net.Conn) {
		var b [1]byte
		for {
			if _, err := c.Read(b[:]); err != nil {
				return
			}
		}
	})
	r := &rig{loadbalancer.Setting{Level: slog.LevelDebug}.Start(t, fmt.Sprintf(`
listeners:
  - {name: a, bind: "127.0.0.1:0", upstream: slow}
  - {name: b, bind: "127.0.0.1:0", upstream: quick}
upstreams:
  - {name: slow, endpoints: [{name: s, address: %q}]}
  - {name: quick, endpoints: [{name: q, address: %q}]}
`, silent, named(t, "q")))}
	slow, quick := client(t, r.Listener("a").Addresses[0]), client(t, r.Listener("b").Addresses[0])
	if _, err := slow.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}
	line(t, quick)
	why := func(q admin.WhyQuery) admin.Why {
		t.Helper()
		w, err := r.Server.Why(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	r.Until("the endpoint keeps a session waiting", func() bool {
		w := why(admin.WhyQuery{Upstream: "slow"})
		return w.Count == 1 && w.Verdict == "endpoint" && w.Sessions[0].Client == slow.LocalAddr().String() && w.Verdicts["endpoint"] == 1 && w.Sessions[0].AgeUs > 100_000
	})
	for _, q := range []admin.WhyQuery{
		{Session: slow.LocalAddr().String()}, {Endpoint: "s"}, {Endpoint: silent}, {Listener: "a"},
	} {
		if w := why(q); w.Count != 1 || len(w.Sessions) != 1 || w.Sessions[0].Name != "s" || w.Sessions[0].EndpointLeg == nil {
			t.Errorf("%+v finds %+v", q, w)
		}
	}
	for q, want := range map[admin.WhyQuery]int64{
		{}: 2, {Source: netip.MustParsePrefix("127.0.0.0/8")}: 2, {Source: netip.MustParsePrefix("10.0.0.0/8")}: 0,
		{Session: "127.0.0.1:1"}: 0, {Upstream: "none"}: 0,
	} {
		if w := why(q); w.Count != want {
			t.Errorf("%+v finds %d, want %d", q, w.Count, want)
		}
	}
	slow.Close()
	r.Logs("session ended", "listener=a", "verdict=")
}

// TestEndpointLocal: a listed session has the address from which its endpoint was connected to.
func TestEndpointLocal(t *testing.T) {
	from := make(chan string, 1)
	endpoint := sockets.Server(t, func(c net.Conn) {
		from <- c.RemoteAddr().String()
		fmt.Fprintln(c, "hello")
		_, _ = c.Read(make([]byte, 1))
	})
	r := forwarding(t, endpoint, nil)
	c := client(t, r.At("l"))
	defer c.Close()
	line(t, c)
	want := <-from
	for s := range r.Sessions(t.Context()) {
		if s.EndpointLocal != want || s.Endpoint != endpoint {
			t.Errorf("%+v, want %s", s, want)
		}
	}
}
