package health_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
)

// TestKeeperKeepsTime: ejections end and breakers change by themselves, while the Report function
// is blocked.
func TestKeeperKeepsTime(t *testing.T) {
	start := time.Now()
	now := func() int64 { return int64(time.Since(start)) }
	told, goOn := make(chan health.Transition), make(chan struct{})
	k := health.NewScheduler(&health.SchedulerConfig{Now: now, Report: func(tr health.Transition) {
		told <- tr
		<-goOn
	}})
	o := health.NewOutlierDetector(k, &health.OutlierConfig{
		ConsecutiveFailures: 1, BaseEjectionTime: 2 * time.Millisecond, MaxEjectionTime: time.Second, MaxEjected: 1,
	})
	long, short := new(target), new(target)
	b := health.NewBreaker(k, "pg", long, &health.BreakerConfig{
		FailurePercentage: 1, Window: time.Second, MinVolume: 1, Open: 20 * time.Millisecond, TrialConnections: 1,
	})
	b.Report(0, health.Silent, now())
	o.Add("a", short).Report(health.Silent, now())
	first := <-told
	eventually(t, func() bool { return !short.ejected.Load() && short.told.Load() == 2 })
	eventually(t, func() bool { return b.State() == health.HalfOpen })
	if first.Subject != "pg" || first.State != "open" || first.Cause != "1 of 1 connections failed, the last: silent after the connect" {
		t.Errorf("reported %+v", first)
	}
	close(goOn)
	var states []string
	for range 3 {
		states = append(states, (<-told).State)
	}
	if want := "[ejected returned half-open]"; fmt.Sprint(states) != want {
		t.Errorf("then reported %v, want %v", states, want)
	}
	k.Close()
	o.Add("b", short).Report(health.Silent, now()) // is not reported any more
}

// TestNothingAllocates: reports of connections allocate nothing.
func TestNothingAllocates(t *testing.T) {
	k, c := idle(0)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{
		ConsecutiveFailures: 5, FailurePercentage: 90, Window: time.Second, MinVolume: 1 << 20, BaseEjectionTime: time.Second, MaxEjectionTime: time.Minute, MaxEjected: 1,
	})
	on := new(target)
	m := o.Add("a", on)
	full := health.NewOutlierDetector(k, &health.OutlierConfig{ConsecutiveFailures: 1}).Add("a", new(target))
	b := health.NewBreaker(k, "pg", nil, &health.BreakerConfig{
		FailurePercentage: 60, Window: time.Second, MinVolume: 1 << 20, Open: time.Second, TrialConnections: 1, Connections: 100, Pending: 10,
	})
	budget := health.NewRetryBudget(&health.RetryBudgetConfig{Ratio: 0.5, Floor: 1, Window: time.Second})
	outcomes := []health.Outcome{health.OK, health.Silent, health.OK, health.ConnectFailed, health.Reset}
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		now, out := c.advance(time.Millisecond), outcomes[i%len(outcomes)]
		i++
		budget.Began(now)
		p, _ := b.Begin()
		b.Reached()
		m.Reached(now)
		m.Report(out, now)
		full.Report(out, now)
		b.Report(p, out, now)
		b.End(true)
		budget.Retry(now)
	}); n != 0 {
		t.Errorf("%v allocations for a connection", n)
	}
	if on.told.Load() != 0 || b.State() != health.Closed || budget.Denied() == 0 {
		t.Error("the connections had other results than expected")
	}
}

// TestKeeperWakes: the Scheduler sleeps for an hour, and a timer is due before that.
func TestKeeperWakes(t *testing.T) {
	k := health.NewScheduler(&health.SchedulerConfig{})
	defer k.Close()
	open := func(d time.Duration) *health.Breaker {
		b := health.NewBreaker(k, "pg", nil, &health.BreakerConfig{
			FailurePercentage: 1, Window: time.Second, MinVolume: 1, Open: d, TrialConnections: 1,
		})
		b.Report(0, health.Silent, 0)
		return b
	}
	open(time.Hour)
	eventually(t, k.Asleep)
	b := open(time.Millisecond)
	eventually(t, func() bool { return b.State() == health.HalfOpen })
}

// TestPanicIsToldOnce: of several goroutines that notice it at once only one reports it, by
// the present state and not by an earlier one.
func TestPanicIsToldOnce(t *testing.T) {
	k, _ := idle(0)
	p := health.NewPanic(k, "upstream u")
	var usable atomic.Int64
	see := func() (bool, int, int) { n := int(usable.Load()); return n < 2, n, 3 }
	look := func() {
		panicking, _, _ := see()
		p.Look(panicking, see)
	}
	for round := range 100 {
		usable.Store(1)
		together(4, func(int) { look() })
		p.Look(false, see) // by a goroutine that had looked before
		usable.Store(3)
		together(4, func(int) { look() })
		told := k.Told()
		if len(told) != 2 || p.Begun.Load() != int64(round+1) {
			t.Fatalf("round %d: reported %+v, begun %d times", round, told, p.Begun.Load())
		}
		for i, want := range []health.Transition{
			{State: "panic", Bad: true, Cause: "1 of 3 endpoints are usable"}, {State: "calm", Cause: "3 of 3 endpoints are usable"},
		} {
			want.Subject, want.Kind, want.Time = "upstream u", health.Panicking, told[i].Time
			if told[i] != want {
				t.Errorf("reported %+v, want %+v", told[i], want)
			}
		}
	}
}
