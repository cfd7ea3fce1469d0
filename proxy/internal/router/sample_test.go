package router_test

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// comes has a client from an address served, with that result.
func (r *rig) comes(from string, result relay.Result) {
	r.t.Helper()
	c := worker.NewClient(source.TCP(netip.AddrPortFrom(netip.MustParseAddr(from), 1)), netip.MustParseAddrPort("192.0.2.2:2"))
	s := r.listener.NewSearch()
	s.Begin(c, r.clock)
	if step := s.Next(r.clock); step.Action != worker.Connect {
		r.t.Fatal(step.Action, s.Err())
	}
	limits, err := s.Reached(r.clock)
	if err != nil {
		r.t.Fatal(err)
	}
	s.Close()
	if result.Reason == relay.ReasonNone { // it continues, and was answered
		if limits.Answered != nil {
			limits.Answered()
		}
		return
	}
	limits.Of.(worker.Binding).Ended(result, nil)
}

var (
	answered       = relay.Result{Reason: relay.ReasonEOF, AToB: relay.Flow{Copied: 1}, BToA: relay.Flow{Copied: 1}}
	ended          = relay.Result{Reason: relay.ReasonEOF, BToA: relay.Flow{Reason: relay.ReasonEOF}}
	silent         = relay.Result{Reason: relay.ReasonFirstByte}
	rejected       = relay.Result{Reason: relay.ReasonReset, Culprit: relay.SideB, AToB: relay.Flow{Spliced: 1}}
	left           = relay.Result{Reason: relay.ReasonReset, Culprit: relay.SideB, AToB: relay.Flow{Reason: relay.ReasonEOF}}
	reset          = relay.Result{Reason: relay.ReasonReset, Culprit: relay.SideB}
	goesOn         = relay.Result{}
	closedSilently = relay.Result{Reason: relay.ReasonEOF, First: relay.SideB, AToB: relay.Flow{Copied: 1}, BToA: relay.Flow{Reason: relay.ReasonEOF}}
)

// TestOneClientEjectsNobody tests the effect of one client on an endpoint while another one is
// served, and the result that the other one needs to have had.
func TestOneClientEjectsNobody(t *testing.T) {
	const honest, other, near = "198.51.100.1", "203.0.113.1", "203.0.113.2"
	for name, c := range map[string]struct {
		honest      relay.Result
		from        []string
		does        relay.Result
		bad         bool
		prefix      int
		firstByteIn time.Duration
	}{
		"sends garbage":                         {answered, []string{other}, rejected, false, 0, 0},
		"is hung up on":                         {answered, []string{other}, closedSilently, false, 0, 0},
		"says that it sends no more":            {answered, []string{other}, left, false, 0, 0},
		"says nothing":                          {answered, []string{other}, silent, false, 0, 0},
		"says nothing, another is being served": {goesOn, []string{other}, silent, false, 0, time.Second},
		"is reset before it has said anything":  {answered, []string{other}, reset, true, 0, 0},
		"nobody is served":                      {ended, []string{other}, rejected, true, 0, 0},
		"it is the one who is served":           {answered, []string{honest}, rejected, true, 0, 0},
		"there are two":                         {answered, []string{other, near}, rejected, true, 0, 0},
		"there are two of one source":           {answered, []string{other, near}, rejected, false, 24, 0},
	} {
		t.Run(name, func(t *testing.T) {
			snapCfg := router.SnapshotConfig{}
			k := health.NewScheduler(&health.SchedulerConfig{Now: func() int64 { return 1e9 }})
			defer k.Close()
			cfg := &health.BreakerConfig{FailurePercentage: 60, Window: time.Minute, MinVolume: 10, Open: time.Minute}
			snapCfg.Breaker = health.NewBreaker(k, "u", nil, cfg)
			r := newRig(t, 1, snapCfg, func(lc *router.ListenerConfig) {
				lc.SourcePrefix = [2]int{c.prefix, 0}
				lc.Limits.FirstByte = c.firstByteIn
			})
			e := r.members[0].Endpoint.Of.(*router.Endpoint)
			outlier := health.NewOutlierDetector(r.keeper, &health.OutlierConfig{
				ConsecutiveFailures: 5, Window: time.Minute, BaseEjectionTime: time.Minute, MaxEjected: 1,
			})
			breaker := health.NewBreaker(r.keeper, "e", nil, cfg)
			e.SetMonitor(outlier.Add("e", e))
			e.SetBreaker(breaker)
			r.comes(honest, c.honest)
			bad := func() bool {
				return e.State().Ejected || breaker.State() != health.Closed || snapCfg.Breaker.State() != health.Closed
			}
			for i := 0; i < 15 && !bad(); i++ {
				r.comes(c.from[i%len(c.from)], c.does)
			}
			if bad() != c.bad {
				t.Errorf("ejected is %v, the endpoint's breaker %v, the upstream's %v", e.State().Ejected, breaker.State(), snapCfg.Breaker.State())
			}
		})
	}
}

// TestOthersAreNotReached: that one client sends garbage excuses no endpoint that others
// cannot connect to.
func TestOthersAreNotReached(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{}, nil)
	e := r.members[0].Endpoint.Of.(*router.Endpoint)
	breaker := health.NewBreaker(r.keeper, "e", nil, &health.BreakerConfig{
		FailurePercentage: 60, Window: time.Minute, MinVolume: 10, Open: time.Minute,
	})
	e.SetBreaker(breaker)
	r.comes("198.51.100.1", answered)
	r.comes("203.0.113.1", rejected)
	for range 8 {
		s, _ := r.search()
		s.Next(r.clock)
		s.Failed(syscall.ECONNREFUSED, r.clock)
		s.Close()
	}
	if breaker.State() != health.Open {
		t.Errorf("the breaker is %v", breaker.State())
	}
}

// TestTrialsAreOfTheSample: the outcome of a trial is known by its source.
func TestTrialsAreOfTheSample(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{}, func(lc *router.ListenerConfig) { lc.Limits.FirstByte = time.Second })
	e := r.members[0].Endpoint.Of.(*router.Endpoint)
	breaker := health.NewBreaker(r.keeper, "e", nil, &health.BreakerConfig{
		FailurePercentage: 60, Window: time.Minute, MinVolume: 1, Open: time.Minute, TrialConnections: 2,
	})
	e.SetBreaker(breaker)
	r.comes("198.51.100.1", reset)
	if breaker.Recovered(); breaker.State() != health.HalfOpen {
		t.Fatalf("the breaker is %v", breaker.State())
	}
	r.comes("198.51.100.1", answered)
	if r.comes("203.0.113.1", rejected); breaker.State() != health.HalfOpen {
		t.Errorf("after the trial of one that sends garbage the breaker is %v", breaker.State())
	}
	if r.comes("198.51.100.1", answered); breaker.State() != health.Closed {
		t.Errorf("after the trials of others the breaker is %v", breaker.State())
	}
}

// TestSample: of each second the first are of it, and of the others a part.
func TestSample(t *testing.T) {
	var s router.Sample
	for second := range int64(3) {
		taken := 0
		for i := range int64(10_000) {
			if s.Take(1e9*(second+1) + i) {
				taken++
			} else if i < 16 {
				t.Fatalf("the %d. of a second is not of the sample", i+1)
			}
		}
		if taken < 2000 || taken > 3000 {
			t.Errorf("%d of 10,000 are of the sample, want a quarter", taken)
		}
	}
}

// TestBondsOfSources: clients that come again cost no memory, be they several.
func TestBondsOfSources(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{}, nil)
	e := r.members[0].Endpoint.Of.(*router.Endpoint)
	e.SetMonitor(health.NewOutlierDetector(r.keeper, &health.OutlierConfig{ConsecutiveFailures: 5, Window: time.Minute, MaxEjected: 1}).Add("e", e))
	c := worker.NewClient(source.TCP(netip.MustParseAddrPort("192.0.2.1:1")), netip.MustParseAddrPort("192.0.2.2:2"))
	s, now := r.listener.NewSearch(), r.clock
	if n := testing.AllocsPerRun(1000, func() {
		now += 1e8 // all are of the sample
		s.Begin(c, now)
		s.Next(now)
		limits, _ := s.Reached(now)
		s.Close()
		limits.Of.(worker.Binding).Ended(answered, nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
