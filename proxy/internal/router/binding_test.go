package router_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// An asker is the clients of a rig whose endpoints are judged by their answers.
type asker struct {
	*rig
	judge     *health.Unanswered
	watched   []health.Watched
	endpoints []*router.Endpoint
	deaf      [3]bool // endpoints that do not close a connection
	waiting   []waiting
}

// A waiting is a client that was not answered.
type waiting struct {
	limits *relay.Limits
	asked  int64
}

type proberFunc func() error

func (f proberFunc) Probe(context.Context) error { return f() }

func newAsker(t *testing.T) *asker {
	a := &asker{rig: newRig(t, 3, router.SnapshotConfig{}, nil)}
	a.judge = health.NewUnanswered(context.Background(), func(probe func()) { probe() })
	outlier := health.NewOutlierDetector(a.keeper, &health.OutlierConfig{BaseEjectionTime: time.Minute, MaxEjected: 0.5})
	for i, m := range a.members {
		e := m.Endpoint.Of.(*router.Endpoint)
		monitor, judge := outlier.NewMonitor("e", e), outlier.NewMonitor("e", e)
		outlier.Join(monitor, judge)
		e.SetMonitor(monitor)
		a.endpoints = append(a.endpoints, e)
		a.watched = append(a.watched, health.Watched{Answers: e.Answers(), Judge: judge, Probe: proberFunc(func() error {
			if a.deaf[i] {
				return os.ErrDeadlineExceeded
			}
			return nil
		})})
	}
	return a
}

// round has clients come for half a second, nine of them. Those of endpoints that are silent are
// not answered.
func (a *asker) round(silent func(*router.Endpoint) bool) {
	a.t.Helper()
	for range 9 {
		s, _ := a.search()
		a.takes(s, worker.Connect)
		limits := a.reached(s)
		s.Close()
		if b := limits.Of.(worker.Binding); silent(router.EndpointOf(b)) {
			a.waiting = append(a.waiting, waiting{limits, a.clock})
		} else {
			limits.FirstByteCame(time.Millisecond, true)
			b.Ended(0, answered, nil)
		}
	}
	a.pass(5e8)
	for _, w := range a.waiting {
		asked := time.Duration(a.clock - w.asked)
		w.limits.Of.(worker.Binding).Watch(relay.Turn{Last: relay.SideA, Quiet: asked, Asked: asked}, a.clock)
	}
	a.judge.Round(a.clock, &health.UnansweredConfig{After: 3 * time.Second}, a.watched, false)
}

func (a *asker) rounds(n int, silent func(*router.Endpoint) bool) {
	a.t.Helper()
	for range n {
		a.round(silent)
	}
}

func (a *asker) none(*router.Endpoint) bool { return false }

func (a *asker) first(e *router.Endpoint) bool { return e == a.endpoints[0] }

// TestUnanswered: sessions without answers get an endpoint ejected that answers no client any
// more. When it answers, it returns.
func TestUnanswered(t *testing.T) {
	a := newAsker(t)
	a.rounds(10, a.none)
	for i, e := range a.endpoints {
		if took, part := e.Answers().Within(99); !e.Answers().Known() || part != 100 || took > 2*time.Millisecond {
			t.Errorf("endpoint %d: %v, %v %%", i, took, part)
		}
	}
	a.deaf[0] = true
	a.rounds(8, a.first)
	e := a.endpoints[0]
	if why, _ := a.watched[0].Judge.Why(); !e.State().Ejected || !strings.HasPrefix(why, "unanswered: ") {
		t.Fatalf("%+v: %q", e.State(), why)
	}
	if n, longest := e.Answers().Unanswered(); n < 8 || longest < 3*time.Second {
		t.Errorf("%d are unanswered, for up to %v", n, longest)
	}
	a.waiting[0].limits.FirstByteCame(5*time.Second, true)
	a.waiting = nil
	if a.round(a.none); e.State().Ejected {
		t.Error("it has answered, and is ejected still")
	}
}

// TestAnEndIsALifeSign: an endpoint that ends a session, or resets it, is not silent. One whose connection TCP gives up is.
func TestAnEndIsALifeSign(t *testing.T) {
	for name, end := range map[string]relay.Result{"ended": closedSilently, "reset": reset, "by the client": {Reason: relay.ReasonReset, Culprit: relay.SideA}, "timed out": timedOut} {
		a := newAsker(t)
		a.rounds(10, a.none)
		a.deaf[0] = true
		for range 10 {
			a.rounds(2, a.first)
			a.waiting[0].limits.Of.(worker.Binding).Ended(0, end, syscall.ETIMEDOUT)
			a.waiting = a.waiting[1:]
		}
		if out, want := a.endpoints[0].State().Ejected, name == "by the client" || name == "timed out"; out != want {
			t.Errorf("%s: ejected is %v", name, out)
		}
	}
}

// fail has a client come to an endpoint that it cannot connect to.
func (a *asker) fail(i int, errno syscall.Errno) {
	a.t.Helper()
	for range 100 {
		s, _ := a.search()
		at := s.Next(a.clock).Address.AddrPort.String() == a.endpoints[i].Address.Name
		if at {
			s.Failed(errno, a.clock)
		}
		s.Close()
		if at {
			return
		}
	}
	a.t.Fatal("no client comes to it")
}

// TestRefusedIsForgotten: when no process listens at an endpoint, its answers are forgotten.
func TestRefusedIsForgotten(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{syscall.ECONNREFUSED: false, syscall.ETIMEDOUT: true} {
		a := newAsker(t)
		a.rounds(10, a.none)
		a.fail(0, errno)
		a.rounds(1, a.none)
		if a.endpoints[0].Answers().Known() != want {
			t.Errorf("after %v it is known: %v", errno, !want)
		}
	}
}

// TestGivenUp: clients that leave without an answer get an endpoint ejected, if it closes
// sessions that their clients have closed.
func TestGivenUp(t *testing.T) {
	a := newAsker(t)
	a.rounds(10, a.none)
	for range 12 {
		a.round(a.first)
		for len(a.waiting) > 0 && a.clock-a.waiting[0].asked >= 2e9 {
			w := a.waiting[0]
			a.waiting = a.waiting[1:]
			w.limits.Of.(worker.Binding).Ended(0, relay.Result{
				Reason: relay.ReasonEOF, First: relay.SideA, Duration: 2 * time.Second,
				AToB: relay.Flow{Copied: 1, Reason: relay.ReasonEOF}, BToA: relay.Flow{Reason: relay.ReasonEOF},
			}, nil)
		}
	}
	if why, _ := a.watched[0].Judge.Why(); !strings.Contains(why, "gave up") {
		t.Errorf("%+v: %q", a.endpoints[0].State(), why)
	}
}

// comes has a client from an address served, with that result.
func (r *rig) comes(from string, result relay.Result) {
	r.t.Helper()
	c := worker.NewClient(source.TCP(netip.AddrPortFrom(netip.MustParseAddr(from), 1)), netip.MustParseAddrPort("192.0.2.2:2"))
	s := r.listener.NewSearch()
	s.Begin(c, r.clock)
	r.takes(s, worker.Connect)
	limits := r.reached(s)
	s.Close()
	if result.Reason == relay.ReasonNone { // it continues, and was answered
		if limits.Answered != nil {
			limits.Answered()
		}
		return
	}
	limits.Of.(worker.Binding).Ended(0, result, nil)
}

var (
	answered       = relay.Result{Reason: relay.ReasonEOF, AToB: relay.Flow{Copied: 1}, BToA: relay.Flow{Copied: 1}}
	ended          = relay.Result{Reason: relay.ReasonEOF, BToA: relay.Flow{Reason: relay.ReasonEOF}}
	silent         = relay.Result{Reason: relay.ReasonFirstByte}
	rejected       = relay.Result{Reason: relay.ReasonReset, Culprit: relay.SideB, AToB: relay.Flow{Spliced: 1}}
	left           = relay.Result{Reason: relay.ReasonReset, Culprit: relay.SideB, AToB: relay.Flow{Reason: relay.ReasonEOF}}
	reset          = relay.Result{Reason: relay.ReasonReset, Culprit: relay.SideB}
	timedOut       = relay.Result{Reason: relay.ReasonError, Culprit: relay.SideB, AToB: relay.Flow{Copied: 1}}
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
		"there are two":                         {answered, []string{other, near}, rejected, false, 0, 0},
		"there are two, and nobody is served":   {ended, []string{other, near}, rejected, true, 0, 0},
		"there are five":                        {answered, []string{other, near, "203.0.113.3", "203.0.113.4", "203.0.113.5"}, rejected, true, 0, 0},
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
			e := r.endpoint(0)
			r.outlier(5, 1)
			breaker := r.own(60, 10, time.Minute)
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
	breaker := r.own(60, 10, time.Minute)
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
	e := r.endpoint(0)
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
	r.outlier(5, 1)
	c := worker.NewClient(source.TCP(netip.MustParseAddrPort("192.0.2.1:1")), netip.MustParseAddrPort("192.0.2.2:2"))
	s, now := r.listener.NewSearch(), r.clock
	if n := testing.AllocsPerRun(1000, func() {
		now += 1e8 // all are of the sample
		s.Begin(c, now)
		s.Next(now)
		limits, _ := s.Reached(now)
		s.Close()
		limits.Of.(worker.Binding).Ended(0, answered, nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestChecksAreNoWitnessForHandshakes: an endpoint that is ejected because clients cannot connect to
// it returns with a check that does; one whose handshakes fail does not.
func TestChecksAreNoWitnessForHandshakes(t *testing.T) {
	for want, err := range map[bool]error{
		true:  &tlsterm.Error{Peer: "with 10.0.0.1:80", Err: errors.New("unknown authority")},
		false: syscall.ECONNREFUSED,
	} {
		r := newRig(t, 2, router.SnapshotConfig{Attempts: 1}, nil)
		r.outlier(5, 0.5)
		e := r.endpoint(0)
		for range 1000 {
			if e.State().Ejected {
				break
			}
			s, _ := r.search()
			if step := s.Next(r.clock); step.Action == worker.Connect && step.Address.AddrPort.String() == e.Address.Name {
				s.Failed(err, r.clock)
			}
			s.Close()
		}
		if !e.State().Ejected {
			t.Fatalf("%v: it is not ejected", err)
		}
		r.clock += int64(time.Second)
		if e.Passed(r.clock, new(health.CheckConfig)); e.State().Ejected != want {
			t.Errorf("%v: after a check that has connected it is ejected: %v", err, !want)
		}
	}
}

// TestOutcomes: which ends of a session are a failure of its endpoint, whose place is given back. An endpoint that ends a session before
// the client does, soon and without a byte, has failed, whatever happened to the client afterwards.
func TestOutcomes(t *testing.T) {
	failed := func(culprit relay.Side, answer int64) func(*relay.Result) {
		return func(r *relay.Result) {
			*r = relay.Result{Reason: relay.ReasonError, Culprit: culprit, AToB: relay.Flow{Copied: 9}, BToA: relay.Flow{Copied: answer}}
		}
	}
	hung := relay.Result{Reason: relay.ReasonEOF, First: relay.SideB, Duration: time.Second, AToB: relay.Flow{Reason: relay.ReasonEOF}, BToA: relay.Flow{Reason: relay.ReasonEOF}}
	for name, c := range map[string]struct {
		change   func(*relay.Result)
		failures int64
		err      error
	}{
		"answered":                   {func(r *relay.Result) { *r = answered }, 0, nil},
		"silent":                     {func(r *relay.Result) { *r = silent }, 1, nil},
		"canceled":                   {func(r *relay.Result) { *r = relay.Result{Reason: relay.ReasonCanceled} }, 0, nil},
		"hung up":                    {func(*relay.Result) {}, 1, nil},
		"after the client's request": {func(r *relay.Result) { r.AToB.Copied = 9 }, 1, nil},
		"the client stays":           {func(r *relay.Result) { r.Reason, r.AToB.Reason = relay.ReasonHalfClose, relay.ReasonHalfClose }, 1, nil},
		"the client resets":          {func(r *relay.Result) { r.Reason, r.Culprit = relay.ReasonReset, relay.SideA }, 1, nil},
		"the client has left first":  {func(r *relay.Result) { r.First = relay.SideA }, 0, nil},
		"after a byte":               {func(r *relay.Result) { r.BToA.Spliced = 1 }, 0, nil},
		"after a minute":             {func(r *relay.Result) { r.Duration = time.Minute }, 0, nil},
		"TCP time-out":               {failed(relay.SideB, 0), 1, os.NewSyscallError("read", syscall.ETIMEDOUT)},
		"no route":                   {failed(relay.SideB, 0), 1, os.NewSyscallError("read", syscall.EHOSTUNREACH)},
		"time-out after a byte":      {failed(relay.SideB, 1), 0, os.NewSyscallError("read", syscall.ETIMEDOUT)},
		"time-out of the client":     {failed(relay.SideA, 0), 0, os.NewSyscallError("read", syscall.ETIMEDOUT)},
		"ss -K":                      {failed(relay.SideB, 0), 0, os.NewSyscallError("read", syscall.ECONNABORTED)},
		"no memory":                  {failed(relay.SideB, 0), 0, os.NewSyscallError("read", syscall.ENOMEM)},
		"another error":              {failed(relay.SideB, 0), 0, errors.New("bad record")},
	} {
		r := newRig(t, 1, router.SnapshotConfig{}, nil)
		res := hung
		c.change(&res)
		b := r.serve()
		if up, endpoint := b.Names(); up != "u" || endpoint != "10.0.0.1:80" || r.active() != 1 {
			t.Error(up, endpoint, r.active())
		}
		b.Ended(0, res, c.err)
		if n := r.upstream.Counts().Failures; n != c.failures || r.active() != 0 {
			t.Errorf("%s: %d failures, %d active", name, n, r.active())
		}
	}
}
