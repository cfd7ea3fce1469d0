package router_test

import (
	"errors"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
	"github.com/penstock/penstock/relay"
)

// A rig is a listener and an upstream with scripted answers, and a clock.
type rig struct {
	t        testing.TB
	clock    int64
	others   atomic.Int64 // clock, as goroutines beside the test read it
	keeper   *health.Scheduler
	upstream *router.Upstream
	snapshot *router.UpstreamSnapshot
	listener *router.Listener
	set      *lb.Set
	members  []lb.Member
}

func newRig(t testing.TB, endpoints int, cfg router.SnapshotConfig, change func(*router.ListenerConfig)) *rig {
	r := &rig{t: t}
	r.pass(time.Second)
	now := r.others.Load
	r.keeper = health.NewScheduler(&health.SchedulerConfig{Now: now})
	t.Cleanup(r.keeper.Close)
	r.upstream = router.NewUpstream("u", nil)
	r.snapshot = router.NewSnapshot(r.upstream, &cfg)
	for i := range endpoints {
		addr := sockopt.Address{Network: "tcp", Name: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte((i + 1) >> 8), byte(i + 1)}), 80).String()}
		e, _, err := r.upstream.Endpoint(addr.Name, addr, lb.EndpointConfig{ID: addr.Name, Weight: 1, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		r.members = append(r.members, lb.Member{Endpoint: e.Endpoint, Weight: 1})
	}
	r.use()
	lc := &router.ListenerConfig{
		Name: "l", State: new(router.ListenerState), Wake: func() {}, Default: r.snapshot, Now: now, Connect: time.Second,
	}
	if change != nil {
		change(lc)
	}
	r.listener = router.NewListener(lc)
	return r
}

// pass has time pass.
func (r *rig) pass(d time.Duration) {
	r.clock += int64(d)
	r.others.Store(r.clock)
}

// use has clients sent to the members as they are now.
func (r *rig) use() {
	r.set = lb.NewSet(r.members, &lb.Config{OnRoom: r.upstream.Room}, nil)
	r.set.Attach()
	r.snapshot.SetEndpoints(r.set)
}

func (r *rig) search() (*router.Search, *worker.Client) {
	return r.searchOf("192.0.2.1:1")
}

// searchOf is search for a client whose connection comes from an address.
func (r *rig) searchOf(peer string) (*router.Search, *worker.Client) {
	c := worker.NewClient(source.TCP(netip.MustParseAddrPort(peer)), netip.MustParseAddrPort("192.0.2.2:2"))
	s := r.listener.NewSearch()
	s.Begin(c, r.clock)
	return s, c
}

func (r *rig) active() (n int) {
	for _, m := range r.members {
		n += m.Endpoint.Active()
	}
	return n
}

// TestRetries: other endpoints are tried as often as configured, at once, and then the error
// names them all. Each acquired place is given back.
func TestRetries(t *testing.T) {
	r := newRig(t, 3, router.SnapshotConfig{Attempts: 2, Backoff: 10 * time.Millisecond, MaxBackoff: 15 * time.Millisecond}, nil)
	s, _ := r.search()
	seen := map[string]bool{}
	for try := range 3 {
		step := s.Next(r.clock)
		if step.Action != worker.Connect {
			t.Fatalf("try %d: %v", try, step.Action)
		}
		seen[step.Address.AddrPort.String()] = true
		if r.active() != 1 {
			t.Errorf("%d active", r.active())
		}
		s.Failed(syscall.ECONNREFUSED, r.clock)
	}
	if step := s.Next(r.clock); step.Action != worker.GiveUp || !errors.Is(s.Err(), syscall.ECONNREFUSED) {
		t.Errorf("%v, %v", step.Action, s.Err())
	}
	if len(seen) != 3 {
		t.Errorf("it tried %v, want three endpoints", seen)
	}
	s.Close()
	if r.active() != 0 || r.upstream.Counts().Failures != 3 || r.upstream.Counts().Retries != 2 || r.upstream.Refusals().ByReason()["failed"] != 1 {
		t.Errorf("%d active, %+v", r.active(), r.upstream.Counts())
	}
}

// TestPauses: endpoints are tried again after a pause, which is longer each time, and none is
// before one that has not been tried.
func TestPauses(t *testing.T) {
	for endpoints := 1; endpoints <= 3; endpoints++ {
		r := newRig(t, endpoints, router.SnapshotConfig{Attempts: 4*endpoints - 1, Backoff: 10 * time.Millisecond, MaxBackoff: 30 * time.Millisecond}, nil)
		s, _ := r.search()
		for round := range 4 {
			if round > 0 {
				most := min(10*time.Millisecond<<(round-1), 30*time.Millisecond)
				if step := s.Next(r.clock); step.Action != worker.Pause || step.Timeout < most/2 || step.Timeout > most {
					t.Errorf("%d endpoints, before round %d: %+v", endpoints, round, step)
				}
			}
			seen := map[string]bool{}
			for range endpoints {
				step := s.Next(r.clock)
				if step.Action != worker.Connect {
					t.Fatalf("%d endpoints, round %d: %v", endpoints, round, step.Action)
				}
				seen[step.Address.AddrPort.String()] = true
				s.Failed(syscall.ECONNREFUSED, r.clock)
			}
			if len(seen) != endpoints {
				t.Errorf("round %d tried %v, want each of %d endpoints", round, seen, endpoints)
			}
		}
		if step := s.Next(r.clock); step.Action != worker.GiveUp {
			t.Errorf("%d endpoints: %v", endpoints, step.Action)
		}
		s.Close()
	}
}

// TestOwnFaultsBlameNobody: for want of a port or a descriptor an endpoint has not failed.
func TestOwnFaultsBlameNobody(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{}, nil)
	s, _ := r.search()
	s.Next(r.clock)
	s.Failed(syscall.EADDRNOTAVAIL, r.clock)
	s.Next(r.clock)
	s.Close()
	if n := r.upstream.Counts().Failures; n != 0 || r.active() != 0 {
		t.Errorf("%d failures, %d active", n, r.active())
	}
}

// TestClientsThatLeaveGiveBack: in every stage.
func TestClientsThatLeaveGiveBack(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{QueueSize: 5, QueueTimeout: time.Minute}, nil)
	r.members[0].Connections = 1
	r.use()
	first, _ := r.search()
	if step := first.Next(r.clock); step.Action != worker.Connect {
		t.Fatal(step.Action)
	}
	second, _ := r.search()
	if step := second.Next(r.clock); step.Action != worker.Park || r.upstream.Waiting() != 1 {
		t.Fatalf("%v, %d wait", step.Action, r.upstream.Waiting())
	}
	second.Close()
	first.Close()
	if r.active() != 0 || r.upstream.Waiting() != 0 {
		t.Errorf("%d active, %d wait", r.active(), r.upstream.Waiting())
	}
}

// TestSessionsReportAtTheirEnd: the result of a session counts for or against its endpoint, and
// its place is given back.
func TestSessionsReportAtTheirEnd(t *testing.T) {
	for name, c := range map[string]struct {
		result   relay.Result
		failures int64
	}{
		"answered": {relay.Result{Reason: relay.ReasonEOF, BToA: relay.Flow{Copied: 1, Reason: relay.ReasonEOF}}, 0},
		"silent":   {relay.Result{Reason: relay.ReasonFirstByte}, 1},
		"canceled": {relay.Result{Reason: relay.ReasonCanceled}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, router.SnapshotConfig{}, nil)
			s, _ := r.search()
			s.Next(r.clock)
			limits, err := s.Reached(r.clock)
			if err != nil || r.active() != 1 {
				t.Fatal(err, r.active())
			}
			s.Close()
			binding := limits.Of.(worker.Binding)
			if up, endpoint := binding.Names(); up != "u" || endpoint != "10.0.0.1:80" {
				t.Error(up, endpoint)
			}
			binding.Ended(c.result, nil)
			if n := r.upstream.Counts().Failures; n != c.failures || r.active() != 0 {
				t.Errorf("%d failures, %d active", n, r.active())
			}
		})
	}
}

// TestResetsAreInARow: whether a reset comes before the connection was looked at, or after, is
// chance. Both are the same failure, by which an endpoint is judged.
func TestResetsAreInARow(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{}, nil)
	outlier := health.NewOutlierDetector(r.keeper, &health.OutlierConfig{
		ConsecutiveFailures: 4, BaseEjectionTime: time.Minute, MaxEjected: 1,
	})
	e := r.members[0].Endpoint.Of.(*router.Endpoint)
	breaker := health.NewBreaker(r.keeper, "e", nil, &health.BreakerConfig{
		FailurePercentage: 100, Window: time.Minute, MinVolume: 4, Open: time.Minute,
	})
	e.SetBreaker(breaker)
	e.SetMonitor(outlier.Add("e", e))
	for i := range 4 {
		s, _ := r.search()
		if step := s.Next(r.clock); step.Action != worker.Connect {
			t.Fatal(step.Action)
		}
		if i%2 == 1 {
			s.Failed(os.NewSyscallError("connect", syscall.ECONNRESET), r.clock)
			s.Close()
			continue
		}
		limits, err := s.Reached(r.clock)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		limits.Of.(worker.Binding).Ended(relay.Result{Reason: relay.ReasonReset, Culprit: relay.SideB}, nil)
	}
	if st := e.State(); !st.Ejected || e.Failures() != 4 || r.active() != 0 {
		t.Errorf("%+v, %d failures, want it ejected after 4", st, e.Failures())
	}
	if connections, pending := breaker.Load(); connections != 0 || pending != 0 || breaker.State() != health.Open {
		t.Errorf("the breaker is %v, with %d connections, %d pending", breaker.State(), connections, pending)
	}
}

// TestRowsOfFailures: a session that an endpoint has answered, and that has ended, ends a
// row of failures; one that has timed out, or was cut, does not.
func TestRowsOfFailures(t *testing.T) {
	answered := relay.Flow{Copied: 1}
	for reason, ejected := range map[relay.Reason]bool{
		relay.ReasonEOF: false, relay.ReasonReset: false, relay.ReasonLifetime: false,
		relay.ReasonIdle: true, relay.ReasonHalfClose: true, relay.ReasonError: true, relay.ReasonCanceled: true,
	} {
		r := newRig(t, 1, router.SnapshotConfig{}, nil)
		outlier := health.NewOutlierDetector(r.keeper, &health.OutlierConfig{
			ConsecutiveFailures: 2, BaseEjectionTime: time.Minute, MaxEjected: 1,
		})
		e := r.members[0].Endpoint.Of.(*router.Endpoint)
		e.SetMonitor(outlier.Add("e", e))
		for _, result := range []relay.Result{
			{Reason: relay.ReasonFirstByte}, {Reason: reason, BToA: answered}, {Reason: relay.ReasonFirstByte},
		} {
			s, _ := r.search()
			s.Next(r.clock)
			limits, err := s.Reached(r.clock)
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
			limits.Of.(worker.Binding).Ended(result, nil)
		}
		if st := e.State(); st.Ejected != ejected {
			t.Errorf("two failures with %v between them: ejected is %v", reason, st.Ejected)
		}
	}
}

// TestSearchAllocatesNothing for a client that is served at the first try.
func TestSearchAllocatesNothing(t *testing.T) {
	r := newRig(t, 10, router.SnapshotConfig{
		Attempts: 2, Budget: health.NewRetryBudget(&health.RetryBudgetConfig{Ratio: 1, Floor: 1, Window: time.Second}),
	}, nil)
	s, c := r.search()
	s.Close()
	allocs := testing.AllocsPerRun(1000, func() {
		s.Begin(c, r.clock)
		if step := s.Next(r.clock); step.Action != worker.Connect {
			t.Fatal(step.Action)
		}
		limits, err := s.Reached(r.clock)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		limits.Of.(worker.Binding).Ended(relay.Result{Reason: relay.ReasonEOF}, nil)
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// BenchmarkSearch measures the cost of a client's way to its endpoint, without system calls.
func BenchmarkSearch(b *testing.B) {
	r := newRig(b, 10, router.SnapshotConfig{
		Attempts: 2, Budget: health.NewRetryBudget(&health.RetryBudgetConfig{Ratio: 1, Floor: 1, Window: time.Second}),
	}, nil)
	s, c := r.search()
	s.Close()
	b.ReportAllocs()
	for b.Loop() {
		s.Begin(c, r.clock)
		s.Next(r.clock)
		limits, _ := s.Reached(r.clock)
		s.Close()
		limits.Of.(worker.Binding).Ended(relay.Result{Reason: relay.ReasonEOF}, nil)
	}
}
