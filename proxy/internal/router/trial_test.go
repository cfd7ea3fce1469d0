package router_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// TestTrialsThatEndWithoutAByte: that an endpoint is connected to, and resets the client or ends
// its session without a byte, is no success of a trial, of the upstream's breaker or its own, and
// no open breaker is tried for it.
func TestTrialsThatEndWithoutAByte(t *testing.T) {
	for name, r := range map[string]relay.Result{
		"reset":           {Reason: relay.ReasonReset, Culprit: relay.SideB},
		"reset, had sent": {Reason: relay.ReasonReset, Culprit: relay.SideB, AToB: relay.Flow{Copied: 5}},
		"end of file":     {Reason: relay.ReasonEOF, First: relay.SideB, Duration: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			rig, up, own := broken(t)
			up.Recovered()
			own.Recovered()
			rig.serve().Ended(r, nil)
			if up.State() != health.Open || own.State() != health.Open {
				t.Errorf("after trials that ended so: %v, %v", up.State(), own.State())
			}
			rig.serve().Ended(r, nil) // as a last resort
			if up.State() != health.Open || own.State() != health.Open {
				t.Errorf("after a last resort that ended so: %v, %v", up.State(), own.State())
			}
			if c := rig.upstream.Counts(); c.LastResort != 1 || c.LastResortAnswered != 0 {
				t.Errorf("%+v", c)
			}
			rig.pass(5 * time.Minute) // a trial before its time was unsuccessful
			last := rig.serve()
			router.FirstByte(last)
			if up.State() != health.HalfOpen || own.State() != health.HalfOpen {
				t.Errorf("after a last resort that was served: %v, %v", up.State(), own.State())
			}
			last.Ended(answered, nil)
			if c := rig.upstream.Counts(); c.LastResort != 2 || c.LastResortAnswered != 1 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestTrialsThatLast: many a healthy server sends nothing. So a trial that continues has
// succeeded, once its end would not be a failure any more.
func TestTrialsThatLast(t *testing.T) {
	rig, up, own := broken(t)
	up.Recovered()
	own.Recovered()
	b := rig.serve()
	for range 4 {
		rig.pass(time.Second)
		if b.(worker.Watcher).Watch(relay.Turn{}, rig.clock); up.State() != health.HalfOpen || own.State() != health.HalfOpen {
			t.Fatalf("before: %v, %v", up.State(), own.State())
		}
	}
	rig.pass(time.Second)
	if b.(worker.Watcher).Watch(relay.Turn{}, rig.clock); up.State() != health.Closed || own.State() != health.Closed {
		t.Errorf("after 5 s: %v, %v", up.State(), own.State())
	}
	b.Ended(answered, nil)
}

// broken is an upstream whose breaker is open, as is that of its only endpoint.
func broken(t *testing.T) (r *rig, up, own *health.Breaker) {
	r = newRig(t, 1, router.SnapshotConfig{}, nil)
	cfg := health.BreakerConfig{FailurePercentage: 1, Window: time.Minute, MinVolume: 1, Open: time.Hour, TrialConnections: 1}
	up = r.breakerOf(cfg)
	e := r.members[0].Endpoint.Of.(*router.Endpoint)
	own = health.NewBreaker(r.keeper, "e", e, &cfg)
	e.SetBreaker(own)
	own.Report(0, health.Silent, r.clock)
	up.Report(0, health.Silent, r.clock)
	if up.State() != health.Open || own.State() != health.Open {
		t.Fatal(up.State(), own.State())
	}
	return r, up, own
}

// TestLastResortsThatAreNone: an attempt that fails is no connection. A client that was held and
// gets an endpoint that is usable again has an ordinary connection.
func TestLastResortsThatAreNone(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{QueueSize: 5, Hold: time.Minute}, nil)
	r.endpoint(0).SetDraining(true)
	s, _ := r.search()
	if do := s.Next(r.clock).Action; do != worker.Park {
		t.Fatal(do)
	}
	r.endpoint(0).SetDraining(false)
	r.upstream.Room()
	if do := s.Next(r.clock).Action; do != worker.Connect {
		t.Fatal(do)
	}
	limits, err := s.Reached(r.clock)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	limits.Of.(worker.Binding).Ended(answered, nil)
	if c := r.upstream.Counts(); c.Held != 1 || c.LastResort != 0 {
		t.Errorf("after one that was held: %+v", c)
	}
	s, _ = r.search()
	defer s.Close()
	for range 3 {
		if do := s.Next(r.clock).Action; do != worker.Connect {
			t.Fatal(do)
		}
		s.Failed(syscall.ECONNREFUSED, r.clock)
		if do := s.Next(r.clock).Action; do != worker.Park {
			t.Fatal(do)
		}
		r.pass(time.Second) // when the endpoint may be tried again
	}
	if c := r.upstream.Counts(); c.Held != 2 || c.LastResort != 0 {
		t.Errorf("after attempts that failed: %+v", c)
	}
	if do := s.Next(r.clock).Action; do != worker.Connect {
		t.Fatal(do)
	}
	if limits, err = s.Reached(r.clock); err != nil {
		t.Fatal(err)
	}
	limits.Of.(worker.Binding).Ended(answered, nil)
	if c := r.upstream.Counts(); c.LastResort != 1 {
		t.Errorf("after one that was made: %+v", c)
	}
}

// TestALookMakesNoRoom: a client that waits for room, and looks at endpoints that it does not take, does
// not look again because of that: neither at one that is ejected, nor at one whose breaker is full.
func TestALookMakesNoRoom(t *testing.T) {
	for name, keep := range map[string]func(r *rig){
		"ejected": func(r *rig) { r.endpoint(0).SetEjected(true) },
		"its breaker is full": func(r *rig) {
			b := health.NewBreaker(r.keeper, "e", r.endpoint(0), &health.BreakerConfig{Connections: 1})
			b.Begin()
			r.endpoint(0).SetBreaker(b)
		},
	} {
		for _, fallback := range []bool{false, true} {
			r := newRig(t, 2, router.SnapshotConfig{QueueSize: 100, QueueTimeout: 5 * time.Second}, nil)
			r.endpoint(0).SetLimit(2)
			r.endpoint(1).SetLimit(1)
			r.endpoint(0).SetDraining(true)
			session := r.serve()
			r.endpoint(0).SetDraining(false)
			keep(r)
			first := r
			if fallback {
				first = newRig(t, 1, router.SnapshotConfig{Fallback: r.snapshot}, nil)
				first.endpoint(0).SetLimit(1)
				defer first.serve().Ended(answered, nil)
			}
			c := &crowd{rig: first, clocks: []*int64{&r.clock}, accepts: true}
			c.come(3)
			c.wait(10 * time.Millisecond)
			if c.connects != 0 || r.upstream.Asked() || first.upstream.Asked() {
				t.Errorf("%s, fallback %v: %d connects; a client is to look again %v, %v", name, fallback, c.connects, r.upstream.Asked(), first.upstream.Asked())
			}
			session.Ended(answered, nil)
			if c.wait(10 * time.Millisecond); c.served != 1 {
				t.Errorf("%s, fallback %v: %d have the room of one", name, fallback, c.served)
			}
			c.leave()
		}
	}
}
