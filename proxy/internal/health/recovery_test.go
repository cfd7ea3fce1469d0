package health_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
)

func opening(open time.Duration) (*health.Breaker, *health.Scheduler, *clock) {
	k, c := idle(0)
	b := health.NewBreaker(k, "pg", nil, &health.BreakerConfig{
		FailurePercentage: 1, Window: time.Second, MinVolume: 1, Open: open, TrialConnections: 1,
	})
	return b, k, c
}

// TestChecksOpenHalf: a check that succeeds opens a breaker half before its time, if it began
// after the breaker had opened. If the trials fail again and again, checks that succeed do so
// less and less often.
func TestChecksOpenHalf(t *testing.T) {
	b, _, c := opening(16 * time.Second)
	b.ProbeSucceeded(c.Now())
	if b.State() != health.Closed {
		t.Fatalf("a closed one is %v", b.State())
	}
	b.Report(0, health.Reset, c.advance(time.Second))
	b.ProbeSucceeded(c.Now() - 1)
	if b.State() != health.Open {
		t.Fatalf("after a check that began before: %v", b.State())
	}
	var waited []time.Duration
	for range 5 {
		opened := c.Now()
		for b.ProbeSucceeded(c.Now()); b.State() == health.Open; b.ProbeSucceeded(c.Now()) {
			c.advance(time.Second)
		}
		waited = append(waited, time.Duration(c.Now()-opened))
		p, _ := b.Begin()
		b.Report(p, health.Silent, c.Now())
	}
	seconds := []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}
	if !slices.Equal(waited, seconds) {
		t.Errorf("it was open for %v, want %v", waited, seconds)
	}
	b.Recovered()
	if b.State() != health.HalfOpen {
		t.Errorf("after a check has found the endpoint healthy that was not: %v", b.State())
	}
	p, _ := b.Begin()
	b.Report(p, health.OK, c.Now())
	b.Report(0, health.Reset, c.Now())
	if b.Improved("it is back"); b.State() != health.HalfOpen {
		t.Errorf("the success that closed it does not undo earlier unsuccessful trials: %v", b.State())
	}
}

// A witness records the checks that succeed, and counts those that cannot connect.
type witness struct {
	target
	began     []int64
	unreached int
	barred    atomic.Bool
}

func (w *witness) Passed(began int64, _ *health.CheckConfig) { w.began = append(w.began, began) }
func (w *witness) SetBarred(barred bool)                     { w.barred.Store(barred) }
func (w *witness) Unreached(*health.CheckConfig)             { w.unreached++ }

// TestWitness: each check that succeeds is reported, with the time at which it began, and each
// that cannot connect. One that fails otherwise is neither.
func TestWitness(t *testing.T) {
	k, c := idle(0)
	ch := health.NewIdleChecker(k, new(health.CheckerConfig))
	w, ill := new(witness), error(nil)
	var want []int64
	probe := proberFunc(func(context.Context) error {
		began := c.Now()
		c.advance(time.Millisecond)
		if ill != nil {
			return ill
		}
		want = append(want, began)
		return nil
	})
	ch.Watch("a", w, &health.CheckConfig{Probe: probe, Interval: time.Second, FastInterval: time.Second, Timeout: time.Second})
	for i := range 9 {
		ill = []error{nil, errIll, fmt.Errorf("probe: %w", health.ErrConnect)}[i%3]
		c.advance(2 * time.Second)
		ch.Step()
	}
	if len(want) != 3 || !slices.Equal(w.began, want) || w.unreached != 3 {
		t.Errorf("those that succeeded began at %v, want %v; %d could not connect, want 3", w.began, want, w.unreached)
	}
}

// TestConnectsEndEjections: an ejection by failed connects ends after a connect that began
// later; other ejections do not. If it fails again and again, the ejection ends less and less
// soon.
func TestConnectsEndEjections(t *testing.T) {
	k, c := idle(0)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{
		ConsecutiveFailures: 2, BaseEjectionTime: 16 * time.Second, MaxEjectionTime: time.Hour, MaxEjected: 1,
	})
	m := o.Add("pg/a", new(target))
	eject := func(last health.Outcome) {
		m.Report(health.Rejected, c.Now()) // of a session that ended with the process
		m.Report(last, c.Now())
		if _, out := m.Ejected(); !out {
			t.Fatal("it is not ejected")
		}
	}
	connected := func(began int64) bool {
		m.Connected(began)
		_, out := m.Ejected()
		return !out
	}
	eject(health.ConnectFailed)
	if connected(c.Now() - 1) {
		t.Error("it returned by a connect that began before it was ejected")
	}
	if !connected(c.Now()) {
		t.Error("it has not returned")
	}
	var waited []time.Duration
	for range 5 { // no client can connect to it
		eject(health.ConnectFailed)
		since := c.Now()
		for !connected(c.Now()) {
			c.advance(time.Second)
		}
		waited = append(waited, time.Duration(c.Now()-since))
	}
	if want := []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9}; !slices.Equal(waited, want) {
		t.Errorf("it was ejected for %v, want %v", waited, want)
	}
	m.Reached(c.Now())
	if eject(health.ConnectFailed); !connected(c.Now()) {
		t.Error("that clients have connected to it since makes no difference")
	}
	for _, o := range []health.Outcome{health.Silent, health.Reset, health.HungUp, health.Rejected, health.Lost} {
		eject(o)
		if connected(c.advance(time.Second)) {
			t.Errorf("ejected because it was %v, it returned when something had connected", o)
		}
		m.Recovered()
	}
}

// TestUnreachedByChecks: an ejection by sessions that were cut ends with a check that connects if
// one could not connect before: since the endpoint was ejected, or while its sessions failed.
func TestUnreachedByChecks(t *testing.T) {
	for name, c := range map[string]struct {
		before, amid, after int // checks that cannot connect: before the failures, amid them, once it is ejected
		stay, ends          bool
	}{
		"none":               {},
		"long before":        {before: 1},
		"amid the failures":  {amid: 1, ends: true},
		"when it is ejected": {after: 1, ends: true},
		"ejected until it answers, and then not reached": {after: 1, stay: true},
	} {
		t.Run(name, func(t *testing.T) {
			k, clock := idle(0)
			o := health.NewOutlierDetector(k, &health.OutlierConfig{
				ConsecutiveFailures: 2, BaseEjectionTime: time.Hour, MaxEjectionTime: time.Hour, MaxEjected: 1,
			})
			m := o.Add("pg/a", new(target))
			unreached := func(n int) {
				for range n {
					m.Unreached()
				}
			}
			unreached(c.before)
			m.Report(health.Reset, clock.Now())
			unreached(c.amid)
			if c.stay {
				m.Eject(clock.Now(), "it answers no client", true)
			} else {
				m.Report(health.Reset, clock.Now())
			}
			unreached(c.after)
			if _, out := m.Ejected(); !out {
				t.Fatal("it is not ejected")
			}
			m.Connected(clock.advance(time.Second))
			if _, out := m.Ejected(); out == c.ends {
				t.Errorf("ejected after a check has connected: %v", out)
			}
		})
	}
}

// TestRecoveredGivesItsPlace: if no more may be ejected, one that has answered checks since
// its ejection returns in favor of one that fails; one that is only connected to does not.
func TestRecoveredGivesItsPlace(t *testing.T) {
	k, c := idle(0)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{
		ConsecutiveFailures: 1, BaseEjectionTime: 16 * time.Second, MaxEjectionTime: time.Hour, MaxEjected: 0.5,
	})
	var members []*health.OutlierMonitor
	for i := range 4 {
		members = append(members, o.Add(fmt.Sprint(i), new(target)))
	}
	ejected := func() (list []int) {
		for i, m := range members {
			if _, out := m.Ejected(); out {
				list = append(list, i)
			}
		}
		return list
	}
	members[0].Report(health.Silent, c.Now())
	members[1].Report(health.Silent, c.advance(time.Second))
	members[0].Connected(c.advance(time.Second))
	members[1].Answered(c.Now() - int64(time.Second) - 1) // began before it was ejected
	members[2].Report(health.ConnectFailed, c.Now())
	if got := ejected(); !slices.Equal(got, []int{0, 1}) || o.Withheld.Load() != 1 {
		t.Fatalf("%v are ejected, %d were held back", got, o.Withheld.Load())
	}
	members[1].Answered(c.Now())
	if got := ejected(); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("%v are ejected: a check that is answered ends no ejection", got)
	}
	members[2].Report(health.ConnectFailed, c.Now())
	if got := ejected(); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("%v are ejected, want the one that fails in place of the one that has recovered", got)
	}
	members[3].Report(health.ConnectFailed, c.Now())
	if got := ejected(); !slices.Equal(got, []int{0, 2}) || o.Withheld.Load() != 2 {
		t.Errorf("%v are ejected, %d were held back", got, o.Withheld.Load())
	}
}

// TestAwayHoldsNoPlace: an ejected endpoint that gets no clients anyway leaves its place under max_ejected to another
// endpoint that fails, whose failures are not held back meanwhile, and which may also be silent. When it gets clients
// again, the ejection that ends first ends.
func TestAwayHoldsNoPlace(t *testing.T) {
	t.Parallel()

	for name, fail := range map[string]func(m *health.OutlierMonitor, now int64){
		"resets":  func(m *health.OutlierMonitor, now int64) { m.Report(health.Reset, now) },
		"silence": func(m *health.OutlierMonitor, now int64) { m.Eject(now, "it stands still", true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			k, c := idle(0)
			o := health.NewOutlierDetector(k, &health.OutlierConfig{ConsecutiveFailures: 1, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: time.Hour, MaxEjected: 0.5})
			var targets [3]target
			var members [3]*health.OutlierMonitor
			for i := range targets {
				members[i] = o.Add(fmt.Sprint(i), &targets[i])
			}
			expect := func(when string, withheld int64, want ...bool) {
				t.Helper()
				for i := range targets {
					if targets[i].ejected.Load() != want[i] {
						t.Errorf("%s endpoint %d is ejected: %v", when, i, !want[i])
					}
				}
				if n := o.Withheld.Load(); n != withheld {
					t.Errorf("%s %d ejections were held back, want %d", when, n, withheld)
				}
			}
			members[0].Report(health.ConnectFailed, c.Now())
			fail(members[1], c.advance(time.Second))
			expect("beside an endpoint that could serve,", 1, true, false, false)
			targets[0].away.Store(true)
			fail(members[1], c.advance(time.Second))
			expect("beside an endpoint that is down,", 1, true, true, false)
			fail(members[2], c.advance(time.Second))
			expect("when the place is taken again,", 2, true, true, false)
			targets[2].away.Store(true)
			fail(members[2], c.advance(time.Second))
			expect("of an endpoint that is down itself,", 2, true, true, true)
			targets[0].away.Store(false)
			targets[2].away.Store(false)
			o.Settle()
			if n, _ := o.Ejected(); n != 1 || targets[0].ejected.Load() {
				t.Errorf("%d are ejected when all could serve; the first: %v", n, targets[0].ejected.Load())
			}
		})
	}
}

// ejectable returns an endpoint that five failures in a row eject for 32 s, and reports whether it
// is ejected.
func ejectable() (m *health.OutlierMonitor, c *clock, ejected func() bool) {
	k, c := idle(0)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{
		ConsecutiveFailures: 5, BaseEjectionTime: 32 * time.Second, MaxEjectionTime: time.Hour, MaxEjected: 1,
	})
	m = o.Add("a", new(target))
	return m, c, func() bool {
		_, is := m.Ejected()
		return is
	}
}

// TestServedClientsEndEjection: an ejected endpoint that serves as many clients in a row as the failures
// that eject returns; not if one fails in between, or sessions count that began before it was ejected.
func TestServedClientsEndEjection(t *testing.T) {
	m, c, ejected := ejectable()
	for range 5 {
		m.Report(health.Reset, c.advance(time.Second))
	}
	serve := func(times int, began int64) {
		for range times {
			m.Served(began)
		}
	}
	serve(9, c.Now()-1)
	serve(4, c.advance(time.Second))
	m.Report(health.Reset, c.Now())
	serve(4, c.Now())
	if !ejected() {
		t.Fatal("it has returned")
	}
	if serve(1, c.Now()); ejected() {
		t.Fatal("it is ejected still")
	}
	for range 5 {
		m.Report(health.Reset, c.advance(time.Second))
	}
	if serve(5, c.advance(time.Second)); !ejected() {
		t.Error("it has returned again at once, though it failed when it had returned so")
	}
	if serve(1, c.advance(2*time.Second)); ejected() {
		t.Error("it is ejected still after a sixteenth of its time")
	}
}

// TestRefusedBesideResets: a process that ends cuts sessions and refuses connections, in any
// order, also when it is already ejected. It returns when it can be connected to. If it continues
// to reset clients, it does not return at once the next time.
func TestRefusedBesideResets(t *testing.T) {
	const cut, refused = health.Reset, health.ConnectFailed
	for name, outcomes := range map[string][]health.Outcome{
		"refused first": {refused, cut, cut, cut, cut}, "refused between": {cut, cut, refused, cut, cut},
		"refused last": {cut, cut, cut, cut, refused}, "refused when it is ejected": {cut, cut, cut, cut, cut, refused},
	} {
		m, c, ejected := ejectable()
		report := func() {
			for _, o := range outcomes {
				m.Report(o, c.advance(time.Millisecond))
			}
			if !ejected() {
				t.Fatalf("%s: it is not ejected", name)
			}
		}
		report()
		if m.Connected(c.advance(time.Second)); ejected() {
			t.Errorf("%s: it can be connected to, and is ejected still", name)
		}
		m.Reached(c.Now())
		for range 5 {
			m.Report(cut, c.advance(time.Millisecond))
		}
		m.Report(refused, c.advance(time.Millisecond))
		if m.Connected(c.advance(time.Second)); !ejected() {
			t.Errorf("%s: it has failed after it had returned, and returns at once", name)
		}
		if m.Connected(c.advance(2 * time.Second)); ejected() {
			t.Errorf("%s: it is ejected still after a sixteenth of its time", name)
		}
	}
}

// TestHeldBack: withheld ejections are counted, of each endpoint and in all, with their
// causes. Those of a single endpoint are not.
func TestHeldBack(t *testing.T) {
	k, c := idle(0)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{ConsecutiveFailures: 2, BaseEjectionTime: time.Second, MaxEjectionTime: time.Minute, MaxEjected: 0.5})
	m := o.Add("a", new(target))
	fail := func(m *health.OutlierMonitor, cause string, times int) {
		for range times {
			m.SetCause(cause)
			m.Report(health.ConnectFailed, c.Now())
		}
	}
	held := func(m *health.OutlierMonitor, all, times int64, why string) {
		t.Helper()
		if n, text := m.Withholdings(); n != times || o.Withheld.Load() != all || n > 0 && text != why {
			t.Errorf("%d times, %q; %d of all; want %d, %q, %d", n, text, o.Withheld.Load(), times, why, all)
		}
	}
	if fail(m, "alone", 5); m.Eject(c.Now(), "it stands still", true) {
		t.Fatal("the only endpoint is ejected")
	}
	held(m, 0, 0, "")
	other := o.Add("b", new(target))
	fail(other, "connection refused", 2)
	held(other, 0, 0, "")
	fail(m, "no route to host", 2)
	held(m, 2, 2, "connect failed: no route to host")
	if m.Eject(c.Now(), "it stands still", true) {
		t.Fatal("both are ejected")
	}
	held(m, 3, 3, "it stands still")
	fail(m, "timed out", 1)
	held(m, 4, 4, "connect failed: timed out")
	other.Remove()
	fail(m, "alone", 5)
	held(m, 4, 4, "connect failed: alone")
}

// TestStaysEjected: an endpoint that was ejected to stay does, whatever its checks and the
// time, until Return; and it may be ejected again.
func TestStaysEjected(t *testing.T) {
	k, c := idle(0)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{ConsecutiveFailures: 2, BaseEjectionTime: time.Second, MaxEjectionTime: time.Minute, MaxEjected: 0.5})
	m, other := o.Add("a", new(target)), o.Add("b", new(target))
	m.Report(health.ConnectFailed, c.Now()) // not the cause of its ejection
	if !m.Eject(c.Now(), "it stands still", true) || m.Eject(c.Now(), "again", true) {
		t.Fatal("it is ejected never, or twice")
	}
	began := c.Now()
	if other.Eject(c.Now(), "too many", true) || o.Withheld.Load() != 1 {
		t.Error("more are ejected than may be")
	}
	for range 10 {
		c.advance(time.Minute)
		k.Step()
		m.Connected(c.Now())
	}
	why, since := m.Why()
	if until, out := m.Ejected(); !out || until != math.MaxInt64 || why != "it stands still" || since != began {
		t.Errorf("ejected: %v, since %d, until %d: %q", out, since, until, why)
	}
	m.Return(c.Now(), "it answers")
	if _, out := m.Ejected(); out {
		t.Error("it does not return")
	}
	m.Return(c.Now(), "it answers")
	if !m.Eject(c.Now(), "for a time", false) {
		t.Fatal("it is not ejected again")
	}
	c.advance(time.Minute)
	k.Step()
	if _, out := m.Ejected(); out {
		t.Error("its time is over, and it is ejected")
	}
}

// TestSuccessOpensNoBreaker: neither does a connection that is made, however many failed before, nor one
// that fails after a check has found the endpoint healthy again.
func TestSuccessOpensNoBreaker(t *testing.T) {
	for _, well := range []bool{false, true} {
		k, c := idle(0)
		b := health.NewBreaker(k, "a", nil, &health.BreakerConfig{
			FailurePercentage: 60, Window: 30 * time.Second, MinVolume: 20, Open: time.Minute, TrialConnections: 1,
		})
		for range 18 {
			b.Report(0, health.ConnectFailed, c.Now())
		}
		if well {
			b.Forget()
		}
		for range 5 {
			b.Reached()
		}
		if b.State() != health.Closed {
			t.Errorf("well %v: %v after connections that were made", well, b.State())
		}
		b.Report(0, health.ConnectFailed, c.Now())
		if open := b.State() == health.Open; open == well {
			t.Errorf("well %v: after the next that failed: %v", well, b.State())
		}
	}
}
