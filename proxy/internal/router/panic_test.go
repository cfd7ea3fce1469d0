package router_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// panicking returns a rig in panic: its endpoint is ejected, and the breakers are open, the
// upstream's and its own.
func panicking(t *testing.T, change func(*router.ListenerConfig)) (r *rig, up, own *health.Breaker) {
	r = newRig(t, 1, router.SnapshotConfig{}, change)
	up = r.breakerOf(health.BreakerConfig{FailurePercentage: 1, MinVolume: 1, Connections: 1})
	e := r.members[0].Endpoint.Of.(*router.Endpoint)
	own = health.NewBreaker(r.keeper, "e", e, &health.BreakerConfig{
		FailurePercentage: 1, Window: time.Minute, MinVolume: 1, Open: time.Minute, TrialConnections: 1,
	})
	e.SetBreaker(own)
	r.upstream.SetPanic(health.NewPanic(r.keeper, "upstream u"))
	_ = r.refuse()
	e.SetEjected(true)
	if up.State() != health.Open || own.State() != health.Open {
		t.Fatal(up.State(), own.State())
	}
	if err := r.refuse(); !errors.Is(err, router.ErrCircuitOpen) {
		t.Fatal(err)
	}
	r.set = lb.NewSet(r.members, &lb.Config{OnRoom: r.upstream.Room, PanicBelow: 0.5}, nil)
	r.set.Attach()
	if _, begun := r.upstream.Panic(); begun != 0 {
		t.Fatal("it panics without a panic_below")
	}
	r.snapshot.SetEndpoints(r.set)
	if now, begun := r.upstream.Panic(); !now || begun != 1 {
		t.Fatalf("panic %v, begun %d times", now, begun)
	}
	return r, up, own
}

// TestPanicPassesBreakers: in panic clients pass breakers that would let none through, but not
// past their bounds. A client that fails changes nothing. A client that is served has the
// breakers tried and closed.
func TestPanicPassesBreakers(t *testing.T) {
	r, up, own := panicking(t, nil)
	_ = r.refuse()
	if up.State() != health.Open || own.State() != health.Open || r.members[0].Endpoint.Of.(*router.Endpoint).Failures() != 2 {
		t.Fatalf("after one that failed: %v, %v", up.State(), own.State())
	}
	first := r.serve()
	if first == nil || up.State() != health.Open || own.State() != health.Open {
		t.Fatalf("after one that was connected: %v, %v", up.State(), own.State())
	}
	router.FirstByte(first)
	if up.State() != health.HalfOpen || own.State() != health.HalfOpen {
		t.Fatalf("after one that was served: %v, %v", up.State(), own.State())
	}
	if r.serve() != nil {
		t.Error("two at once, under a bound of one")
	}
	first.Ended(answered, nil)
	second := r.serve()
	if second == nil {
		t.Fatal("no trial")
	}
	router.FirstByte(second)
	if up.State() != health.Closed || own.State() != health.Closed {
		t.Fatalf("after the trial: %v, %v", up.State(), own.State())
	}
	second.Ended(answered, nil)
	e := r.members[0].Endpoint.Of.(*router.Endpoint)
	before := r.keeper.Transitions()
	e.SetEjected(false)
	if n := r.keeper.Transitions(); n != before+1 {
		t.Errorf("%d transitions, want the one that ends the panic", n-before)
	}
	if now, begun := r.upstream.Panic(); now || begun != 1 {
		t.Errorf("panic %v, begun %d times", now, begun)
	}
	if n, _ := up.Load(); n != 0 || r.active() != 0 {
		t.Errorf("%d connections, %d active in the end", n, r.active())
	}
}

// TestPanicWaitsForAnswers: being connected is not yet being served.
func TestPanicWaitsForAnswers(t *testing.T) {
	r, up, own := panicking(t, func(c *router.ListenerConfig) { c.Limits.FirstByte = time.Second })
	binding := r.serve()
	if binding == nil || up.State() != health.Open {
		t.Fatalf("after one that was connected: %v", up.State())
	}
	binding.Ended(relay.Result{Reason: relay.ReasonFirstByte}, nil)
	if up.State() != health.Open || own.State() != health.Open {
		t.Fatalf("after silence: %v, %v", up.State(), own.State())
	}
	binding = r.serve()
	binding.Ended(answered, nil)
	if up.State() != health.HalfOpen || own.State() != health.HalfOpen {
		t.Errorf("after an answer: %v, %v", up.State(), own.State())
	}
}

// TestPanicServesThoughChecksSayNo: in panic, an endpoint of an upstream can be connected to,
// though its checks have answered no. A client whose retries are spent is not refused by that
// upstream. An endpoint that has died, and is back, is tried again.
func TestPanicServesThoughChecksSayNo(t *testing.T) {
	r := newRig(t, 2, router.SnapshotConfig{Hold: time.Second, QueueSize: 1}, nil)
	r.set = lb.NewSet(r.members, &lb.Config{OnRoom: r.upstream.Room, PanicBelow: 0.5}, nil)
	r.set.Attach()
	r.snapshot.SetEndpoints(r.set)
	for i := range r.members {
		r.endpoint(i).SetHealthy(false)
		r.endpoint(i).SetFailing(i == 0)
	}
	r.endpoint(1).SetBarred(true)
	for range 4 { // which begin with each of both
		s, _ := r.search()
		r.served(s, 1)
		s.Close()
	}
	s, _ := r.search()
	if step := r.inVain(s); step.Action != worker.Park {
		t.Fatalf("when both are dead: %+v, %v", step, s.Err())
	}
	r.pass(100 * time.Millisecond)
	r.served(s, 1)
	s.Close()
}

// served has a client try endpoints until it gets the one that accepts.
func (r *rig) served(s *router.Search, accepts int) {
	r.t.Helper()
	at := r.endpoint(accepts)
	for range 5 {
		step := s.Next(r.clock)
		if step.Action != worker.Connect {
			r.t.Fatalf("%+v, %v", step, s.Err())
		}
		if step.Address.AddrPort.String() == at.ID() {
			if _, err := s.Reached(r.clock); err != nil {
				r.t.Fatal(err)
			}
			return
		}
		s.Failed(syscall.ECONNREFUSED, r.clock)
	}
	r.t.Fatal("it is not served")
}
