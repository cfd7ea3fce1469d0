package health_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/health"
)

// modelMember is a simple model of an endpoint's state.
type modelMember struct {
	*health.OutlierMonitor
	target          *target
	streak, count   int
	ejected         bool
	unreached       bool
	until, returned int64
	events          []modelEvent
}

type modelEvent struct {
	epoch  int64
	failed bool
}

// outlierModel is a simple model of an OutlierDetector.
type outlierModel struct {
	cfg     health.OutlierConfig
	members []*modelMember
}

func (o *outlierModel) ejected() (list []*modelMember) {
	for _, m := range o.members {
		if m.ejected {
			list = append(list, m)
		}
	}
	return list
}

func (o *outlierModel) allowed(percent int) int { return len(o.members) * percent / 100 }

func (o *outlierModel) back(m *modelMember, now int64) {
	m.ejected, m.returned, m.streak, m.events = false, now, 0, nil
}

// report records an outcome, or that the endpoint was reached if there is none.
func (o *outlierModel) report(m *modelMember, out health.Outcome, reached bool, now int64, percent int) {
	if m.ejected || out == health.Unknown && !reached {
		return
	}
	width := int64(o.cfg.Window) / health.Slots
	switch {
	case reached:
		m.events = append(m.events, modelEvent{now / width, false})
		if m.unreached {
			m.streak, m.unreached = 0, false
		}
	case out == health.OK:
		m.streak = 0
		return // it is judged when it is reached
	default:
		m.streak++
		m.events = failedEvent(m.events, out, now/width)
		m.unreached = out == health.ConnectFailed
	}
	ok, failed := uint64(0), uint64(0)
	for _, e := range m.events {
		switch {
		case e.epoch <= now/width-health.Slots:
		case e.failed:
			failed++
		default:
			ok++
		}
	}
	if (o.cfg.ConsecutiveFailures == 0 || reached || m.streak < o.cfg.ConsecutiveFailures) &&
		!health.TooMany(ok, failed, o.cfg.FailurePercentage, o.cfg.MinVolume) ||
		len(o.ejected()) >= o.allowed(percent) {
		return
	}
	base, most := int64(o.cfg.BaseEjectionTime), int64(o.cfg.MaxEjectionTime)
	m.count = max(min(m.count, int(most/base))-int((now-m.returned)/base), 0) + 1
	m.ejected, m.until = true, now+min(base*int64(m.count), most)
}

// failedEvent adds a failure, or turns the latest success into a failure after it was reached.
func failedEvent(events []modelEvent, out health.Outcome, epoch int64) []modelEvent {
	if out != health.ConnectFailed {
		for i, e := range slices.Backward(events) {
			if !e.failed && e.epoch > epoch-health.Slots {
				events[i].failed = true
				return events
			}
		}
	}
	return append(events, modelEvent{epoch, true})
}

func TestOutlierModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, c := idle(0)
		percent := rapid.IntRange(0, 100).Draw(t, "max ejected")
		o := &outlierModel{cfg: health.OutlierConfig{
			ConsecutiveFailures: rapid.IntRange(0, 4).Draw(t, "consecutive"),
			FailurePercentage:   float64(rapid.SampledFrom([]int{0, 30, 50, 100}).Draw(t, "percent")),
			Window:              time.Second, MinVolume: rapid.IntRange(1, 8).Draw(t, "volume"),
			BaseEjectionTime: time.Second, MaxEjectionTime: 4500 * time.Millisecond,
			MaxEjected: float64(percent) / 100,
		}}
		real := health.NewOutlierDetector(k, &o.cfg)
		add := func() {
			target := new(target)
			o.members = append(o.members, &modelMember{OutlierMonitor: real.Add(fmt.Sprint(len(o.members)), target), target: target})
		}
		for range rapid.IntRange(1, 6).Draw(t, "endpoints") {
			add()
		}
		dice := dice(t)
		pick := func() *modelMember { return o.members[dice.IntN(len(o.members))] }
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch op := dice.IntN(40); {
			case op == 0:
				add()
			case op == 1 && len(o.members) > 1:
				m := pick()
				m.Remove()
				m.Remove()
				o.members = slices.DeleteFunc(o.members, func(e *modelMember) bool { return e == m })
				if m.target.ejected.Load() {
					t.Fatal("a member that is removed stays ejected")
				}
				for len(o.ejected()) > o.allowed(percent) {
					o.back(firstOver(o.ejected()), c.Now())
				}
			case op < 5:
				now := c.advance(time.Duration(dice.Int64N(int64(1500 * time.Millisecond))))
				k.Step()
				for _, m := range o.ejected() {
					if now >= m.until {
						o.back(m, now)
					}
				}
			default:
				m, out, reached := pick(), health.Outcome(dice.IntN(5)), dice.IntN(3) == 0
				if reached {
					m.Reached(c.Now())
				} else {
					m.Report(out, c.Now())
				}
				o.report(m, out, reached, c.Now(), percent)
			}
			o.compare(t, real, percent)
		}
	})
}

// firstOver returns the endpoint that the OutlierDetector has reinstated, of those with the
// earliest end: any of them may be.
func firstOver(ejected []*modelMember) *modelMember {
	least := slices.MinFunc(ejected, func(a, b *modelMember) int { return int(min(max(a.until-b.until, -1), 1)) })
	for _, m := range ejected {
		if m.until == least.until && !m.target.ejected.Load() {
			return m
		}
	}
	return least
}

func (o *outlierModel) compare(t *rapid.T, real *health.OutlierDetector, percent int) {
	for i, m := range o.members {
		until, ejected := m.Ejected()
		if ejected != m.ejected || m.target.ejected.Load() != ejected || ejected && until != m.until {
			t.Fatalf("endpoint %d: ejected %v (notified %v) until %d, want %v until %d", i, ejected, m.target.ejected.Load(), until, m.ejected, m.until)
		}
	}
	if n, of := real.Ejected(); n != len(o.ejected()) || of != len(o.members) || n > o.allowed(percent) {
		t.Fatalf("%d of %d are ejected, want %d of %d", n, of, len(o.ejected()), len(o.members))
	}
}

// TestMaxEjectedIsNeverPassed: all endpoints fail on several goroutines while others are added
// and removed. At no moment are more ejected than allowed.
func TestMaxEjectedIsNeverPassed(t *testing.T) {
	k := health.NewScheduler(&health.SchedulerConfig{})
	defer k.Close()
	start := time.Now()
	now := func() int64 { return int64(time.Since(start)) }
	const fixed = 40
	o := health.NewOutlierDetector(k, &health.OutlierConfig{
		ConsecutiveFailures: 2, BaseEjectionTime: time.Millisecond, MaxEjectionTime: time.Millisecond, MaxEjected: 0.3,
	})
	var out, most atomic.Int64
	told := func(on bool) {
		if !on {
			out.Add(-1)
			return
		}
		n := out.Add(1)
		runtime.Gosched() // so that others wait for the lock
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
	}
	var members []*health.OutlierMonitor
	for i := range fixed {
		members = append(members, o.Add(fmt.Sprint(i), &target{onEject: told}))
	}
	var reporters, changer sync.WaitGroup
	for range 3 {
		reporters.Go(func() {
			for range 30_000 {
				members[rand.IntN(fixed)].Report(health.Reset, now())
			}
		})
	}
	stop := make(chan struct{})
	changer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				m := o.Add("guest", &target{onEject: told})
				m.Report(health.Reset, now())
				m.Report(health.Reset, now())
				m.Remove()
			}
		}
	})
	reporters.Wait()
	close(stop)
	changer.Wait()
	if most.Load() > (fixed+1)*3/10 || most.Load() == 0 {
		t.Errorf("%d were ejected at once, want 1 to %d", most.Load(), (fixed+1)*3/10)
	}
	if o.Withheld.Load() == 0 {
		t.Error("none was held back: the test tries nothing")
	}
	for _, m := range members {
		m.Remove()
	}
	if out.Load() != 0 {
		t.Errorf("%d stay ejected after all were removed", out.Load())
	}
}

// TestEjectionEndsWithTheIllness: an endpoint returns before its ejection time is over, and fails
// again.
func TestEjectionEndsWithTheIllness(t *testing.T) {
	k, c := idle(0)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{
		ConsecutiveFailures: 2, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: time.Hour, MaxEjected: 0.5,
	})
	back := new(target)
	m, other := o.Add("pg/a", back), o.Add("pg/b", new(target))
	fail := func(m *health.OutlierMonitor) (out bool) {
		m.Report(health.ConnectFailed, c.Now())
		m.Report(health.ConnectFailed, c.Now())
		_, out = m.Ejected()
		return out
	}
	if !fail(m) || fail(other) {
		t.Fatal("one of the two is to be ejected, the first")
	}
	c.advance(time.Second)
	m.Recovered()
	if _, out := m.Ejected(); out || back.ejected.Load() {
		t.Error("an endpoint that is healthy again stays ejected")
	}
	if m.Report(health.ConnectFailed, c.Now()); back.ejected.Load() {
		t.Error("ejected by earlier failures")
	}
	if !fail(other) {
		t.Error("there is no room for the other one")
	}
	c.advance(29 * time.Second) // the end of the ejection that was cut short
	if k.Step(); back.told.Load() != 2 {
		t.Errorf("the endpoint was notified %d times, want twice", back.told.Load())
	}
	other.Recovered()
	if !fail(m) {
		t.Error("never ejected again")
	}
}

// TestOutlierConfigure reduces the limit, and changes the rule.
func TestOutlierConfigure(t *testing.T) {
	k, c := idle(0)
	cfg := health.OutlierConfig{ConsecutiveFailures: 1, Window: time.Second, MinVolume: 2, BaseEjectionTime: time.Second, MaxEjectionTime: time.Minute, MaxEjected: 1}
	o := health.NewOutlierDetector(k, &cfg)
	var members []*health.OutlierMonitor
	for i := range 4 {
		members = append(members, o.Add(fmt.Sprint(i), new(target)))
		members[i].Report(health.Reset, c.advance(time.Millisecond))
	}
	smaller := cfg
	smaller.MaxEjected, smaller.ConsecutiveFailures, smaller.FailurePercentage = 0.5, 0, 100
	o.Configure(&smaller)
	for i, m := range members {
		if _, ejected := m.Ejected(); ejected != (i >= 2) {
			t.Errorf("endpoint %d: ejected %v: those whose time is over first return first", i, ejected)
		}
	}
	larger := smaller
	larger.MaxEjected = 1
	o.Configure(&larger)
	members[0].Configure()
	members[0].Report(health.Reset, c.Now())
	if _, ejected := members[0].Ejected(); ejected {
		t.Error("ejected by one failure in a row, which does not count any more")
	}
	members[0].Report(health.Reset, c.Now())
	if _, ejected := members[0].Ejected(); !ejected {
		t.Error("not ejected though all its connections fail")
	}
}

// TestMaxEjectedIsADecimalFraction: all of 100 endpoints fail.
func TestMaxEjectedIsADecimalFraction(t *testing.T) {
	for percent := range 101 {
		k, c := idle(0)
		o := health.NewOutlierDetector(k, &health.OutlierConfig{
			ConsecutiveFailures: 1, BaseEjectionTime: time.Second, MaxEjectionTime: time.Second, MaxEjected: float64(percent) / 100,
		})
		var members []*health.OutlierMonitor
		for range 100 {
			members = append(members, o.Add("", new(target)))
		}
		for _, m := range members {
			m.Report(health.Reset, c.Now())
		}
		if n, _ := o.Ejected(); n != percent {
			t.Errorf("%d of 100 are ejected, %d may be", n, percent)
		}
	}
}

// TestEjectionsOfWhoIsDownAreNoNews: while checks find an endpoint down, its ejections end and
// begin again, and its breaker is tried, without a line. When it is up again, only the changes
// since the last line are reported.
func TestEjectionsOfWhoIsDownAreNoNews(t *testing.T) {
	k, c := idle(time.Nanosecond)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{ConsecutiveFailures: 1, BaseEjectionTime: time.Second, MaxEjectionTime: time.Second, MaxEjected: 1})
	on := new(target)
	m := o.Add("a", on)
	b := health.NewBreaker(k, "b", nil, &health.BreakerConfig{
		FailurePercentage: 1, Window: time.Second, MinVolume: 1, Open: time.Second, TrialConnections: 1,
	})
	told := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, tr := range k.Told() {
			got = append(got, tr.Subject+" "+tr.State)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: reported %v, want %v", when, got, want)
		}
	}
	fail := func() {
		c.advance(2 * time.Second)
		k.Step()
		m.Report(health.ConnectFailed, c.Now())
		p, _ := b.Begin()
		b.Report(p, health.ConnectFailed, c.Now())
		why, _ := m.Why()
		if _, out := m.Ejected(); !out || b.State() != health.Open || why == "" {
			t.Fatalf("ejected %v (%q), the breaker %v", out, why, b.State())
		}
	}
	down := func(on bool) { m.SetDown(on); b.SetDown(on) }
	well := func() { m.Recovered(); b.Recovered(); down(false) }
	fail()
	told("the first failure", "a ejected", "b open")
	down(true)
	for range 5 {
		fail()
	}
	told("while it is down")
	c.advance(2 * time.Second)
	if k.Step(); on.told.Load() != 12 {
		t.Errorf("%d ejections and returns", on.told.Load())
	}
	well()
	told("when it is back, not ejected by now", "a returned", "b half-open")
	c.advance(time.Second)
	down(true)
	p, _ := b.Begin()
	b.Report(p, health.OK, c.Now())
	fail()
	well()
	told("when it was ejected after it was down, and is back")
	down(true)
	c.advance(time.Second)
	down(false)
	told("when nothing has happened")
	fail()
	told("the next failure", "a ejected", "b open")
}

// TestRecoveryIsToldAtOnce: a failure, a recovery and another failure are reported. Later
// transitions are held, and reported in the end with their own time.
func TestRecoveryIsToldAtOnce(t *testing.T) {
	var told []health.Transition
	c := new(clock)
	c.advance(time.Hour)
	k := health.NewScheduler(&health.SchedulerConfig{Now: c.Now, ReportEvery: time.Minute, Report: func(tr health.Transition) { told = append(told, tr) }})
	o := health.NewOutlierDetector(k, &health.OutlierConfig{ConsecutiveFailures: 1, BaseEjectionTime: time.Hour, MaxEjectionTime: time.Hour, MaxEjected: 1})
	m := o.Add("u/a", new(target))
	for range 4 {
		m.Report(health.Silent, c.advance(time.Second))
		c.advance(time.Second)
		m.Recovered()
	}
	last := c.Now()
	c.advance(time.Second)
	k.Close()
	var got []string
	for _, tr := range told {
		got = append(got, fmt.Sprintf("%s %d", tr.State, tr.Suppressed))
	}
	if want := "ejected 0, returned 0, ejected 0, returned 4"; strings.Join(got, ", ") != want {
		t.Fatalf("reported %v, want %s", got, want)
	}
	if at := told[3].Time; at != last {
		t.Errorf("the last one was at %d, and is reported at %d", last, at)
	}
}

// TestWhy checks the cause and the end of ejections and open breakers.
func TestWhy(t *testing.T) {
	k, c := idle(time.Minute)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{ConsecutiveFailures: 1, BaseEjectionTime: time.Second, MaxEjectionTime: time.Second, MaxEjected: 1})
	m := o.Add("u/a", new(target))
	b := health.NewBreaker(k, "u", nil, &health.BreakerConfig{
		FailurePercentage: 1, Window: time.Second, MinVolume: 1, Open: time.Minute, TrialConnections: 1,
	})
	says := func(when, ejected, open string, end int64) {
		t.Helper()
		cause, until := b.Why()
		why, _ := m.Why()
		if why != ejected || cause != open || until != end {
			t.Errorf("%s: %q, and %q until %d", when, why, cause, until)
		}
	}
	says("at first", "", "", 0)
	for range 5 { // more often than is reported at once
		m.SetCause(syscall.ECONNREFUSED.Error())
		b.SetCause(syscall.ECONNREFUSED.Error())
		m.Report(health.ConnectFailed, c.Now())
		b.Report(0, health.ConnectFailed, c.Now())
		says("after a failure", "1 failure, the last: connect failed: connection refused",
			"1 of 1 connections failed, the last: connect failed: connection refused", c.Now()+int64(time.Minute))
		m.Recovered()
		b.Recovered()
		says("after a check", "", "an endpoint is healthy again", 0)
		p, _ := b.Begin()
		b.Reached()
		b.Report(p, health.OK, c.Now())
		b.End(true)
		says("after a trial", "", "", 0)
	}
}
