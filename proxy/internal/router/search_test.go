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
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
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
	fell     atomic.Int64 // how often sessions were not to go on at an endpoint
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
	r.upstream = router.NewUpstream("u", func(*router.Endpoint) { r.fell.Add(1) })
	r.snapshot = router.NewSnapshot(r.upstream, &cfg)
	for i := range endpoints {
		addr := sockopt.Address{Network: "tcp", Name: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte((i + 1) >> 8), byte(i + 1)}), 80).String()}
		e, _, err := r.upstream.Endpoint(addr.Name, addr, lb.EndpointConfig{ID: addr.Name, Weight: 1, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		r.members = append(r.members, lb.Member{Endpoint: e.Endpoint, Weight: 1})
	}
	r.use(new(lb.Config))
	lc := &router.ListenerConfig{
		Name: "l", State: router.NewListenerState("", nil), Wake: func() {}, Default: r.snapshot, Now: now, Connect: time.Second,
	}
	if change != nil {
		change(lc)
	}
	r.listener = router.NewListener(lc)
	return r
}

func (r *rig) pass(d time.Duration) {
	r.clock += int64(d)
	r.others.Store(r.clock)
}

// outlier has the endpoints ejected after so many failures in a row, as many of them as may be.
func (r *rig) outlier(failures int, most float64) {
	d := health.NewOutlierDetector(r.keeper, &health.OutlierConfig{ConsecutiveFailures: failures, Window: time.Minute, BaseEjectionTime: time.Minute, MaxEjected: most})
	for i := range r.members {
		m := d.NewMonitor("e", r.endpoint(i))
		d.Join(m)
		r.endpoint(i).SetMonitor(m)
	}
}

func (r *rig) own(percent float64, volume int, open time.Duration) *health.Breaker {
	b := health.NewBreaker(r.keeper, "e", r.endpoint(0), &health.BreakerConfig{
		FailurePercentage: percent, Window: time.Minute, MinVolume: volume, Open: open, TrialConnections: 1,
	})
	r.endpoint(0).SetBreaker(b)
	return b
}

// use has clients sent to the members as they are now.
func (r *rig) use(cfg *lb.Config) {
	cfg.OnRoom = r.upstream.Room
	r.set = lb.NewSet(r.members, cfg, nil)
	r.set.Attach()
	r.snapshot.SetEndpoints(r.set)
}

// takes ends the test unless the next step of a search is of a kind.
func (r *rig) takes(s *router.Search, want worker.Action) worker.Step {
	r.t.Helper()
	step := s.Next(r.clock)
	if step.Action != want {
		r.t.Fatalf("%+v, %v, want %v", step, s.Err(), want)
	}
	return step
}

func (r *rig) reached(s *router.Search) *relay.Limits {
	r.t.Helper()
	limits, err := s.Reached(r.clock)
	if err != nil {
		r.t.Fatal(err)
	}
	return limits
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
	if r.active() != 0 || r.upstream.Counts().Failures != 3 || r.upstream.Counts().Retries != 2 || r.upstream.Refusals.ByReason(false)["failed"] != 1 {
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

// TestOwnFaultsBlameNobody: for lack of a port, a descriptor, a watch of epoll or a turn of TLS an endpoint has not failed.
func TestOwnFaultsBlameNobody(t *testing.T) {
	for _, err := range []error{syscall.EADDRNOTAVAIL, os.NewSyscallError("epoll_ctl", syscall.ENOSPC), &tlsterm.Error{Kind: tlsterm.Busy, Err: syscall.EBUSY}} {
		r := newRig(t, 1, router.SnapshotConfig{}, nil)
		s, _ := r.search()
		s.Next(r.clock)
		s.Failed(err, r.clock)
		s.Next(r.clock)
		s.Close()
		if n := r.upstream.Counts().Failures; n != 0 || r.active() != 0 || r.upstream.LocalFaults.Total() != 1 {
			t.Errorf("%v: %d failures, %d active, %d for lack of a resource", err, n, r.active(), r.upstream.LocalFaults.Total())
		}
	}
}

// TestTurnedDownAtOneAddress: an endpoint that has refused a client's protocol at one address has answered the client,
// whatever happens at its other addresses.
func TestTurnedDownAtOneAddress(t *testing.T) {
	t.Parallel()

	no := &tlsterm.Error{Kind: tlsterm.Protocol, Err: errors.New("no application protocol")}
	for name, c := range map[string]struct {
		errs     [2]error
		failures int64
	}{
		"at the first":    {[2]error{no, syscall.ECONNREFUSED}, 0},
		"at the last":     {[2]error{syscall.ECONNREFUSED, no}, 0},
		"at no address":   {[2]error{syscall.ECONNREFUSED, syscall.ECONNREFUSED}, 1},
		"at one, no port": {[2]error{no, syscall.EADDRNOTAVAIL}, 0},
	} {
		r := newRig(t, 0, router.SnapshotConfig{}, nil)
		e, _, err := r.upstream.Endpoint("e", sockopt.Address{Network: "tcp", Name: "db.test:80"}, lb.EndpointConfig{ID: "e", Weight: 1, Now: r.others.Load})
		if err != nil {
			t.Fatal(err)
		}
		r.members = append(r.members, lb.Member{Endpoint: e.Endpoint, Weight: 1})
		r.use(new(lb.Config))
		s := router.NewSecureSearch(r.listener, r.snapshot, "h2")
		s.Begin(worker.NewClient(source.TCP(netip.MustParseAddrPort("192.0.2.1:1")), netip.MustParseAddrPort("192.0.2.2:2")), r.clock)
		r.takes(s, worker.Resolve)
		s.Resolved([]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, nil)
		for _, err := range c.errs {
			r.takes(s, worker.Connect)
			s.Failed(err, r.clock)
		}
		r.takes(s, worker.GiveUp)
		s.Close()
		if n := r.upstream.Counts().Failures; n != c.failures || r.active() != 0 || e.Failing() != (n > 0) {
			t.Errorf("%s: %d failures, %d active, failing: %v", name, n, r.active(), e.Failing())
		}
	}
}

// TestResetsAreInARow: whether a reset comes before the connection was looked at, or after, is
// chance. Both are the same failure, by which an endpoint is judged.
func TestResetsAreInARow(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{}, nil)
	e := r.endpoint(0)
	r.outlier(4, 1)
	breaker := r.own(100, 4, time.Minute)
	for i := range 4 {
		s, _ := r.search()
		r.takes(s, worker.Connect)
		if i%2 == 1 {
			s.Failed(os.NewSyscallError("connect", syscall.ECONNRESET), r.clock)
			s.Close()
			continue
		}
		limits := r.reached(s)
		s.Close()
		limits.Of.(worker.Binding).Ended(0, relay.Result{Reason: relay.ReasonReset, Culprit: relay.SideB}, nil)
	}
	if st := e.State(); !st.Ejected || e.Counts().Failures != 4 || r.active() != 0 {
		t.Errorf("%+v, %d failures, want it ejected after 4", st, e.Counts().Failures)
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
		e := r.endpoint(0)
		r.outlier(2, 1)
		for _, result := range []relay.Result{
			{Reason: relay.ReasonFirstByte}, {Reason: reason, BToA: answered}, {Reason: relay.ReasonFirstByte},
		} {
			r.serve().Ended(0, result, nil)
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
		r.takes(s, worker.Connect)
		limits := r.reached(s)
		s.Close()
		limits.Of.(worker.Binding).Ended(0, relay.Result{Reason: relay.ReasonEOF}, nil)
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// trying returns a search that tries an endpoint as a last resort to which no connection could be made,
// for as long as it is let.
func (r *rig) trying(t *testing.T) *router.Search {
	t.Helper()
	if tried, _ := r.tries(); len(tried) != len(r.members) {
		t.Fatalf("tried: %v", tried)
	}
	for i := range r.members {
		r.endpoint(i).SetEjected(true)
	}
	r.pass(time.Second)
	s, _ := r.search()
	t.Cleanup(s.Close)
	if step := s.Next(r.clock); step.Action != worker.Connect || step.Recheck <= 0 {
		t.Fatalf("%+v", step)
	}
	r.pass(time.Second)
	if s.Abandon(r.clock) {
		t.Fatal("given up, though none is better")
	}
	return s
}

// TestAbandonForAnother: a client that is being connected as a last resort goes to an endpoint that is
// back, and the attempt that is given up is no failure of its endpoint.
func TestAbandonForAnother(t *testing.T) {
	r := newRig(t, 2, router.SnapshotConfig{}, nil)
	s := r.trying(t)
	failed := r.upstream.Unreached.Total()
	first := r.endpoint(0)
	if first.Active() == 0 {
		t.Fatal("the first one is not the one that is tried")
	}
	other := r.endpoint(1)
	other.SetEjected(false)
	if s.Abandon(r.clock) {
		t.Error("given up for one that is failing")
	}
	other.SetFailing(false)
	if !s.Abandon(r.clock) {
		t.Fatal("it stays, though another one is back")
	}
	s.Failed(record.ErrAbandoned, r.clock)
	step := s.Next(r.clock)
	if at := step.Address.AddrPort.Addr().String(); step.Action != worker.Connect || at != "10.0.0.2" {
		t.Fatalf("then %v %s", step.Action, at)
	}
	if first.Active() != 0 || r.upstream.Unreached.Total() != failed {
		t.Errorf("%d sessions, %d failures, want %d", first.Active(), r.upstream.Unreached.Total(), failed)
	}
	r.reached(s)
}

// TestAbandonTheDrained: a client that is being connected to an endpoint is not kept there once it is to
// get no more clients.
func TestAbandonTheDrained(t *testing.T) {
	r := newRig(t, 2, router.SnapshotConfig{Attempts: 1}, nil)
	s, _ := r.search()
	defer s.Close()
	if step := s.Next(r.clock); step.Action != worker.Connect || s.Abandon(r.clock) {
		t.Fatal(step.Action)
	}
	at := 0
	if r.endpoint(1).Active() > 0 {
		at = 1
	}
	r.endpoint(at).SetWeight(0)
	if !s.Abandon(r.clock) {
		t.Error("it stays where the weight is 0")
	}
	r.endpoint(at).SetWeight(1)
	r.endpoint(at).SetDraining(true)
	if !s.Abandon(r.clock) {
		t.Fatal("it stays where it drains")
	}
	s.Failed(record.ErrAbandoned, r.clock)
	if step := s.Next(r.clock); step.Action != worker.Connect || r.endpoint(at).Active() != 0 || r.endpoint(1-at).Active() != 1 {
		t.Errorf("%v, %d and %d", step.Action, r.endpoint(at).Active(), r.endpoint(1-at).Active())
	}
}

// TestAbandonForTheFallback: a client is not kept at an endpoint with a verdict against it while the fallback
// serves; nor, after a second, at one that others could not reach, which is a failure then.
func TestAbandonForTheFallback(t *testing.T) {
	for _, failing := range []bool{false, true} {
		r := newRig(t, 1, router.SnapshotConfig{Attempts: 1, Respond: []byte("sorry")}, nil)
		s, _ := r.search()
		r.takes(s, worker.Connect)
		if s.Abandon(r.clock) {
			t.Fatal("given up without a reason")
		}
		r.pass(999 * time.Millisecond)
		if failing {
			r.endpoint(0).SetFailing(true)
			if s.Abandon(r.clock) {
				t.Error("given up within a second, without a verdict")
			}
			r.pass(time.Millisecond)
		} else {
			r.endpoint(0).SetEjected(true)
		}
		if !s.Abandon(r.clock) {
			t.Fatal("it stays, though there is a response for it")
		}
		s.Failed(record.ErrAbandoned, r.clock)
		if step := s.Next(r.clock); step.Action != worker.Respond {
			t.Errorf("then %v", step.Action)
		}
		if n := r.upstream.Unreached.Total(); (n == 1) != failing {
			t.Errorf("failing %v: %d failures", failing, n)
		}
		s.Close()
	}
}

// TestAbandonOnlyForBetter: one that is usable is waited for, however many others are.
func TestAbandonOnlyForBetter(t *testing.T) {
	r := newRig(t, 3, router.SnapshotConfig{Attempts: 1}, nil)
	s, _ := r.search()
	defer s.Close()
	_ = s.Next(r.clock)
	at := 0
	for i := range 3 {
		if r.endpoint(i).Active() > 0 {
			at = i
		}
	}
	r.pass(999 * time.Millisecond)
	for want := range int64(2) {
		if s.Abandon(r.clock) {
			t.Error("a usable one was given up")
		}
		if n, _ := r.endpoint(at).SlowConnects(); n != want {
			t.Errorf("%d clients have waited for a second, want %d", n, want)
		}
		r.pass(time.Millisecond)
	}
	for i := range 3 { // it was ejected meanwhile
		if r.endpoint(i).Active() > 0 {
			r.endpoint(i).SetEjected(true)
		}
	}
	if !s.Abandon(r.clock) {
		t.Error("it waits for one that is ejected, though others are usable")
	}
	for i := range 3 { // others that are full are no better
		r.endpoint(i).SetLimit(1)
		r.endpoint(i).AcquireAnyway(false)
	}
	if s.Abandon(r.clock) {
		t.Error("it was given up for one without room")
	}
	s.Failed(syscall.ETIMEDOUT, r.clock)
	if n, _ := r.endpoint(at).SlowConnects(); n != 0 {
		t.Errorf("%d clients wait for a connection in the end", n)
	}
}

// TestLastTrialEndsInTime: the connect of a client that is held lasts no longer than it is held.
func TestLastTrialEndsInTime(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{QueueSize: 8, Hold: 3 * time.Second}, nil)
	s, _ := r.search()
	defer s.Close()
	_ = s.Next(r.clock)
	s.Failed(syscall.ECONNREFUSED, r.clock)
	came := r.clock
	for range 100 {
		step := s.Next(r.clock)
		switch step.Action {
		case worker.Park:
			r.pass(max(step.Timeout, time.Millisecond))
		case worker.Connect:
			if step.Timeout <= 0 || r.clock+int64(step.Timeout) > came+int64(3*time.Second+500*time.Millisecond) {
				t.Fatalf("after %v a connect of %v", time.Duration(r.clock-came), step.Timeout)
			}
			r.pass(step.Timeout)
			s.Failed(syscall.ETIMEDOUT, r.clock)
		case worker.GiveUp:
			if held := time.Duration(r.clock - came); held > 3500*time.Millisecond {
				t.Errorf("refused after %v", held)
			}
			return
		}
	}
	t.Error("it is held for ever")
}

// TestSilentToConnects: while a client has waited for a connection for a second, others are sent elsewhere, unless one
// has been connected since.
func TestSilentToConnects(t *testing.T) {
	r := newRig(t, 2, router.SnapshotConfig{Attempts: 2}, nil)
	s, _ := r.search()
	defer s.Close()
	_ = s.Next(r.clock)
	silent := 0
	if r.endpoint(1).Active() > 0 {
		silent = 1
	}
	// sent returns how many of ten further clients are sent there.
	sent := func() (n int) {
		for range 10 {
			before := r.endpoint(silent).Active()
			other, _ := r.search()
			r.takes(other, worker.Connect)
			n += int(r.endpoint(silent).Active() - before)
			other.Close()
		}
		return n
	}
	r.pass(999 * time.Millisecond)
	s.Abandon(r.clock)
	if n := sent(); n == 0 {
		t.Error("within a second none is sent there")
	}
	r.pass(time.Millisecond)
	s.Abandon(r.clock)
	if n := sent(); n > 0 {
		t.Errorf("after a second %d of 10 are sent there", n)
	}
	r.endpoint(1 - silent).SetEjected(true)
	if n := sent(); n != 10 {
		t.Errorf("where it is the only one %d of 10 are sent there", n)
	}
	r.endpoint(1 - silent).SetEjected(false)
	s.Failed(syscall.ETIMEDOUT, r.clock)
	if n := sent(); n == 0 {
		t.Error("after the end of the connect none is sent there")
	}
}

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
			rig.serve().Ended(0, r, nil)
			if up.State() != health.Open || own.State() != health.Open {
				t.Errorf("after trials that ended so: %v, %v", up.State(), own.State())
			}
			rig.serve().Ended(0, r, nil) // as a last resort
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
			last.Ended(0, answered, nil)
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
		if b.Watch(relay.Turn{}, rig.clock); up.State() != health.HalfOpen || own.State() != health.HalfOpen {
			t.Fatalf("before: %v, %v", up.State(), own.State())
		}
	}
	rig.pass(time.Second)
	if b.Watch(relay.Turn{}, rig.clock); up.State() != health.Closed || own.State() != health.Closed {
		t.Errorf("after 5 s: %v, %v", up.State(), own.State())
	}
	b.Ended(0, answered, nil)
}

// broken is an upstream whose breaker is open, as is that of its only endpoint.
func broken(t *testing.T) (r *rig, up, own *health.Breaker) {
	r = newRig(t, 1, router.SnapshotConfig{}, nil)
	up, own = r.breakerOf(health.BreakerConfig{FailurePercentage: 1, MinVolume: 1, Open: time.Hour}), r.own(1, 1, time.Hour)
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
	r.takes(s, worker.Park)
	r.endpoint(0).SetDraining(false)
	r.upstream.Room()
	r.takes(s, worker.Connect)
	limits := r.reached(s)
	s.Close()
	limits.Of.(worker.Binding).Ended(0, answered, nil)
	if c := r.upstream.Counts(); c.Held != 1 || c.LastResort != 0 {
		t.Errorf("after one that was held: %+v", c)
	}
	s, _ = r.search()
	defer s.Close()
	for range 3 {
		r.takes(s, worker.Connect)
		s.Failed(syscall.ECONNREFUSED, r.clock)
		r.takes(s, worker.Park)
		r.pass(time.Second) // when the endpoint may be tried again
	}
	if c := r.upstream.Counts(); c.Held != 2 || c.LastResort != 0 {
		t.Errorf("after attempts that failed: %+v", c)
	}
	r.takes(s, worker.Connect)
	r.reached(s).Of.(worker.Binding).Ended(0, answered, nil)
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
				defer first.serve().Ended(0, answered, nil)
			}
			c := &crowd{rig: first, clocks: []*int64{&r.clock}, accepts: true}
			c.come(3)
			c.wait(10 * time.Millisecond)
			if c.connects != 0 || r.upstream.Asked() || first.upstream.Asked() {
				t.Errorf("%s, fallback %v: %d connects; a client is to look again %v, %v", name, fallback, c.connects, r.upstream.Asked(), first.upstream.Asked())
			}
			session.Ended(0, answered, nil)
			if c.wait(10 * time.Millisecond); c.served != 1 {
				t.Errorf("%s, fallback %v: %d have the room of one", name, fallback, c.served)
			}
			c.leave()
		}
	}
}
