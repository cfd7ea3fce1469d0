package router_test

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// eachPolicy runs a test with a rig for each of them, whose endpoints an outlier detection judges
// that may eject one of three.
func eachPolicy(t *testing.T, cfg router.SnapshotConfig, test func(t *testing.T, r *rig)) {
	for _, p := range lb.Policies() {
		t.Run(p.String(), func(t *testing.T) {
			cfg.BySource = p.Keyed()
			r := newRig(t, 3, cfg, nil)
			r.outlier(5, 0.5)
			r.use(&lb.Config{Policy: p})
			test(t, r)
		})
	}
}

// fail has so many connections to an endpoint time out.
func (r *rig) fail(t *testing.T, i, times int) {
	t.Helper()
	for range times {
		for j := range r.members {
			r.endpoint(j).SetDraining(j != i && !r.endpoint(j).State().Ejected) // which would need no place then
		}
		s, _ := r.search()
		if step := s.Next(r.clock); step.Action != worker.Connect || s.Endpoint() != r.endpoint(i) {
			t.Fatalf("%+v", step)
		}
		s.Failed(os.ErrDeadlineExceeded, r.clock)
		s.Close()
		r.pass(time.Second)
	}
	for j := range r.members {
		r.endpoint(j).SetDraining(false)
	}
}

// TestSecondAttempt: by whatever policy, a client that could not reach an endpoint is sent to one
// to which the last connection was made, and to the others only then.
func TestSecondAttempt(t *testing.T) {
	eachPolicy(t, router.SnapshotConfig{Attempts: 2}, func(t *testing.T, r *rig) {
		for range 100 {
			r.endpoint(1).SetFailing(true)
			s, _ := r.search()
			s.Next(r.clock)
			if first := s.Endpoint(); first == r.endpoint(1) {
				s.Close()
				continue
			}
			first := s.Endpoint()
			s.Failed(os.ErrDeadlineExceeded, r.clock)
			if step := s.Next(r.clock); step.Action != worker.Connect || s.Endpoint() == r.endpoint(1) || s.Endpoint() == first {
				t.Fatalf("after %s it is sent to %s, which is failing", first.Name(), step.Address.AddrPort)
			}
			s.Failed(os.ErrDeadlineExceeded, r.clock)
			if s.Next(r.clock); s.Endpoint() != r.endpoint(1) {
				t.Fatal("it is not sent to the third one")
			}
			s.Close()
			for i := range r.members { // as if others had reached them
				r.endpoint(i).SetFailing(false)
				r.endpoint(i).Judge().Reached(r.clock)
			}
		}
		if n := r.active(); n != 0 {
			t.Errorf("%d are acquired in the end", n)
		}
	})
}

// TestWithheldEjection: where two of three endpoints cannot be connected to, and one may be
// ejected, one client at a time finds out whether the other can be, by whatever policy.
func TestWithheldEjection(t *testing.T) {
	eachPolicy(t, router.SnapshotConfig{Attempts: 2}, func(t *testing.T, r *rig) {
		r.fail(t, 0, 5)
		r.fail(t, 1, 5)
		if !r.endpoint(0).State().Ejected || r.endpoint(1).State().Ejected || !r.endpoint(1).Judge().Withheld() {
			t.Fatal("it is not as it was to be")
		}
		r.pass(time.Second)
		var on []*router.Search // the one that finds out
		for range 300 {
			s, _ := r.search()
			if s.Next(r.clock); s.Endpoint() == r.endpoint(1) {
				on = append(on, s)
				continue
			}
			s.Close()
		}
		neverPicksIt := []string{"least_conn", "source_ip", "maglev"} // with one client address, and an idle endpoint beside it
		if len(on) > 1 || len(on) == 0 && !slices.Contains(neverPicksIt, policyOf(t)) {
			t.Errorf("%d clients are sent to it at a time", len(on))
		}
		for _, s := range on {
			s.Failed(os.ErrDeadlineExceeded, r.clock)
			s.Close()
		}
		r.endpoint(2).SetDraining(true) // the other is better than none
		s, _ := r.search()
		if s.Next(r.clock); s.Endpoint() != r.endpoint(1) {
			t.Error("no client is sent to the only one that is left")
		}
		r.reached(s)
		if r.endpoint(1).Judge().Withheld() {
			t.Error("it is avoided though it can be connected to")
		}
	})
}

func policyOf(t *testing.T) string { return t.Name()[strings.LastIndexByte(t.Name(), '/')+1:] }

func (r *rig) breakerOf(cfg health.BreakerConfig) *health.Breaker {
	cfg.Window, cfg.Open, cfg.TrialConnections = time.Minute, cmp.Or(cfg.Open, time.Minute), max(cfg.TrialConnections, 1)
	b := health.NewBreaker(r.keeper, "upstream u", nil, &cfg)
	r.snapshot.Breaker = b
	r.use(new(lb.Config))
	return b
}

// A passenger is a client on its way, or in a session.
type passenger struct {
	search  *router.Search
	binding worker.Binding // of its session; nil: there is none
	place   bool           // it has one under the breaker's bounds
	failed  bool           // its last attempt did, by an endpoint's fault
}

// passages has the expected knowledge of an upstream's breaker about its clients.
type passages struct {
	*rig
	breaker    *health.Breaker
	cfg        health.BreakerConfig
	clients    []*passenger
	ok, failed int
	state      health.State
}

func (p *passages) judge() {
	if p.ok+p.failed >= p.cfg.MinVolume && p.failed > 0 && 100*p.failed >= int(p.cfg.FailurePercentage)*(p.ok+p.failed) {
		p.state = health.Open
	}
}

func (p *passages) next(c *passenger, dice *rand.Rand) (gone bool) {
	step := c.search.Next(p.clock)
	for step.Action == worker.Pause {
		step = c.search.Next(p.clock)
	}
	if step.Action != worker.Connect {
		return p.refused(c)
	}
	c.place, c.failed = true, true
	switch dice.IntN(6) {
	case 0:
		c.search.Close() // the client has left
		return true
	case 1:
		c.search.Failed(syscall.EMFILE, p.clock)
		c.failed = false
	case 2:
		c.search.Failed(syscall.ECONNRESET, p.clock)
	case 3, 4:
		c.search.Failed(syscall.ECONNREFUSED, p.clock)
	default:
		limits := p.reached(c.search)
		c.search.Close()
		c.binding = limits.Of.(worker.Binding)
		p.ok++
		return false
	}
	return c.search.Next(p.clock).Action == worker.GiveUp && p.refused(c)
}

// refused is the end of a client that gets no endpoint.
func (p *passages) refused(c *passenger) bool {
	c.search.Close()
	if c.place && c.failed {
		p.failed++
		p.judge()
	}
	return true
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (p *passages) end(c *passenger, dice *rand.Rand) {
	if dice.IntN(3) > 0 {
		c.binding.Ended(0, relay.Result{Reason: relay.ReasonEOF, BToA: relay.Flow{Copied: 1}}, nil)
		return
	}
	c.binding.Ended(0, reset, nil)
	p.ok--
	p.failed++
	p.judge()
}

// TestOneClientOneOutcome: the upstream's breaker counts clients, and lets clients through. For
// each it counts whether it was served, whatever is retried for it. It does not count a client
// that leaves, a failure for lack of a local resource, or a refusal by a bound.
func TestOneClientOneOutcome(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := health.BreakerConfig{
			FailurePercentage: float64(rapid.SampledFrom([]int{30, 60, 100}).Draw(rt, "percent")),
			MinVolume:         rapid.IntRange(1, 12).Draw(rt, "volume"), Connections: rapid.Int64Range(0, 4).Draw(rt, "connections"),
		}
		p := &passages{cfg: cfg}
		p.rig = newRig(t, rapid.IntRange(1, 3).Draw(rt, "endpoints"), router.SnapshotConfig{
			Attempts: rapid.IntRange(0, 3).Draw(rt, "attempts"), Backoff: time.Millisecond, MaxBackoff: time.Millisecond,
		}, nil)
		p.breaker = p.breakerOf(cfg)
		dice := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		for range 200 {
			if p.state == health.Open {
				break
			}
			var c *passenger
			if len(p.clients) > 0 {
				c = p.clients[dice.IntN(len(p.clients))]
			}
			switch {
			case c == nil || len(p.clients) < 6 && dice.IntN(3) == 0:
				s, _ := p.search()
				p.clients = append(p.clients, &passenger{search: s})
			case c.binding != nil:
				p.end(c, dice)
				p.clients = slices.DeleteFunc(p.clients, func(o *passenger) bool { return o == c })
			case p.next(c, dice):
				p.clients = slices.DeleteFunc(p.clients, func(o *passenger) bool { return o == c })
			}
			places, pending := 0, 0
			for _, c := range p.clients {
				places += btoi(c.place)
				pending += btoi(c.place && c.binding == nil)
			}
			if n, m := p.breaker.Load(); int(n) != places || int(m) != pending || p.breaker.State() != p.state {
				rt.Fatalf("%d connections, %d pending, %v; want %d, %d, %v", n, m, p.breaker.State(), places, pending, p.state)
			}
		}
	})
}

// refuse has a client's search end, at endpoints that all refuse.
func (r *rig) refuse() error {
	_, err := r.tries()
	return err
}

// serve has a client served, and returns the binding of its session; nil: it was refused.
func (r *rig) serve() worker.Binding {
	s, _ := r.search()
	defer s.Close()
	if s.Next(r.clock).Action != worker.Connect {
		return nil
	}
	return r.reached(s).Of.(worker.Binding)
}

// TestOneFailureOfEach: a client that tries the only endpoint again and again counts there
// once, and so does one that has had to try it after another one.
func TestOneFailureOfEach(t *testing.T) {
	for _, endpoints := range []int{1, 2} {
		r := newRig(t, endpoints, router.SnapshotConfig{Attempts: 5}, nil)
		e := r.endpoint(0)
		r.outlier(3, 1)
		r.own(100, 3, time.Minute)
		for i := range 3 {
			if st := e.State(); st.Ejected || st.Broken {
				t.Fatalf("%d endpoints: after %d clients it is %+v", endpoints, i, st)
			}
			_ = r.refuse()
		}
		if st := e.State(); !st.Ejected || !st.Broken || e.Counts().Failures != 12/int64(endpoints)+1 {
			t.Errorf("%d endpoints: after 3 clients it is %+v, with %d failures", endpoints, st, e.Counts().Failures)
		}
	}
}

// TestNobodyUsableIsNoFailure: clients that are refused because every endpoint is unhealthy do
// not open the upstream's breaker. An open breaker would keep clients out when an endpoint is
// healthy again.
func TestNobodyUsableIsNoFailure(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{}, nil)
	b := r.breakerOf(health.BreakerConfig{FailurePercentage: 1, MinVolume: 1})
	r.endpoint(0).SetEjected(true)
	for i := range 5 {
		if err := r.refuse(); errors.Is(err, lb.ErrUnavailable) != (i > 0) {
			t.Fatal(err) // the first one has tried it as a last resort
		}
	}
	if n, _ := b.Load(); b.State() != health.Closed || n != 0 {
		t.Errorf("%v, %d connections", b.State(), n)
	}
}

// TestWaitingHoldsNoPlace: a client that has to wait for an endpoint after one has failed
// waits behind others, and holds nothing that they wait for.
func TestWaitingHoldsNoPlace(t *testing.T) {
	r := newRig(t, 2, router.SnapshotConfig{Attempts: 1, QueueSize: 5, QueueTimeout: time.Minute}, nil)
	b := r.breakerOf(health.BreakerConfig{Connections: 1})
	first, _ := r.search()
	r.takes(first, worker.Connect)
	second, _ := r.search()
	r.takes(second, worker.Park)
	first.Failed(syscall.ECONNREFUSED, r.clock)
	if do := first.Next(r.clock).Action; do != worker.Park {
		t.Errorf("one that tries again while another waits: %v", do)
	}
	if do := second.Next(r.clock).Action; do != worker.Connect {
		t.Errorf("one that has waited, when there is a place: %v", do)
	}
	second.Close()
	if do := first.Next(r.clock).Action; do != worker.Connect {
		t.Errorf("one that tries again, when there is a place again: %v", do)
	}
	first.Close()
	if n, pending := b.Load(); n != 0 || pending != 0 || r.active() != 0 {
		t.Errorf("%d connections, %d pending, %d active in the end", n, pending, r.active())
	}
}

// TestWaitingHoldsNoPlaceForNothing: a client that looks for room, and finds none, waits on as
// before.
func TestWaitingHoldsNoPlaceForNothing(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{QueueSize: 5, QueueTimeout: time.Minute}, nil)
	r.members[0].Connections = 1
	b := r.breakerOf(health.BreakerConfig{Connections: 2})
	first := r.serve()
	second, _ := r.search()
	for range 3 {
		r.takes(second, worker.Park)
		if n, _ := b.Load(); n != 1 {
			t.Fatalf("%d places are taken, want that of the session", n)
		}
		r.upstream.Room()
	}
	first.Ended(0, answered, nil)
	if do := second.Next(r.clock).Action; do != worker.Connect {
		t.Error(do)
	}
	second.Close()
	if n, _ := b.Load(); n != 0 {
		t.Errorf("%d places are taken in the end", n)
	}
}

// TestBetterTimes: whatever brings endpoints back has the upstream's open breaker tried, and
// with the trial it closes.
func TestBetterTimes(t *testing.T) {
	for name, better := range map[string]func(*rig, *router.Endpoint, *health.Breaker){
		"a check succeeds": func(r *rig, e *router.Endpoint, _ *health.Breaker) { e.Passed(r.clock, new(health.CheckConfig)) },
		"a check succeeds, and its own is open": func(r *rig, e *router.Endpoint, own *health.Breaker) {
			own.Report(0, health.ConnectFailed, r.clock)
			if e.Passed(r.clock, new(health.CheckConfig)); own.State() != health.HalfOpen {
				r.t.Errorf("the endpoint's is %v", own.State())
			}
		},
		"an ejection ends": func(_ *rig, e *router.Endpoint, _ *health.Breaker) { e.SetEjected(true); e.SetEjected(false) },
		"its own breaker is half-open": func(r *rig, e *router.Endpoint, own *health.Breaker) {
			own.Report(0, health.ConnectFailed, r.clock)
			own.Recovered()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, router.SnapshotConfig{}, nil)
			b := r.breakerOf(health.BreakerConfig{FailurePercentage: 1, MinVolume: 1})
			if err := r.refuse(); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatal(err)
			}
			if err := r.refuse(); !errors.Is(err, router.ErrCircuitOpen) {
				t.Fatal(err)
			}
			own := r.own(1, 1, time.Hour)
			better(r, r.endpoint(0), own)
			if b.State() != health.HalfOpen {
				t.Fatalf("the upstream's is %v", b.State())
			}
			binding := r.serve()
			if binding == nil || b.State() != health.HalfOpen {
				t.Fatalf("after a trial was connected: %v", b.State())
			}
			if router.FirstByte(binding); b.State() != health.Closed || own.State() != health.Closed {
				t.Fatalf("after a trial: %v, the endpoint's %v", b.State(), own.State())
			}
			binding.Ended(0, answered, nil)
			if n, _ := b.Load(); n != 0 {
				t.Errorf("%d connections in the end", n)
			}
		})
	}
}

// TestRetriesThatFindAnEndpointAreRepaid: the budget bounds the unsuccessful retries.
func TestRetriesThatFindAnEndpointAreRepaid(t *testing.T) {
	r := newRig(t, 2, router.SnapshotConfig{
		Attempts: 1, Budget: health.NewRetryBudget(&health.RetryBudgetConfig{Ratio: 0.1, Floor: 2, Window: time.Minute}),
	}, nil)
	for range 9 {
		s, _ := r.search()
		s.Next(r.clock)
		s.Failed(syscall.ECONNREFUSED, r.clock)
		r.takes(s, worker.Connect)
		limits, _ := s.Reached(r.clock)
		s.Close()
		limits.Of.(worker.Binding).Ended(0, answered, nil)
	}
	for range 9 {
		_ = r.refuse()
	}
	if c := r.upstream.Counts(); c.Retries != 11 {
		t.Errorf("%d retries, want nine that found one and two that did not", c.Retries)
	}
}

// panicking returns a rig in panic: its endpoint is ejected, and the breakers are open, the
// upstream's and its own.
func panicking(t *testing.T, change func(*router.ListenerConfig)) (r *rig, up, own *health.Breaker) {
	r = newRig(t, 1, router.SnapshotConfig{}, change)
	up = r.breakerOf(health.BreakerConfig{FailurePercentage: 1, MinVolume: 1, Connections: 1})
	own = r.own(1, 1, time.Minute)
	r.upstream.SetPanic(health.NewPanic(r.keeper, "upstream u"))
	_ = r.refuse()
	r.endpoint(0).SetEjected(true)
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
	if up.State() != health.Open || own.State() != health.Open || r.endpoint(0).Counts().Failures != 2 {
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
	first.Ended(0, answered, nil)
	second := r.serve()
	if second == nil {
		t.Fatal("no trial")
	}
	router.FirstByte(second)
	if up.State() != health.Closed || own.State() != health.Closed {
		t.Fatalf("after the trial: %v, %v", up.State(), own.State())
	}
	second.Ended(0, answered, nil)
	e := r.endpoint(0)
	before := r.keeper.Transitions.Load()
	e.SetEjected(false)
	if n := r.keeper.Transitions.Load(); n != before+1 {
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
	binding.Ended(0, relay.Result{Reason: relay.ReasonFirstByte}, nil)
	if up.State() != health.Open || own.State() != health.Open {
		t.Fatalf("after silence: %v, %v", up.State(), own.State())
	}
	binding = r.serve()
	binding.Ended(0, answered, nil)
	if up.State() != health.HalfOpen || own.State() != health.HalfOpen {
		t.Errorf("after an answer: %v, %v", up.State(), own.State())
	}
}

// TestPanicServesThoughChecksSayNo: in panic, an endpoint of an upstream can be connected to,
// though its checks have answered no. A client whose retries are spent is not refused by that
// upstream. An endpoint that has died, and is back, is tried again.
func TestPanicServesThoughChecksSayNo(t *testing.T) {
	r := newRig(t, 2, router.SnapshotConfig{Hold: time.Second, QueueSize: 1}, nil)
	r.use(&lb.Config{PanicBelow: 0.5})
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
	r.held(s)
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
			r.reached(s)
			return
		}
		s.Failed(syscall.ECONNREFUSED, r.clock)
	}
	r.t.Fatal("it is not served")
}
