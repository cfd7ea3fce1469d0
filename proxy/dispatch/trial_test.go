package dispatch_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/dispatch"
	"github.com/penstock/penstock/proxy/health"
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
			up.Well()
			own.Well()
			rig.serve().Ended(r, nil)
			if up.State() != health.Open || own.State() != health.Open {
				t.Errorf("after trials that ended so: %v, %v", up.State(), own.State())
			}
			rig.serve().Ended(r, nil) // as a last resort
			if up.State() != health.Open || own.State() != health.Open {
				t.Errorf("after a last resort that ended so: %v, %v", up.State(), own.State())
			}
			if c := rig.up.Counts(); c.LastResort != 1 || c.LastResortAnswered != 0 {
				t.Errorf("%+v", c)
			}
			rig.pass(5 * time.Minute) // a trial before its time was in vain
			last := rig.serve()
			dispatch.FirstByte(last)
			if up.State() != health.HalfOpen || own.State() != health.HalfOpen {
				t.Errorf("after a last resort that was served: %v, %v", up.State(), own.State())
			}
			last.Ended(answered, nil)
			if c := rig.up.Counts(); c.LastResort != 2 || c.LastResortAnswered != 1 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestTrialsThatLast: many a server that is well sends nothing, so a trial that goes on has
// succeeded, once its end would not be a failure any more.
func TestTrialsThatLast(t *testing.T) {
	rig, up, own := broken(t)
	up.Well()
	own.Well()
	b := rig.serve()
	for range 4 {
		rig.pass(time.Second)
		if b.(core.Watcher).Watch(relay.Turn{}, rig.clock); up.State() != health.HalfOpen || own.State() != health.HalfOpen {
			t.Fatalf("before: %v, %v", up.State(), own.State())
		}
	}
	rig.pass(time.Second)
	if b.(core.Watcher).Watch(relay.Turn{}, rig.clock); up.State() != health.Closed || own.State() != health.Closed {
		t.Errorf("after 5 s: %v, %v", up.State(), own.State())
	}
	b.Ended(answered, nil)
}

// broken is an upstream whose breaker is open, as is that of its only endpoint.
func broken(t *testing.T) (r *rig, up, own *health.Breaker) {
	r = newRig(t, 1, dispatch.ViewConfig{}, nil)
	cfg := health.BreakerConfig{FailurePercentage: 1, Window: time.Minute, MinVolume: 1, Open: time.Hour, TrialConnections: 1}
	up = r.breakerOf(cfg)
	e := r.members[0].Endpoint.Of.(*dispatch.Endpoint)
	own = health.NewBreaker(r.keeper, "e", e, &cfg)
	e.SetBreaker(own)
	own.Report(0, health.Silent, r.clock)
	up.Report(0, health.Silent, r.clock)
	if up.State() != health.Open || own.State() != health.Open {
		t.Fatal(up.State(), own.State())
	}
	return r, up, own
}

// TestLastResortsThatAreNone: an attempt that fails is no connection, and a client that was held
// and gets an endpoint that is usable again has it as everybody else.
func TestLastResortsThatAreNone(t *testing.T) {
	r := newRig(t, 1, dispatch.ViewConfig{QueueSize: 5, Hold: time.Minute}, nil)
	r.endpoint(0).SetDraining(true)
	s, _ := r.search()
	if do := s.Next(r.clock).Do; do != core.Park {
		t.Fatal(do)
	}
	r.endpoint(0).SetDraining(false)
	r.up.Room()
	if do := s.Next(r.clock).Do; do != core.Connect {
		t.Fatal(do)
	}
	limits, err := s.Reached(r.clock)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	limits.Of.(core.Bond).Ended(answered, nil)
	if c := r.up.Counts(); c.Held != 1 || c.LastResort != 0 {
		t.Errorf("after one that was held: %+v", c)
	}
	s, _ = r.search()
	defer s.Close()
	for range 3 {
		if do := s.Next(r.clock).Do; do != core.Connect {
			t.Fatal(do)
		}
		s.Failed(syscall.ECONNREFUSED, r.clock)
		if do := s.Next(r.clock).Do; do != core.Park {
			t.Fatal(do)
		}
		r.pass(time.Second) // when the endpoint may be tried again
	}
	if c := r.up.Counts(); c.Held != 2 || c.LastResort != 0 {
		t.Errorf("after attempts that failed: %+v", c)
	}
	if do := s.Next(r.clock).Do; do != core.Connect {
		t.Fatal(do)
	}
	if limits, err = s.Reached(r.clock); err != nil {
		t.Fatal(err)
	}
	limits.Of.(core.Bond).Ended(answered, nil)
	if c := r.up.Counts(); c.LastResort != 1 {
		t.Errorf("after one that was made: %+v", c)
	}
}
