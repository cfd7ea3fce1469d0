package router_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// endpoint returns that of a member.
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
	_ = r.endpoint(3).SetWeight(0)
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
	binding.Ended(answered, nil)
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
	if n, _ := up.Load(); n != 0 || r.upstream.Refusals().ByReason()["failed"]+fallback.upstream.Refusals().ByReason()["failed"] != 1 {
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
			if do := s.Next(r.clock).Action; do != worker.Connect {
				t.Fatalf("%s: %v", name, do)
			}
			s.Failed(syscall.ECONNREFUSED, r.clock)
		}
		if do := s.Next(r.clock).Action; do != worker.Connect {
			t.Fatalf("%s: the third one is not tried: %v", name, do)
		}
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
		binding.Ended(answered, nil)
		limits.Of.(worker.Binding).Ended(answered, nil)
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
	both := limit.NewConnections(4)
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
	if _, err := s.Reached(r.clock); err != nil {
		r.t.Fatal(err)
	}
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
		limits, err := s.Reached(r.clock)
		if err != nil {
			t.Fatal(err)
		}
		result := relay.Result{Reason: relay.ReasonEOF}
		if serves(to) {
			result.BToA = relay.Flow{Copied: 1, Reason: relay.ReasonEOF}
		}
		limits.Of.(worker.Binding).Ended(result, nil)
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
	if step := s.Next(r.clock); step.Action != worker.Connect {
		t.Fatal(step.Action)
	}
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
		b.Ended(result, nil)
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
	r.endpoint(0).Acquire()
	r.pass(time.Second)
	if err := r.refuse(); err == nil {
		t.Fatal("a client gets an endpoint that is full")
	}
	if r.upstream.ServedSince(began) {
		t.Error("after a client that was refused: true")
	}
}
