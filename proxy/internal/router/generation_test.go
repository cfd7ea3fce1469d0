package router_test

import (
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"
	"weak"

	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/match"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
)

const everybody = "0.0.0.0/0"

// heldRig is a rig with a client that is held, since the only endpoint refuses connections.
func heldRig(t *testing.T, change func(*router.ListenerConfig)) (*rig, *router.Search, *worker.Client) {
	t.Helper()
	r := newRig(t, 1, router.SnapshotConfig{QueueSize: 10, QueueTimeout: time.Second, Hold: time.Minute}, change)
	r.listener.Enforce()
	s, c := r.search()
	r.held(s)
	t.Cleanup(s.Close)
	return r, s, c
}

// TestRulesOfWhoHasTheAddress: a client that waits is held to the rules of the listener that now
// has the address at which it was accepted. If no listener has it, the rules of its own apply.
func TestRulesOfWhoHasTheAddress(t *testing.T) {
	for name, test := range map[string]struct {
		own, others string // denied
		moves       bool
		want        error
	}{
		"the new owner denies it":           {others: everybody, moves: true, want: limit.ErrDenied},
		"the old one does":                  {own: everybody, moves: true},
		"nobody has the address":            {others: everybody},
		"nobody has it, and its own denies": {own: everybody, want: limit.ErrDenied},
	} {
		t.Run(name, func(t *testing.T) {
			var owner *router.ListenerState
			r, waits, late := heldRig(t, func(lc *router.ListenerConfig) {
				lc.StateOf = func(*worker.Client) *router.ListenerState { return owner }
			})
			if test.own != "" {
				r.reload(func(lc *router.ListenerConfig) { lc.Access.Deny = set(test.own) })
			}
			r.reload(func(lc *router.ListenerConfig) {
				lc.Name, lc.State = "other", router.NewListenerState("", nil)
				if test.others != "" {
					lc.Access.Deny = set(test.others)
				}
				if test.moves {
					owner = lc.State
				}
			})
			if step := r.inVain(waits); waits.Err() != test.want || (step.Action == worker.Park) != (test.want == nil) {
				t.Errorf("one that is held: %v, %v, want %v", step.Action, waits.Err(), test.want)
			}
			if err := r.listener.Service().Admitter.Admit(late, true, r.clock); err != test.want {
				t.Errorf("one that is accepted meanwhile: %v, want %v", err, test.want)
			}
		})
	}
}

// TestHeldGoesWhereTheAddressLeads: a client that is held goes where the listener leads that has its
// address by now.
func TestHeldGoesWhereTheAddressLeads(t *testing.T) {
	var owner *router.ListenerState
	r, waits, _ := heldRig(t, func(lc *router.ListenerConfig) {
		lc.StateOf = func(*worker.Client) *router.ListenerState { return owner }
	})
	well := newRig(t, 1, router.SnapshotConfig{}, nil)
	r.reload(func(lc *router.ListenerConfig) {
		lc.Name, lc.State, lc.Default = "other", router.NewListenerState("", nil), well.snapshot
		owner = lc.State
	})
	if step := waits.Next(r.clock); step.Action != worker.Connect || well.active() != 1 {
		t.Errorf("%v, %v, %d there", step.Action, waits.Err(), well.active())
	}
}

// TestHeaderRulesThatChange: a client waits, and another one's header is yet to come. They are
// refused if, by the rules in force, their header would not be taken, or one would be missing. No
// other client is refused.
func TestHeaderRulesThatChange(t *testing.T) {
	const peer, others = "192.0.2.0/24", "198.51.100.0/24"
	one, two := from(peer), from(peer)
	one.Versions, two.Versions = []int{1}, []int{2}
	for name, test := range map[string]struct {
		before, now *proxyproto.Policy
		version     int // of its header; 0: it has none
		want        error
	}{
		"its proxy is not believed any more": {from(peer), from(others), 1, proxyproto.ErrUnexpected},
		"no proxy is":                        {from(peer), nil, 1, proxyproto.ErrUnexpected},
		"of another version":                 {from(peer), two, 1, proxyproto.ErrVersion},
		"of this version":                    {from(peer), one, 1, nil},
		"its proxy and others":               {from(peer), from(everybody), 1, nil},
		"everybody":                          {from(peer), new(proxyproto.Policy), 1, nil},
		"it speaks for itself":               {from(others), nil, 0, nil},
		"it is to speak for others":          {nil, from(peer), 0, proxyproto.ErrMissing},
		"everybody is":                       {nil, new(proxyproto.Policy), 0, proxyproto.ErrMissing},
	} {
		t.Run(name, func(t *testing.T) {
			says := func(c *worker.Client) {
				c.Header = proxyproto.Info{Version: test.version}
				if test.version != 0 {
					c.Header.Source, c.Header.Destination = netip.MustParseAddrPort("203.0.113.1:1"), netip.MustParseAddrPort("203.0.113.2:2")
				}
			}
			policy := test.before
			r, waits, c := heldRig(t, func(lc *router.ListenerConfig) { lc.Preread.Header = policy })
			says(c)
			connects, c := r.search()
			says(c)
			reading, late := r.search()
			defer reading.Close()
			admitter := r.listener.Service().Admitter
			if err := admitter.Admit(late, false, r.clock); err != nil {
				t.Fatal(err)
			}
			r.reload(func(lc *router.ListenerConfig) { lc.Preread.Header = test.now })
			says(late)
			if err := admitter.AdmitSource(late, r.clock); err != test.want {
				t.Errorf("its header comes afterwards: %v, want %v", err, test.want)
			}
			if _, err := connects.Reached(r.clock); err != test.want {
				t.Errorf("it is connected: %v, want %v", err, test.want)
			}
			if step := r.inVain(waits); waits.Err() != test.want || (step.Action == worker.Park) != (test.want == nil) {
				t.Errorf("it is held: %v, %v, want %v", step.Action, waits.Err(), test.want)
			}
			if door := r.listener.Config().State; test.want != nil {
				if door.Refused(waits.Err(), router.NewRefusals()); door.Refusals.ByReason(false)["proxy_header"] != 1 {
					t.Errorf("counted as %v", door.Refusals.ByReason(false))
				}
			}
		})
	}
}

// TestTimesThatChange: clients wait for as long as their upstream is now configured, from when
// they began to. A shorter time has them all look again, a longer one costs none its place.
func TestTimesThatChange(t *testing.T) {
	for name, queued := range map[string]bool{"held": false, "in the queue": true} {
		for _, to := range []time.Duration{time.Second, time.Hour} {
			r := newRig(t, 1, router.SnapshotConfig{QueueSize: 10, QueueTimeout: time.Minute, Hold: time.Minute}, nil)
			r.snapshot.Enforce()
			r.listener.Enforce()
			if queued {
				r.endpoint(0).SetLimit(1)
				if s, _ := r.search(); s.Next(r.clock).Action != worker.Connect {
					t.Fatal("the first one is not served")
				}
			}
			var waits []*router.Search
			for range 3 {
				s := router.NewWaitingSearch(r.listener, r.snapshot)
				s.Begin(worker.NewClient(source.TCP(netip.MustParseAddrPort("192.0.2.1:1")), netip.MustParseAddrPort("192.0.2.2:2")), r.clock)
				r.held(s)
				waits = append(waits, s)
			}
			onLoop, _ := r.search()
			r.held(onLoop)
			cfg := r.snapshot.SnapshotConfig
			cfg.QueueTimeout, cfg.Hold = to, to
			next := router.NewSnapshot(r.upstream, &cfg)
			next.SetEndpoints(r.set)
			for _, s := range waits {
				select {
				case <-s.Woken():
				default:
				}
			}
			next.Enforce()
			for i, s := range waits {
				if to < time.Minute && len(s.Woken()) == 0 {
					t.Errorf("%s, to %v: number %d is not woken", name, to, i)
				}
			}
			r.reload(func(lc *router.ListenerConfig) { lc.Default = next })
			r.pass(30 * time.Second)
			if to > time.Minute {
				r.pass(time.Minute)
			}
			for i, s := range append(waits, onLoop) {
				if step := r.inVain(s); (step.Action == worker.Park) != (to > time.Minute) || to > time.Minute && !queued && step.Timeout > time.Hour-90*time.Second {
					t.Errorf("%s, to %v: number %d: %v for %v, %v", name, to, i, step.Action, step.Timeout, s.Err())
				}
			}
			for _, s := range append(waits, onLoop) {
				s.Close()
			}
		}
	}
}

// TestUnknownSpendsNothing: clients without an address, however many, leave a listener's rate, that
// of all listeners, and its places, to others.
func TestUnknownSpendsNothing(t *testing.T) {
	rate := new(limit.Rate)
	rate.Set(1)
	r := newRig(t, 1, router.SnapshotConfig{}, func(lc *router.ListenerConfig) { lc.Process = rate })
	door := r.listener.Config().State
	door.Rate.Set(1)
	door.Connections.Set(1)
	admitter := r.listener.Service().Admitter
	for range 1000 {
		c := worker.NewClient(source.Source{}, netip.AddrPort{})
		if err := admitter.Admit(c, true, r.clock); err != source.ErrUnknown {
			t.Fatal(err)
		}
	}
	if err := admitter.CanAccept(r.clock); err != nil || rate.Until(r.clock) != 0 || door.Connections.InUse() != 0 {
		t.Errorf("%v, %v, %d places are taken", err, rate.Until(r.clock), door.Connections.InUse())
	}
}

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
		r.takes(queued, worker.Park)
		r.endpoint(0).SetLimit(2)
		connecting, _ := r.search()
		queued.Next(r.clock) // whose turn it was: it connects
		r.takes(connecting, worker.Park)
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
				r.listener.Config().State.Refused(s.Err(), router.NewRefusals())
			}
			s.Close()
		}
		queued.Close()
		if n := r.listener.Config().State.Refusals.ByReason(false)["address"]; (n == 2) != (want != nil) || waits != 2 {
			t.Errorf("deny %s: %d are counted", rule, n)
		}
		if n := r.active(); n != 1 && want != nil {
			t.Errorf("%d sessions, want that from before", n)
		}
	}
}

func set(prefix string) *source.Set {
	return source.NewSet([]source.Rule{source.Prefix(netip.MustParsePrefix(prefix))})
}

func from(prefix string) *proxyproto.Policy { return &proxyproto.Policy{From: set(prefix)} }

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

// held has a client try endpoints that refuse connections, until it waits.
func (r *rig) held(s *router.Search) {
	r.t.Helper()
	if step := r.inVain(s); step.Action != worker.Park {
		r.t.Fatalf("%+v, %v", step, s.Err())
	}
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
			for _, n := range r.upstream.Refusals.ByReason(false) {
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

// TestUnroutedWhileSwapped: while a reload is brought into force, a client that was accepted under the next generation
// goes where that leads, and not where the one before does. Afterwards a client that was accepted before goes there, too.
func TestUnroutedWhileSwapped(t *testing.T) {
	var now, next *router.Listener
	r := newRig(t, 1, router.SnapshotConfig{}, func(lc *router.ListenerConfig) {
		lc.Rules = func(*worker.Client) (*router.Listener, *router.Listener) { return now, next }
	})
	well := newRig(t, 1, router.SnapshotConfig{}, nil)
	before, _ := r.search()
	defer before.Close()
	now = r.listener
	next = r.reload(func(lc *router.ListenerConfig) { lc.Default = well.snapshot })
	r.listener = next
	after, _ := r.search()
	defer after.Close()
	r.takes(after, worker.Connect)
	if r.active() != 0 || well.active() != 1 {
		t.Errorf("%d go where the generation before leads, %d where the next one does", r.active(), well.active())
	}
	now, next = next, nil
	r.takes(before, worker.Connect)
	if r.active() != 0 || well.active() != 2 {
		t.Errorf("afterwards %d go where the generation before leads, %d where the next one does", r.active(), well.active())
	}
}

// TestQueuedKeepsItsPlace: a client that waits for room, and that a reload gives another way to the same upstream, keeps
// its place there, and the time since it began to wait.
func TestQueuedKeepsItsPlace(t *testing.T) {
	cfg := router.SnapshotConfig{QueueSize: 10, QueueTimeout: time.Minute}
	r := newRig(t, 1, cfg, nil)
	r.listener.Enforce()
	r.occupy()
	first, _ := r.search()
	defer first.Close()
	r.takes(first, worker.Park)
	cfg.Respond = []byte("busy")
	r.listener = r.reload(func(lc *router.ListenerConfig) { lc.Default = router.NewSnapshot(r.upstream, &cfg) })
	r.pass(40 * time.Second)
	second, _ := r.search()
	defer second.Close()
	r.takes(second, worker.Park)
	r.takes(first, worker.Park)
	r.takes(second, worker.Park) // it was asked while the first was on its way
	r.endpoint(0).SetLimit(2)
	r.takes(second, worker.Park)
	r.endpoint(0).SetLimit(1)
	r.pass(21 * time.Second)
	r.takes(first, worker.Respond)
	r.takes(second, worker.Park)
}

// TestLateSessions: a session that begins after its endpoint was forgotten is reported, once, unless the endpoint is
// back.
func TestLateSessions(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{}, nil)
	late, want := 0, 0
	for _, forgotten := range []bool{false, true, false} {
		s, _ := r.search()
		r.takes(s, worker.Connect)
		if forgotten {
			r.upstream.Forget(r.endpoint(0), func() { late++ })
			want++
		}
		r.reached(s)
		if s.Close(); late != want {
			t.Errorf("forgotten %v: %d late sessions, want %d", forgotten, late, want)
		}
		r.upstream.Recall(r.endpoint(0))
	}
}

// TestRecalled: an endpoint that is back does not keep what was to be called for its late sessions.
func TestRecalled(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{}, nil)
	late := new(struct{ sessions [64]int })
	kept := weak.Make(late)
	r.upstream.Forget(r.endpoint(0), func() { late.sessions[0]++ })
	late = nil
	r.upstream.Recall(r.endpoint(0))
	if runtime.GC(); kept.Value() != nil {
		t.Error("it is kept")
	}
	runtime.KeepAlive(r)
}

// TestReroutedWaitsBehindOthers: a client that was the first that its upstream held is the last where
// a reload has it go while it connects.
func TestReroutedWaitsBehindOthers(t *testing.T) {
	const hold = 3 * time.Second
	cfg := router.SnapshotConfig{QueueSize: 10, QueueTimeout: time.Second, Hold: hold}
	r, other := newRig(t, 1, cfg, nil), newRig(t, 1, cfg, nil)
	r.listener.Enforce()
	moved, _ := r.search()
	r.held(moved)
	r.clock += int64(hold) - int64(10*time.Millisecond)
	r.takes(moved, worker.Connect)
	other.clock = r.clock
	first, _ := other.search()
	other.held(first)
	r.reload(func(lc *router.ListenerConfig) { lc.Default = other.snapshot })
	r.pass(20 * time.Millisecond)
	moved.Failed(syscall.ECONNREFUSED, r.clock)
	r.held(moved)
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

// TestConnectedToAsTheNewestSays: from the moment in which clients can find the endpoints of a reload, before its listeners are in force,
// no client connects to one, or is joined with one, in the former way.
func TestConnectedToAsTheNewestSays(t *testing.T) {
	for name, change := range map[string]func(*router.SnapshotConfig){
		"tls":        func(c *router.SnapshotConfig) { c.TLS = new(tlsterm.Client) },
		"send_proxy": func(c *router.SnapshotConfig) { c.SendProxy = 2 },
		"nothing":    func(*router.SnapshotConfig) {},
	} {
		for _, stage := range []string{"held", "in the queue", "connecting", "abandoned"} {
			r := newRig(t, 1, router.SnapshotConfig{QueueSize: 10, QueueTimeout: time.Minute, Hold: time.Minute}, nil)
			r.listener.Enforce()
			if stage == "in the queue" {
				r.occupy()
			}
			s, _ := r.search()
			step, want := s.Next(r.clock), worker.Connect
			if stage == "held" {
				s.Failed(syscall.ECONNREFUSED, r.clock)
				step = r.inVain(s)
			}
			if stage == "held" || stage == "in the queue" {
				want = worker.Park
			}
			if step.Action != want {
				t.Fatalf("%s, %s: %v", name, stage, step.Action)
			}
			cfg := r.snapshot.SnapshotConfig
			change(&cfg)
			router.NewSnapshot(r.upstream, &cfg).SetEndpoints(r.set)
			r.endpoint(0).SetLimit(2)
			r.clock += int64(time.Second)
			overruled := s.Overruled()
			switch stage {
			case "connecting":
				if overruled != (name != "nothing") {
					t.Errorf("%s: overruled is %v", name, overruled)
				}
			case "abandoned":
				if s.Abandon(r.clock) != (name != "nothing") {
					t.Errorf("%s: it goes on", name)
				}
				s.Failed(record.ErrAbandoned, r.clock)
				for step = s.Next(r.clock); step.Action == worker.Pause || step.Action == worker.Park; step = s.Next(r.clock) {
					r.clock += int64(time.Second)
				}
			}
			switch step = s.Next(r.clock); {
			case name == "tls" && step.Action != worker.Handover, name != "tls" && step.Action != worker.Connect, step.ProxyHeader != (name == "send_proxy"):
				t.Errorf("%s, %s: %v, PROXY header %v", name, stage, step.Action, step.ProxyHeader)
			case s.Overruled():
				t.Errorf("%s, %s: overruled again", name, stage)
			}
			s.Close()
			if n := r.active(); (n == 1) != (stage == "in the queue") || n > 1 {
				t.Errorf("%s, %s: %d places at the endpoint are taken", name, stage, n)
			}
		}
	}
}

// TestSplitAfterAReload: a client that connects to one part of a split goes on, whatever part later clients get, when a
// reload leaves its route as it was.
func TestSplitAfterAReload(t *testing.T) {
	well := newRig(t, 2, router.SnapshotConfig{}, nil)
	split := func(lc *router.ListenerConfig, snapshots ...*router.UpstreamSnapshot) {
		half, err := lb.NewWeightedSplit(50, 50)
		if err != nil {
			t.Fatal(err)
		}
		table, err := match.New([]match.Route{{}})
		if err != nil {
			t.Fatal(err)
		}
		lc.Table, lc.Routes = table, []router.Route{{Split: half, Snapshots: snapshots}}
	}
	for range 20 {
		r := newRig(t, 1, router.SnapshotConfig{}, nil)
		r.listener = r.reload(func(lc *router.ListenerConfig) { split(lc, r.snapshot, well.snapshot) })
		s, _ := r.search()
		r.takes(s, worker.Connect)
		r.reload(func(lc *router.ListenerConfig) { split(lc, r.snapshot, well.snapshot) })
		for range 3 {
			r.pass(250 * time.Millisecond)
			if s.Abandon(r.clock) {
				s.Failed(record.ErrAbandoned, r.clock)
				step := s.Next(r.clock)
				t.Errorf("it is given up, and then %v, %v", step.Action, s.Err())
				break
			}
		}
		s.Close()
	}
}

// TestHeldOnce: clients that are held look again after a reload that changes how their upstream is connected to, or its TLS
// client. They are not counted as held again there, but at another upstream they are.
func TestHeldOnce(t *testing.T) {
	r, s, _ := heldRig(t, nil)
	cfg := r.snapshot.SnapshotConfig
	cfg.SendProxy = 2
	next := router.NewSnapshot(r.upstream, &cfg)
	next.SetEndpoints(r.set)
	r.reload(func(lc *router.ListenerConfig) { lc.Default = next })
	r.held(s)
	if n := r.upstream.Counts().Held; n != 1 {
		t.Errorf("at the same upstream: counted %d times", n)
	}
	other := newRig(t, 1, r.snapshot.SnapshotConfig, nil)
	r.reload(func(lc *router.ListenerConfig) { lc.Default = other.snapshot })
	r.held(s)
	if n := other.upstream.Counts().Held; n != 1 {
		t.Errorf("at another upstream: counted %d times", n)
	}
}
