package main

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/generation"
)

// aStatus has everything in it that a status for people tells.
func aStatus(now time.Time) *admin.Status {
	bytes := admin.Bytes{
		ClientToEndpoint: admin.Moved{Spliced: 1_000_000, Copied: 200_000}, EndpointToClient: admin.Moved{Spliced: 3_400_000_000},
	}
	return &admin.Status{
		PID: 7, State: admin.Serving, Generation: 3, Started: now.Add(-time.Hour), Bytes: bytes,
		Pending:     &generation.Waiting{Generation: 3, Until: now.Add(90 * time.Second), RollbackIf: "failures>50", Increase: 4},
		Connections: admin.Connections{Accepted: 5, Active: 3, Refused: 1},
		Listeners: []admin.Listener{{
			Name: "web", State: admin.Paused, PausedAt: "connections", Pauses: map[string]int64{"connections": 2}, Addresses: []string{"127.0.0.1:443"}, Bytes: bytes,
			Routes: []admin.Route{{Match: "sni: [a.test]", To: map[string]float64{"shop": 95, "shop-next": 5}}, {To: map[string]float64{"shop": 100}}},
		}},
		Upstreams: []admin.Upstream{
			{
				Name: "shop", Balance: "first", Breaker: "open", BreakerWhy: "9 of 9 connections failed", BreakerUntil: now.Add(time.Minute), Bytes: bytes,
				Discovery: &admin.Discovery{Kind: "dns", From: "A db.test", Endpoints: 3, Confirmed: now.Add(-5 * time.Minute), Error: "SERVFAIL", Failures: 8},
				Endpoints: []admin.Endpoint{
					{Name: "a", State: admin.Up, Weight: 1, Zone: "z1", Bytes: bytes},
					{Name: "b", State: admin.Down, Why: strings.Repeat("long ", 50), Weight: 1},
					{Name: "c", State: admin.Ejected, Why: "5 failures in a row", Until: now.Add(30 * time.Second), Backup: true},
				},
			},
			{Name: "other", Balance: "round_robin", Breaker: "closed", Discovery: &admin.Discovery{Kind: "file", From: "eps.yaml", Endpoints: 2}},
		},
	}
}

// TestStatusForPeople holds what of a status is told, and that a long cause widens nothing.
func TestStatusForPeople(t *testing.T) {
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.Local)
	var text strings.Builder
	if err := writeStatus(&text, aStatus(now), now); err != nil {
		t.Fatal(err)
	}
	want := `process      7      serving               generation 3, for 1h0m0s
      generation 3 waits to be confirmed until 10:01:30 (in 1m30s), or is taken back; sooner if failures>50 (4 until now)
connections                               active 3, accepted 5, refused 1, in 1.20 MB, out 3.40 GB
listener     web    paused (connections)  active 0, accepted 0, refused 0, in 1.20 MB, out 3.40 GB; 127.0.0.1:443
      has paused at its limits (connections 2)
      route 0 is split (sni: [a.test]): shop 95 %, shop-next 5 %
upstream     shop   first, breaker open   active 0, waiting 0, in 1.20 MB, out 3.40 GB
      breaker open until 10:01:00 (in 1m0s): 9 of 9 connections failed
      3 endpoints from dns A db.test, which has failed 8 times: the last good answer was at 2026-01-02 09:55:00, 5m0s ago
      SERVFAIL
  endpoint   a      up                    active 0, ever 0, failures 0, weight 1, zone z1, in 1.20 MB, out 3.40 GB
  endpoint   b      down                  active 0, ever 0, failures 0, weight 1, in 0 B, out 0 B
      ` + strings.Repeat("long ", 50) + `
  endpoint   c      ejected               active 0, ever 0, failures 0, weight 0, backup, in 0 B, out 0 B
      ejected until 10:00:30 (in 30s): 5 failures in a row
upstream     other  round_robin           active 0, waiting 0, in 0 B, out 0 B
      2 endpoints from file eps.yaml
`
	if got := text.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestStatusIsNarrowed to a listener, an upstream, or both.
func TestStatusIsNarrowed(t *testing.T) {
	for _, test := range []struct {
		listener, upstream   string
		listeners, upstreams int
		err                  string
	}{
		{"", "", 1, 2, ""},
		{"web", "", 1, 0, ""},
		{"", "other", 0, 1, ""},
		{"web", "shop", 1, 1, ""},
		{"nobody", "", 0, 0, `there is no listener "nobody": there are web`},
		{"", "nobody", 0, 0, `there is no upstream "nobody": there are shop, other`},
	} {
		s := aStatus(time.Now())
		err := (&statusCmd{Listener: test.listener, Upstream: test.upstream}).narrow(s)
		switch {
		case test.err != "":
			if err == nil || err.Error() != test.err {
				t.Errorf("%+v: %v", test, err)
			}
		case err != nil || len(s.Listeners) != test.listeners || len(s.Upstreams) != test.upstreams:
			t.Errorf("%+v: %d listeners, %d upstreams, %v", test, len(s.Listeners), len(s.Upstreams), err)
		case test.upstream == "other" && s.Upstreams[0].Name != "other":
			t.Errorf("%+v: %s", test, s.Upstreams[0].Name)
		}
	}
}
