package admin_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/proxy/admin"
)

// TestSessions: all sessions are listed, and the list says whether there are more.
func TestSessions(t *testing.T) {
	many := 100_000
	if race.Enabled {
		many /= 10
	}
	for n, more := range map[int]bool{0: false, 3: true, many: false} {
		r := newRig(t, "")
		r.balancer.sessions, r.balancer.moreSessions = n, more
		s, err := r.Sessions(t.Context(), admin.SessionQuery{}, admin.SessionOrder{})
		if err != nil || s.Sessions == nil || len(s.Sessions) != n || s.More != more {
			t.Errorf("%d sessions: %d are listed, more %v, %v", n, len(s.Sessions), s.More, err)
		}
	}
}

// TestSteering: the balancer is asked for that which the client was asked for.
func TestSteering(t *testing.T) {
	r := newRig(t, "")
	all := admin.SessionQuery{
		ID: "0.1.2", Listener: "web", Upstream: "u", Endpoint: "[::1]:80", Source: "10.0.0.0/8", Older: time.Minute, Idle: time.Second, Bytes: 1 << 20, State: "joined", Verdict: "client_network",
	}
	me := fmt.Sprintf("uid=%d pid=%d", os.Geteuid(), os.Getpid())
	const words = "--id 0.1.2 --listener web --upstream u --endpoint [::1]:80 --source 10.0.0.0/8 --older 1m0s --idle 1s --bytes 1048576 --state joined --verdict client_network"
	for want, ask := range map[string]func() error{
		"sessions " + words + ` by "bytes", 7`: func() error {
			_, err := r.Sessions(t.Context(), all, admin.SessionOrder{By: "bytes", Top: 7})
			return err
		},
		"end " + words + " now false over 5m0s grace 10s quiet 20s reset true dry false by " + me: func() error {
			e, err := r.EndSessions(t.Context(), admin.EndQuery{SessionQuery: all, Over: 5 * time.Minute, Grace: 10 * time.Second, Quiet: 20 * time.Second, ThenReset: true})
			if e.Touched != 3 || e.Ended != 2 || e.Kept != 1 || !e.Done {
				t.Errorf("%+v", e)
			}
			return err
		},
		"end --all now true over 0s grace 0s quiet 0s reset false dry true by " + me: func() error {
			_, err := r.EndSessions(t.Context(), admin.EndQuery{All: true, Now: true, DryRun: true})
			return err
		},
		"stop by " + me: func() error { _, err := r.StopEnding(t.Context()); return err },
		"sources {By:rate Top:3 Prefix4:24 Prefix6:56}": func() error {
			_, err := r.Sources(t.Context(), admin.SourceQuery{By: "rate", Top: 3, Prefix4: 24, Prefix6: 56})
			return err
		},
		`deny 10.0.0.7 at "web" for 1h0m0s by ` + me: func() error { _, err := r.Deny(t.Context(), "10.0.0.7", "web", time.Hour, false); return err },
		`undeny 10.0.0.7 at "" by ` + me:             func() error { return r.Undeny(t.Context(), "10.0.0.7", "") },
		"end --listener web --source 10.0.0.7 now true over 0s grace 0s quiet 0s reset false dry false by " + me: func() error {
			d, err := r.Deny(t.Context(), "10.0.0.7", "web", time.Hour, true)
			if d.Ended == nil {
				t.Error("it is not said how many sessions were ended")
			}
			return err
		},
	} {
		r.balancer.forget()
		if err := ask(); err != nil || r.balancer.last() != want {
			t.Errorf("the last call is %q, want %q, %v", r.balancer.last(), want, err)
		}
	}
	if d, err := r.Denied(t.Context()); err != nil || len(d.Denied) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestSteeringIsStrict: a request that is not understood, or ends all by mistake, changes nothing.
func TestSteeringIsStrict(t *testing.T) {
	r := newRig(t, "")
	for name, ask := range map[string]func() error{
		"end of nothing": func() error { _, err := r.EndSessions(t.Context(), admin.EndQuery{}); return err },
		"end of any verdict": func() error {
			_, err := r.EndSessions(t.Context(), admin.EndQuery{SessionQuery: admin.SessionQuery{Verdict: admin.AnyVerdict}})
			return err
		},
		"end of all and some": func() error {
			_, err := r.EndSessions(t.Context(), admin.EndQuery{All: true, SessionQuery: admin.SessionQuery{Listener: "web"}})
			return err
		},
		"now, with grace": func() error {
			_, err := r.EndSessions(t.Context(), admin.EndQuery{All: true, Now: true, Grace: 1})
			return err
		},
		"clients without an endpoint": func() error {
			_, err := r.EndSessions(t.Context(), admin.EndQuery{SessionQuery: admin.SessionQuery{State: "waiting"}})
			return err
		},
		"now, and quiet": func() error {
			_, err := r.EndSessions(t.Context(), admin.EndQuery{All: true, Now: true, Quiet: time.Minute})
			return err
		},
		"quiet in no time": func() error {
			_, err := r.EndSessions(t.Context(), admin.EndQuery{All: true, Quiet: time.Millisecond})
			return err
		},
		"over a week": func() error {
			_, err := r.EndSessions(t.Context(), admin.EndQuery{All: true, Over: 168 * time.Hour})
			return err
		},
		"state": func() error {
			_, err := r.Sessions(t.Context(), admin.SessionQuery{State: "open"}, admin.SessionOrder{})
			return err
		},
		"order": func() error {
			_, err := r.Sessions(t.Context(), admin.SessionQuery{}, admin.SessionOrder{By: "x"})
			return err
		},
		"top": func() error {
			_, err := r.Sessions(t.Context(), admin.SessionQuery{}, admin.SessionOrder{Top: 1 << 20})
			return err
		},
		"prefix":       func() error { _, err := r.Sources(t.Context(), admin.SourceQuery{Prefix4: 33}); return err },
		"short denial": func() error { _, err := r.Deny(t.Context(), "10.0.0.7", "", time.Millisecond, false); return err },
	} {
		r.balancer.forget()
		if err := ask(); err == nil || r.balancer.last() != "" {
			t.Errorf("%s: %v, and the call %q", name, err, r.balancer.last())
		}
	}
}
