package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// TestLaneAdoptedWhy: adopted sessions are found by each of their names, beside others, with a verdict on their time in the lane, which is said.
func TestLaneAdoptedWhy(t *testing.T) {
	t.Parallel()

	shop, parts := sockets.Server(t, sockets.Echo), sockets.Server(t, silentTo)
	text := `listeners: [{name: web, bind: "127.0.0.1:0", upstream: shop}, {name: api, bind: "127.0.0.1:0", upstream: parts}%s]
upstreams:
  - {name: shop, health_check: off, endpoints: [{name: one, address: ` + shop + `}]}
  - {name: parts, health_check: off, endpoints: [{name: two, address: ` + parts + `}]}`
	asks := func(clients []*net.TCPConn) {
		if _, err := io.WriteString(clients[1], "?"); err != nil { // its endpoint is waited for from here on
			t.Fatal(err)
		}
	}
	r, clients := adopts(t, fmt.Sprintf(text, `, {name: old, bind: "127.0.0.1:0", upstream: shop}`), fmt.Sprintf(text, ""), asks, "web", "api", "old")
	if r == nil {
		return
	}
	why := func(q admin.WhyQuery) admin.Why {
		t.Helper()
		w, err := r.Server.Why(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	api := clients[1].LocalAddr().String()
	all := r.adoptedBy(t, admin.SessionQuery{})
	for _, window := range []time.Duration{0, 30 * time.Millisecond} {
		for _, q := range []admin.WhyQuery{
			{Session: all[api].ID}, {Session: api}, {Endpoint: "two"}, {Endpoint: parts}, {Upstream: "parts"}, {Listener: "api"},
		} {
			q.For = window
			r.Until("its endpoint is waited for", func() bool { return why(q).Verdicts["endpoint"] == 1 })
			w := why(q)
			if w.Count != 1 || w.Adopted != 1 || len(w.Sessions) != 1 || w.Verdicts["endpoint"] != 1 || len(w.Endpoints) != 1 || w.Endpoints[0].Name != "two" || w.Most == nil || w.WindowUs != window.Microseconds() {
				t.Errorf("%+v finds %+v", q, w)
				continue
			}
			if s := w.Sessions[0]; s.Client != api || !s.Adopted || !s.Waits.CPUUnknown || s.Waits.CPU != 0 || s.Name != "two" || s.AgeUs != max(s.AgeUs, all[api].AgeUs) || !strings.Contains(s.Why, "of its time in the lane") || s.EndpointLeg == nil {
				t.Errorf("%+v finds %+v", q, s)
			}
		}
	}
	own := client(t, r.At("web"))
	echoes(t, own, "of this process")
	for q, want := range map[admin.WhyQuery][2]int64{
		{}: {4, 3}, {Upstream: "shop"}: {3, 2}, {Listener: "web"}: {2, 1}, {Source: netip.MustParsePrefix("127.0.0.0/8")}: {4, 3}, {Source: netip.MustParsePrefix("10.0.0.0/8")}: {0, 0},
	} {
		if w := why(q); w.Count != want[0] || w.Adopted != want[1] {
			t.Errorf("%+v finds %d, %d of them adopted, want %v", q, w.Count, w.Adopted, want)
		}
	}
	if _, err := r.Server.Why(t.Context(), admin.WhyQuery{Listener: "old"}); !errors.Is(err, admin.ErrNotFound) {
		t.Errorf("a name that is not known: %v", err)
	}
}
