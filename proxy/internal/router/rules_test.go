package router_test

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// TestRulesThatChange: a client that was accepted, and has not got an endpoint when other rules of
// access come into force, is held to these, wherever it waits; one of another source, and a
// session, is left alone.
func TestRulesThatChange(t *testing.T) {
	const client = "192.0.2.1/32" // of the rig's clients
	for _, rule := range []string{client, "198.51.100.0/24"} {
		var waits int
		want := limit.ErrDenied
		if rule != client {
			want = nil
		}
		cfg := router.SnapshotConfig{QueueSize: 10, QueueTimeout: time.Minute, Hold: time.Minute, Attempts: 1}
		r := newRig(t, 1, cfg, func(lc *router.ListenerConfig) { lc.Preread.Header = from("203.0.113.0/24") })
		r.listener.Enforce()
		r.occupy()
		queued, _ := r.search()
		if step := queued.Next(r.clock); step.Action != worker.Park {
			t.Fatal(step)
		}
		r.endpoint(0).SetLimit(2)
		connecting, _ := r.search()
		queued.Next(r.clock) // whose turn it was: it connects
		if step := connecting.Next(r.clock); step.Action != worker.Park {
			t.Fatal(step)
		}
		accepted, late := r.searchOf("203.0.113.9:1") // whose header comes later
		admitter := r.listener.Service().Admitter
		if err := admitter.Admit(late, false, r.clock); err != nil {
			t.Fatal(err)
		}

		deny := set(rule)
		r.reload(func(lc *router.ListenerConfig) { lc.Access.Deny = deny })

		late.Header = proxyproto.Info{Version: 1, Source: netip.MustParseAddrPort("192.0.2.1:7"), Destination: netip.MustParseAddrPort("192.0.2.2:2")}
		if err := admitter.AdmitSource(late, r.clock); err != want {
			t.Errorf("deny %s: one whose header comes afterwards: %v", rule, err)
		}
		admitter.Released(late.AdmissionToken)
		if _, err := queued.Reached(r.clock); err != want {
			t.Errorf("deny %s: one that connects: %v", rule, err)
		}
		for name, s := range map[string]*router.Search{"one that waits": connecting, "one that was accepted": accepted} {
			if step := s.Next(r.clock); (step.Action == worker.GiveUp) != (want != nil) || s.Err() != want {
				t.Errorf("deny %s: %s: %v, %v", rule, name, step.Action, s.Err())
			}
			if waits++; want != nil {
				r.listener.Config().State.Refused(s.Err())
			}
			s.Close()
		}
		queued.Close()
		if n := r.listener.Config().State.Counts().Refused["address"]; (n == 2) != (want != nil) || waits != 2 {
			t.Errorf("deny %s: %d are counted", rule, n)
		}
		if n := r.active(); n != 1 && want != nil {
			t.Errorf("%d sessions, want that from before", n)
		}
	}
}

// set is of addresses.
func set(prefix string) *source.Set {
	return source.NewSet([]source.Rule{source.Prefix(netip.MustParsePrefix(prefix))})
}

// from has headers accepted from addresses.
func from(prefix string) *proxyproto.Policy { return &proxyproto.Policy{From: set(prefix)} }

// reload brings another generation of the listener into force.
func (r *rig) reload(change func(*router.ListenerConfig)) *router.Listener {
	next := *r.listener.Config()
	change(&next)
	l := router.NewListener(&next)
	l.Enforce()
	return l
}

// inVain has a client try endpoints that refuse connections, until it does something else.
func (r *rig) inVain(s *router.Search) worker.Step {
	r.t.Helper()
	for range 100 {
		if step := s.Next(r.clock); step.Action != worker.Connect {
			return step
		}
		s.Failed(syscall.ECONNREFUSED, r.clock)
	}
	r.t.Fatal("it continues to try")
	return worker.Step{}
}

// TestWaitersGoWhereTheListenerLeads: a client that is held, or waits for room, when a reload has
// its listener lead to another upstream is served there, and counted as refused nowhere; one
// whose way is the same is refused after its time.
func TestWaitersGoWhereTheListenerLeads(t *testing.T) {
	for _, elsewhere := range []bool{true, false} {
		for _, full := range []bool{false, true} {
			r := newRig(t, 1, router.SnapshotConfig{QueueSize: 10, QueueTimeout: time.Second, Hold: time.Second}, nil)
			r.listener.Enforce()
			if full {
				r.occupy()
			}
			waits, _ := r.search()
			step := r.inVain(waits)
			if step.Action != worker.Park {
				t.Fatalf("full %v: %v", full, step)
			}
			well := newRig(t, 1, router.SnapshotConfig{}, nil)
			next := *r.listener.Config()
			if elsewhere {
				next.Default = well.snapshot
			}
			router.NewListener(&next).Enforce()
			r.clock += int64(2 * time.Second)
			if elsewhere {
				step = waits.Next(r.clock)
			} else {
				step = r.inVain(waits)
			}
			var refused int64
			for _, n := range r.upstream.Refusals().ByReason() {
				refused += n
			}
			if (step.Action == worker.Connect) != elsewhere || (refused == 0) != elsewhere {
				t.Errorf("elsewhere %v, full %v: %v, %v, %d refused", elsewhere, full, step.Action, waits.Err(), refused)
			}
			if elsewhere {
				if _, err := waits.Reached(r.clock); err != nil || well.active() != 1 {
					t.Errorf("full %v: %v, %d sessions there", full, err, well.active())
				}
			}
			waits.Close()
		}
	}
}

// TestReroutedWaitsBehindOthers: a client that was the first that its upstream held is the last where
// a reload has it go while it connects.
func TestReroutedWaitsBehindOthers(t *testing.T) {
	const hold = 3 * time.Second
	cfg := router.SnapshotConfig{QueueSize: 10, QueueTimeout: time.Second, Hold: hold}
	r, other := newRig(t, 1, cfg, nil), newRig(t, 1, cfg, nil)
	r.listener.Enforce()
	moved, _ := r.search()
	if step := r.inVain(moved); step.Action != worker.Park {
		t.Fatal(step)
	}
	r.clock += int64(hold) - int64(10*time.Millisecond)
	if step := moved.Next(r.clock); step.Action != worker.Connect {
		t.Fatal(step)
	}
	other.clock = r.clock
	first, _ := other.search()
	if step := other.inVain(first); step.Action != worker.Park {
		t.Fatal(step)
	}
	r.reload(func(lc *router.ListenerConfig) { lc.Default = other.snapshot })
	r.pass(20 * time.Millisecond)
	moved.Failed(syscall.ECONNREFUSED, r.clock)
	if step := r.inVain(moved); step.Action != worker.Park {
		t.Fatalf("%v, %v", step, moved.Err())
	}
	if n := other.upstream.Waiting(); n != 2 {
		t.Fatalf("%d wait there", n)
	}
	r.pass(time.Second)
	if step := moved.Next(r.clock); step.Action != worker.Park {
		t.Errorf("the one that was moved: %v, want the other to be before it", step.Action)
	}
	if step := first.Next(r.clock); step.Action != worker.Connect {
		t.Errorf("the first: %v", step.Action)
	}
	moved.Close()
	first.Close()
}
