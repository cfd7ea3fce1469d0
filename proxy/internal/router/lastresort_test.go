package router_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

func (r *rig) endpoint(i int) *router.Endpoint {
	return r.members[i].Endpoint.Of.(*router.Endpoint)
}

// tries has a client's search refused at all endpoints that it tries, and returns these.
func (r *rig) tries() (tried []string, err error) {
	r.t.Helper()
	s, _ := r.search()
	defer s.Close()
	for {
		switch step := s.Next(r.clock); step.Action {
		case worker.Connect:
			tried = append(tried, step.Address.AddrPort.Addr().String())
			s.Failed(syscall.ECONNREFUSED, r.clock)
		case worker.Pause:
		case worker.GiveUp:
			return tried, s.Err()
		default:
			r.t.Fatal(step.Action)
		}
	}
}

// TestOldestVerdictFirst: of the endpoints to which the last connection could not be made, the
// one with the oldest such failure is tried first. One of weight 0, one that drains or is full,
// and one barred by its checks is not tried; and none is tried again at once.
func TestOldestVerdictFirst(t *testing.T) {
	r := newRig(t, 7, router.SnapshotConfig{}, nil)
	for _, i := range []int{2, 0, 6, 3, 1, 5, 4} {
		r.pass(1e9)
		for j := range r.members {
			r.endpoint(j).SetDraining(j != i)
		}
		_, _ = r.tries()
	}
	for i := range r.members {
		r.endpoint(i).SetDraining(false)
		r.endpoint(i).SetEjected(true)
	}
	r.pass(1e9)
	r.endpoint(6).SetDraining(true)
	r.endpoint(3).SetWeight(0)
	r.endpoint(1).SetBarred(true)
	r.endpoint(5).SetLimit(1)
	r.endpoint(5).AcquireAnyway(false)
	tried, err := r.tries()
	if want := "[10.0.0.3 10.0.0.1 10.0.0.5]"; fmt.Sprint(tried) != want || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("it tried %v (%v), want %s", tried, err, want)
	}
	if tried, err := r.tries(); len(tried) > 0 || !errors.Is(err, lb.ErrUnavailable) {
		t.Errorf("at once it tried %v: %v", tried, err)
	}
	r.pass(50 * time.Millisecond)
	r.endpoint(5).Release()
	if tried, _ := r.tries(); len(tried) != 4 {
		t.Errorf("then it tried %v", tried)
	}
}

// TestBothAreTried: a client that gets nothing at a fallback either is sent to those of the
// upstream itself that seem not to serve, before those of the fallback.
func TestBothAreTried(t *testing.T) {
	fallback := newRig(t, 1, router.SnapshotConfig{}, nil)
	fallback.endpoint(0).SetEjected(true)
	r := newRig(t, 1, router.SnapshotConfig{Fallback: fallback.snapshot}, nil)
	r.endpoint(0).SetEjected(true)
	up := r.breakerOf(health.BreakerConfig{FailurePercentage: 1, MinVolume: 1})
	binding := r.serve()
	if binding == nil || r.active() != 1 || fallback.active() != 0 {
		t.Fatalf("%d at the upstream, %d at the fallback", r.active(), fallback.active())
	}
	binding.Ended(0, answered, nil)
	s, _ := r.search()
	for i, at := range []*rig{r, fallback} {
		if do := s.Next(r.clock).Action; do != worker.Connect || at.active() != 1 {
			t.Fatalf("try %d: %v, %d at the upstream, %d at the fallback", i, do, r.active(), fallback.active())
		}
		s.Failed(syscall.ECONNREFUSED, r.clock)
	}
	if do := s.Next(r.clock).Action; do != worker.GiveUp {
		t.Error(do)
	}
	s.Close()
	if n, _ := up.Load(); n != 0 || r.upstream.Refusals.ByReason(false)["failed"]+fallback.upstream.Refusals.ByReason(false)["failed"] != 1 {
		t.Errorf("%d connections, %+v", n, fallback.upstream.Counts())
	}
}

// TestFallbackAnswersAtOnce: where there is a fallback, no client is held, and nothing is tried.
func TestFallbackAnswersAtOnce(t *testing.T) {
	for _, cfg := range []router.SnapshotConfig{{Respond: []byte("sorry")}, {Respond: []byte("sorry"), Hold: time.Second, QueueSize: 10}} {
		r := newRig(t, 1, cfg, nil)
		r.endpoint(0).SetEjected(true)
		s, _ := r.search()
		if step := s.Next(r.clock); step.Action != worker.Respond {
			t.Errorf("%+v: %v", cfg, step.Action)
		}
		s.Close()
	}
}

// TestPastBreakerAndBudget: neither the upstream's open breaker, nor a lack of attempts or of
// budget, keeps a client from an endpoint that serves.
func TestPastBreakerAndBudget(t *testing.T) {
	for name, cfg := range map[string]router.SnapshotConfig{
		"attempts": {}, "budget": {Attempts: 5, Budget: health.NewRetryBudget(&health.RetryBudgetConfig{Ratio: 0, Floor: 0, Window: time.Second})},
	} {
		r := newRig(t, 3, cfg, nil)
		up := r.breakerOf(health.BreakerConfig{FailurePercentage: 1, MinVolume: 1})
		s, _ := r.search()
		for range 2 {
			r.takes(s, worker.Connect)
			s.Failed(syscall.ECONNREFUSED, r.clock)
		}
		r.takes(s, worker.Connect)
		limits, _ := s.Reached(r.clock)
		s.Close()
		up.Report(0, health.ConnectFailed, r.clock)
		up.Report(0, health.ConnectFailed, r.clock)
		if up.State() != health.Open {
			t.Fatal(up.State())
		}
		binding := r.serve()
		if binding == nil {
			t.Fatalf("%s: refused by the breaker", name)
		}
		binding.Ended(0, answered, nil)
		limits.Of.(worker.Binding).Ended(0, answered, nil)
		if c := r.upstream.Counts(); c.LastResort == 0 || up.State() == health.Open {
			t.Errorf("%s: %+v, the breaker is %v", name, c, up.State())
		}
	}
}

// TestVainConnectsAreBounded: the number of unsuccessful connects does not depend on the number
// of clients, with one endpoint or many, and with breakers or without.
func TestVainConnectsAreBounded(t *testing.T) {
	const length = 5 * time.Second
	for _, c := range []struct {
		servers int
		is      condition
		most    int // in a second
	}{{1, refusing, 20}, {1, dropping, 4}, {20, refusing, 200}} {
		for _, bare := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				of := defaults(c.servers)
				if bare {
					of.breaker, of.outlierless, of.check = nil, true, nil
				}
				of.snapshot.QueueSize = 10_000
				w := newWorld(t, of)
				for i := range c.servers {
					w.turn(i, c.is)
				}
				w.come(500, 16*time.Second) // until those are over that began, or tried again, before the failure was known
				before := w.vain()
				w.come(500, length)
				if n := w.vain() - before; n > c.most*int(length/time.Second)*11/10 || n == 0 {
					t.Errorf("%d servers that are %v: %d unsuccessful connects within %v (bare: %v)", c.servers, c.is, n, length, bare)
				}
				w.end()
			})
		}
	}
}

// TestVainConnectsOfOneClient: however many clients are held, one of them makes a trial at a
// time. A client that is held alone makes all of them. So it causes one each 50 ms for each
// endpoint, except those that came before the failure was known.
func TestVainConnectsOfOneClient(t *testing.T) {
	for _, c := range []struct{ servers, clients, most int }{{1, 1, 65}, {3, 1, 190}, {20, 1, 630}, {1, 1000, 70 + 4*1000}} {
		synctest.Test(t, func(t *testing.T) {
			of := defaults(c.servers)
			of.snapshot.QueueSize = 10_000
			w := newWorld(t, of)
			for i := range c.servers {
				w.turn(i, refusing)
			}
			for range c.clients {
				w.client()
			}
			w.clients.Wait()
			n := w.vain()
			t.Logf("%d servers, %d clients: %d unsuccessful connects", c.servers, c.clients, n)
			if n > c.most || n < 40 {
				t.Errorf("%d servers, %d clients: %d unsuccessful connects, want %d at most", c.servers, c.clients, n, c.most)
			}
			w.end()
		})
	}
}

func (w *world) vain() (n int) {
	for _, s := range w.servers {
		s.be(func() { n += s.vain })
	}
	return n
}

// TestHeldAreBounded: the clients that are held are bounded by the queue, and by the bound of all
// upstreams together.
func TestHeldAreBounded(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{Hold: time.Second, QueueSize: 3}, nil)
	other := newRig(t, 1, router.SnapshotConfig{Hold: time.Second, QueueSize: 3}, nil)
	both := new(router.Places)
	both.Set(4)
	r.upstream.HoldUnder(both)
	other.upstream.HoldUnder(both)
	held := 0
	var searches []*router.Search
	for i, of := range []*rig{r, r, r, r, other, other} {
		of.endpoint(0).SetBarred(true)
		of.endpoint(0).SetHealthy(false)
		s, _ := of.search()
		searches = append(searches, s)
		if do := s.Next(r.clock).Action; do == worker.Park {
			held++
		} else if do != worker.GiveUp || i != 3 && i != 5 {
			t.Errorf("client %d: %v", i, do)
		}
	}
	if held != 4 || r.upstream.Waiting() != 3 || r.upstream.Counts().Held != 3 {
		t.Errorf("%d are held, %d at the first, %+v", held, r.upstream.Waiting(), r.upstream.Counts())
	}
	for _, s := range searches {
		s.Close()
	}
	if both.InUse() != 0 || r.upstream.Waiting() != 0 {
		t.Errorf("%d are held in the end", both.InUse())
	}
}

// TestSourcesShareThePlaces: if one source has all places of all upstreams together at one upstream, its newest client there makes
// room for a client of another source at another upstream, but for none of its own.
func TestSourcesShareThePlaces(t *testing.T) {
	var both router.Places
	both.Set(4)
	var rigs [2]*rig
	for i := range rigs {
		rigs[i] = newRig(t, 1, router.SnapshotConfig{Hold: time.Minute, QueueSize: 10}, nil)
		rigs[i].upstream.HoldUnder(&both)
		rigs[i].endpoint(0).SetBarred(true)
		rigs[i].endpoint(0).SetHealthy(false)
	}
	var held []*router.Search
	for i, c := range []struct {
		at    int
		from  string
		want  worker.Action
		evict int // the client that makes room; 0: none
	}{
		{0, "192.0.2.1:1", worker.Park, 0},
		{0, "192.0.2.1:1", worker.Park, 0},
		{0, "192.0.2.1:1", worker.Park, 0},
		{0, "192.0.2.1:1", worker.Park, 0},
		{1, "192.0.2.1:1", worker.GiveUp, 0},
		{1, "192.0.2.3:1", worker.Park, 3},
		{1, "192.0.2.3:1", worker.Park, 2},
		{1, "192.0.2.3:1", worker.GiveUp, 0},
		{0, "192.0.2.1:1", worker.GiveUp, 0},
	} {
		r := rigs[c.at]
		s := router.NewWaitingSearch(r.listener, r.snapshot)
		s.Begin(worker.NewClient(source.TCP(netip.MustParseAddrPort(c.from)), netip.MustParseAddrPort("192.0.2.2:2")), r.clock)
		if do := s.Next(r.clock).Action; do != c.want {
			t.Fatalf("client %d: %v, %v", i, do, s.Err())
		}
		held = append(held, s)
		if c.evict > 0 {
			<-held[c.evict].Woken()
			rigs[0].takes(held[c.evict], worker.GiveUp)
		}
		if both.InUse() > 4 {
			t.Errorf("%d are held", both.InUse())
		}
	}
	for _, s := range held {
		s.Close()
	}
	if both.InUse() != 0 {
		t.Errorf("%d are held in the end", both.InUse())
	}
}

// connects has a client connect to the first endpoint that it is sent to, without being served yet, and
// returns that.
func (r *rig) connects() string {
	r.t.Helper()
	s, _ := r.search()
	defer s.Close()
	step := s.Next(r.clock)
	if step.Action != worker.Connect {
		r.t.Fatal(step.Action, s.Err())
	}
	r.reached(s)
	return step.Address.AddrPort.Addr().String()
}

// TestVainLastResort: an endpoint that is ejected and accepts, but serves no client, does not keep
// clients from one that could not be connected to, and is back.
func TestVainLastResort(t *testing.T) {
	r := newRig(t, 2, router.SnapshotConfig{}, nil)
	r.endpoint(0).SetDraining(true)
	_, _ = r.tries() // the second one refuses
	r.endpoint(0).SetDraining(false)
	for i := range 2 {
		r.endpoint(i).SetEjected(true)
	}
	for i := range 4 {
		r.pass(time.Second)
		if to := r.connects(); to != "10.0.0.1" {
			t.Fatalf("client %d is sent to %s", i, to)
		}
	}
	r.pass(time.Second)
	if to := r.connects(); to != "10.0.0.2" {
		t.Errorf("after four that were not served, a client is sent to %s", to)
	}
}

// TestServingLastResort: of two endpoints that are tried as a last resort, one that serves its clients gets
// them, and not one that serves none, until it has served one.
func TestServingLastResort(t *testing.T) {
	r := newRig(t, 2, router.SnapshotConfig{}, nil)
	for i := range 2 {
		r.endpoint(i).SetEjected(true)
	}
	client := func(serves func(to string) bool) string {
		r.pass(time.Second)
		s, _ := r.search()
		defer s.Close()
		to := s.Next(r.clock).Address.AddrPort.Addr().String()
		limits := r.reached(s)
		result := relay.Result{Reason: relay.ReasonEOF}
		if serves(to) {
			result.BToA = relay.Flow{Copied: 1, Reason: relay.ReasonEOF}
		}
		limits.Of.(worker.Binding).Ended(0, result, nil)
		return to
	}
	lost := 0
	for range 100 {
		if client(func(to string) bool { return to == "10.0.0.2" }) == "10.0.0.1" {
			lost++
		}
	}
	if lost > 4 {
		t.Errorf("%d of 100 clients were sent to the one that serves none", lost)
	}
	r.endpoint(1).SetDraining(true)
	client(func(string) bool { return true })
	r.endpoint(1).SetDraining(false)
	seen := map[string]int{}
	for range 100 {
		seen[client(func(string) bool { return true })]++
	}
	if seen["10.0.0.1"] < 20 {
		t.Errorf("when both serve, clients are sent to %v", seen)
	}
}

// TestTriedOnceBeforeAFallback: a client that cannot connect gets the fallback, and does not try the same
// endpoint again; nor does one without a fallback that has waited for the connection.
func TestTriedOnceBeforeAFallback(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{Attempts: 3, Respond: []byte("sorry")}, nil)
	s, _ := r.search()
	for _, want := range []worker.Action{worker.Connect, worker.Respond} {
		step := s.Next(r.clock)
		if step.Action != want {
			t.Fatalf("with a fallback: %v, want %v", step.Action, want)
		}
		if want == worker.Connect {
			s.Failed(syscall.ECONNREFUSED, r.clock)
		}
	}
	s.Close()

	r = newRig(t, 1, router.SnapshotConfig{Attempts: 3, Backoff: 10 * time.Millisecond, MaxBackoff: time.Second}, nil)
	s, _ = r.search()
	defer s.Close()
	r.takes(s, worker.Connect)
	r.pass(5 * time.Second)
	s.Failed(syscall.ETIMEDOUT, r.clock)
	if step := s.Next(r.clock); step.Action == worker.Pause {
		t.Error("after a connect of 5 s, the same endpoint is to be tried again")
	}
}

// TestServedSince: the last client at endpoints that are not usable decides: a lost or a refused one after a served one.
func TestServedSince(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{}, nil)
	r.endpoint(0).SetEjected(true)
	began := r.clock
	client := func(result relay.Result) {
		t.Helper()
		r.pass(time.Second)
		b := r.serve()
		if b == nil {
			t.Fatal("a client gets no endpoint")
		}
		r.pass(time.Second)
		b.Ended(0, result, nil)
	}
	// The endpoint has ended the session in good order after the client did.
	ended := relay.Result{Reason: relay.ReasonEOF, First: relay.SideA, AToB: relay.Flow{Reason: relay.ReasonEOF}, BToA: relay.Flow{Reason: relay.ReasonEOF}}
	for i, one := range []struct {
		result relay.Result
		served bool
	}{{reset, false}, {ended, true}, {reset, false}, {ended, true}} {
		client(one.result)
		if got := r.upstream.ServedSince(began); got != one.served {
			t.Errorf("after client %d: %v, want %v", i, got, one.served)
		}
	}
	r.endpoint(0).SetLimit(1)
	r.endpoint(0).AcquireAnyway(false)
	r.pass(time.Second)
	if err := r.refuse(); err == nil {
		t.Fatal("a client gets an endpoint that is full")
	}
	if r.upstream.ServedSince(began) {
		t.Error("after a client that was refused: true")
	}
}

// manyDead is how many endpoints an upstream has that refuse.
const manyDead = 2000

// seek has a client look for an endpoint until it is served or refused; each connect takes so long. It returns how
// many were refused, and how long all of that took.
func (r *rig) seek(s *router.Search, connect time.Duration, serves string) (refused int, took time.Duration, served bool) {
	r.t.Helper()
	began := r.clock
	for {
		switch step := s.Next(r.clock); step.Action {
		case worker.Connect:
			r.pass(connect)
			if step.Address.AddrPort.Addr().String() == serves {
				return refused, time.Duration(r.clock - began), true
			}
			if refused++; refused > 20*manyDead {
				r.t.Fatalf("%d connects within %v", refused, time.Duration(r.clock-began))
			}
			s.Failed(syscall.ECONNREFUSED, r.clock)
		case worker.Park, worker.Pause:
			r.pass(max(step.Timeout, time.Microsecond))
		case worker.GiveUp:
			return refused, time.Duration(r.clock - began), false
		default:
			r.t.Fatal(step.Action)
		}
	}
}

// TestHoldBoundsTheSearch: however many endpoints are dead, a client is refused when it has been held, and
// the connects that it causes are bounded: two hundred in a second, and those to endpoints that no client has tried
// before.
func TestHoldBoundsTheSearch(t *testing.T) {
	t.Parallel()

	const hold = 3 * time.Second
	for name, c := range map[string]struct {
		down    bool
		connect time.Duration
		most    int
	}{
		"found by checks":       {true, 20 * time.Microsecond, 64 + 3*200 + 16},
		"not known":             {false, 20 * time.Microsecond, manyDead + 64 + 3*200 + 16},
		"not known, and slowly": {false, 10 * time.Millisecond, 300 + 2 + 16 + 2},
	} {
		r := newRig(t, manyDead, router.SnapshotConfig{Attempts: 2, QueueSize: 10, Hold: hold}, nil)
		for i := range r.members {
			if c.down {
				r.endpoint(i).SetHealthy(false)
			}
		}
		s, _ := r.search()
		refused, took, _ := r.seek(s, c.connect, "")
		t.Logf("%s: %d connects, %v", name, refused, took)
		if limit := hold + 50*time.Millisecond + 18*c.connect; took < hold || took > limit || refused > c.most || refused < 64 {
			t.Errorf("%s: refused after %v and %d connects, want %v to %v, and %d at most", name, took, refused, hold, limit, c.most)
		}
		if n := strings.Count(s.Err().Error(), "connect to"); n > 32 {
			t.Errorf("%s: the error names %d endpoints", name, n)
		}
		s.Close()
		if r.active() != 0 || r.upstream.Waiting() != 0 {
			t.Errorf("%s: %d active, %d wait in the end", name, r.active(), r.upstream.Waiting())
		}
	}
}

// TestOwnFaultsArePaced: a client for which this machine lacks something tries a few endpoints, and waits before it
// tries others.
func TestOwnFaultsArePaced(t *testing.T) {
	t.Parallel()

	r := newRig(t, manyDead, router.SnapshotConfig{Attempts: 2, QueueSize: 10, Hold: 3 * time.Second}, nil)
	s, _ := r.search()
	defer s.Close()
	for tries := 0; ; tries++ {
		step := s.Next(r.clock)
		if step.Action == worker.Park {
			break
		}
		if step.Action != worker.Connect || tries > 40 {
			t.Fatalf("try %d: %v", tries, step.Action)
		}
		s.Failed(syscall.EADDRNOTAVAIL, r.clock)
	}
	r.pass(60 * time.Millisecond)
	if step := s.Next(r.clock); step.Action != worker.Connect {
		t.Errorf("later: %v", step.Action)
	}
}

// TestNobodyIsRefusedWhileOneServes: with the defaults no client is lost in rolling restarts, or
// with pairs of which one is away and then the other.
func TestNobodyIsRefusedWhileOneServes(t *testing.T) {
	for name, c := range map[string]struct {
		servers int
		course  func(w *world)
	}{
		"one of two is away for 4s, back for 6s, then the other dies": {2, func(w *world) {
			w.come(100, 3*time.Second)
			w.turn(0, refusing)
			w.come(100, 4*time.Second)
			w.turn(0, serving)
			w.come(100, 6*time.Second)
			w.turn(1, refusing)
			w.come(100, 10*time.Second)
		}},
		"three are restarted one after the other": {3, func(w *world) {
			for range 3 {
				for i := range 3 {
					w.turn(i, refusing)
					w.come(100, 4*time.Second)
					w.turn(i, serving)
					w.come(100, 2*time.Second)
				}
			}
		}},
		"a single one restarts within 2s": {1, func(w *world) {
			for range 4 {
				w.come(300, 5*time.Second)
				w.turn(0, refusing)
				w.come(300, 2*time.Second)
				w.turn(0, serving)
			}
			w.come(300, 5*time.Second)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(8) {
				synctest.Test(t, func(t *testing.T) {
					of := defaults(c.servers)
					of.seed = seed + 1
					w := newWorld(t, of)
					c.course(w)
					if w.end(); len(w.refused) > 0 {
						t.Error(w.report())
					}
				})
			}
		})
	}
}

// TestNobodyHoldsAPlaceForTheDead: clients that wait while all endpoints refuse connections have no place
// under the upstream's bound, so that one of them finds out when an endpoint is back, and all are served.
func TestNobodyHoldsAPlaceForTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := defaults(2)
		of.check, of.breaker = nil, &health.BreakerConfig{Connections: 3}
		w := newWorld(t, of)
		w.come(620, 2*time.Second) // which is more than three at a time can serve
		waiting := w.upstream.Waiting()
		w.turn(0, refusing)
		w.turn(1, refusing)
		w.come(8, 2*time.Second)
		held := w.upstream.Waiting()
		w.turn(0, serving)
		served := w.servedSoFar()
		time.Sleep(2*50*time.Millisecond + 10*roundTrip)
		if served = w.servedSoFar() - served; waiting < 100 || held < 100 || served < 10 {
			t.Errorf("%d have waited for room, %d wait when it is gone, and %d served within 110 ms when one is back", waiting, held, served)
		}
		if w.end(); len(w.refused) > 0 {
			t.Error(w.report())
		}
	})
}

// grace returns how long a server must have been able to serve for a client that is refused to be
// a client that it could have served: longer than from the last segment of a connect(2) until its
// end, for one that is lost is repeated after 1 s and 3 s.
func (w *world) grace() time.Duration {
	if w.connect <= 2*time.Second {
		return 1100 * time.Millisecond
	}
	return 2100 * time.Millisecond
}

// could returns the servers that could serve a client now, as found by a reference that knows the
// truth. Where no client is held, one that is failing is tried by one client at a time.
func (w *world) could() (list []string) {
	for _, s := range w.servers {
		if w.snapshot.Hold == 0 && s.Failing() {
			continue
		}
		if now, since := s.clock(), s.couldSince(); since != never && now-since >= int64(w.grace()) {
			list = append(list, fmt.Sprintf("%s for %v", s.addr, time.Duration(now-since)))
		}
	}
	return list
}

// look holds that no client is sent to a server that must not serve, by the operator or by the
// answers of its checks for a time.
func (w *world) look(to *server) {
	to.be(func() {})
	to.mu.Lock()
	noes, out := to.noes, to.out
	to.mu.Unlock()
	if known := w.clock() - noes; w.check != nil && w.check.Answered && noes != never && known > int64(30*time.Second) {
		w.err("a client is sent to %s, which has answered no for %v", to.addr, time.Duration(known))
	}
	if st := to.State(); out && !st.Draining && to.Weight() > 0 {
		w.err("%s is out, and its state does not show it", to.addr)
	}
}

// reachable returns the servers to which a client that could not reach some should first be sent:
// the last connection to them was made, and they are healthy otherwise.
func (w *world) reachable(tried []*server) (list []*server) {
	for _, s := range w.servers {
		st := s.State()
		well := !st.Down && !st.Ejected && !st.Broken && !st.Draining && !s.Failing()
		if len(tried) > 0 && well && s.Weight() > 0 && s.limit == 0 && !slices.Contains(tried, s) {
			list = append(list, s)
		}
	}
	return list
}

// lookElsewhere holds for a client that could not reach a server. It is not sent to another one
// that the last client could not reach, while there is one that was reachable just before and is
// now.
func (w *world) lookElsewhere(to *server, tried, before []*server) {
	if !to.Failing() || slices.Contains(before, to) {
		return
	}
	for _, s := range w.reachable(tried) {
		if slices.Contains(before, s) {
			w.err("a client that could not reach a server is sent to %s, which is failing, and not to %s", to.addr, s.addr)
		}
	}
}

// An event is something that happens to a server, after a time.
type event struct {
	after  time.Duration
	server int
	what   string
	to     int
}

func drawEvent(t *rapid.T, servers int) event {
	e := event{
		after:  time.Duration(rapid.SampledFrom([]int{5, 50, 400, 1000, 2500, 7000, 20000}).Draw(t, "after")) * time.Millisecond,
		server: rapid.IntRange(0, servers-1).Draw(t, "server"),
		what:   rapid.SampledFrom([]string{"is", "is", "is", "is", "role", "drain", "weight", "eject"}).Draw(t, "what"),
	}
	switch e.what {
	case "is":
		e.to = rapid.IntRange(0, int(conditions)-1).Draw(t, "condition")
	case "role":
		e.to = rapid.IntRange(0, int(roles)-1).Draw(t, "role")
	default:
		e.to = rapid.IntRange(0, 1).Draw(t, "on")
	}
	return e
}

// happen makes an event so.
func (w *world) happen(e event) {
	s := w.servers[e.server]
	switch e.what {
	case "is":
		w.turn(e.server, condition(e.to))
	case "role":
		if w.check != nil && w.check.Answered {
			s.be(func() { s.role = role(e.to) })
		}
	case "drain", "weight":
		s.be(func() {
			if s.out = e.to == 1; e.what == "drain" {
				s.SetDraining(s.out)
				s.SetWeight(1)
			} else {
				s.SetDraining(false)
				s.SetWeight(1 - e.to)
			}
		})
	case "eject": // by an outcome other than a connect
		if w.outlierless {
			return
		}
		for range 5 {
			s.Judge().ReportFrom(health.NoSource, health.Silent, w.clock())
		}
	}
}

// drawSetting returns an upstream that may be configured in any way.
func drawSetting(t *rapid.T) setting {
	of := defaults(rapid.IntRange(1, 4).Draw(t, "servers"))
	of.seed = uint64(rapid.IntRange(1, 1000).Draw(t, "phases"))
	of.connect = time.Duration(rapid.IntRange(1, 5).Draw(t, "connect")) * time.Second
	of.snapshot.Attempts = rapid.IntRange(0, 3).Draw(t, "attempts")
	of.budget.Floor = rapid.SampledFrom([]int{0, 1, 30}).Draw(t, "floor")
	if rapid.IntRange(0, 5).Draw(t, "limited") == 0 {
		of.limits[0] = 1
	}
	switch rapid.IntRange(0, 4).Draw(t, "checks") {
	case 0:
		of.check = nil
	case 1, 2:
		of.check.Answered = true
	}
	of.outlierless = rapid.IntRange(0, 4).Draw(t, "outlierless") == 0
	if rapid.IntRange(0, 4).Draw(t, "breakerless") == 0 {
		of.breaker = nil
	}
	of.policy = rapid.SampledFrom(lb.Policies()).Draw(t, "policy")
	of.snapshot.BySource = rapid.Bool().Draw(t, "by source")
	if rapid.IntRange(0, 5).Draw(t, "holdless") == 0 {
		of.snapshot.Hold = 0
	}
	return of
}

// TestNobodyIsRefusedWhomAServerCouldServe: whatever happens to servers, and whatever state an
// upstream has for them, no client is refused that a reference which knows the truth would have
// had served. A client that waits, waits for its time, and a server that serves may.
func TestNobodyIsRefusedWhomAServerCouldServe(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		of := drawSetting(rt)
		rate := rapid.SampledFrom([]int{1, 10, 40}).Draw(rt, "clients")
		var events []event
		for range rapid.IntRange(1, 15).Draw(rt, "events") {
			events = append(events, drawEvent(rt, len(of.limits)))
		}
		var w *world
		synctest.Test(t, func(t *testing.T) {
			w = newWorld(t, of)
			for _, e := range events {
				w.happen(e)
				w.come(rate, e.after)
			}
			w.end()
		})
		w.judge(rt)
	})
}

func (w *world) judge(rt *rapid.T) {
	for _, what := range w.wrong {
		rt.Error(what)
	}
	for _, l := range w.refused {
		if len(l.could) > 0 {
			rt.Errorf("a client that came at %v was refused at %v (%v), and %v could serve it", l.came, l.at, l.cause, l.could)
		}
		limited := w.limits[0] > 0
		if hold := w.snapshot.Hold; l.at-l.came < hold && !limited {
			rt.Errorf("a client that came at %v was refused at %v, and not held for %v: %v", l.came, l.at, hold, l.cause)
		}
	}
	if len(w.refused) > 0 && rt.Failed() {
		rt.FailNow()
	}
}

// TestSessionsFall: sessions are not to go on at an endpoint when it becomes unhealthy, and again when a client comes that was
// on its way then. The same holds when checks bar the endpoint once more: it may have got last resorts meanwhile.
func TestSessionsFall(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{}, nil)
	e, want := r.endpoint(0), int64(0)
	fell := func(when string, more int64) {
		t.Helper()
		if want += more; r.fell.Load() != want {
			t.Errorf("%s: %d times, want %d", when, r.fell.Load(), want)
		}
	}
	onItsWay := func() *router.Search {
		s, _ := r.search()
		r.takes(s, worker.Connect)
		return s
	}
	first, second := onItsWay(), onItsWay()
	e.SetBarred(true) // a check tells this first
	e.SetHealthy(false)
	fell("unhealthy", 1)
	r.reached(first)
	fell("a client was on its way", 1)
	e.SetBarred(false)
	r.reached(onItsWay())
	third := onItsWay()
	fell("last resorts", 0)
	e.SetBarred(true)
	fell("barred again", 1)
	r.reached(third)
	fell("a last resort was on its way", 1)
	e.SetBarred(false)
	e.SetHealthy(true)
	r.reached(second)
	r.reached(onItsWay())
	fell("healthy again", 0)
}
