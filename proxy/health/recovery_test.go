package health_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/health"
)

func opening(open time.Duration) (*health.Breaker, *health.Keeper, *clock) {
	k, c := idle(0)
	b := health.NewBreaker(k, "pg", nil, &health.BreakerConfig{
		FailurePercentage: 1, Window: time.Second, MinVolume: 1, Open: open, TrialConnections: 1,
	})
	return b, k, c
}

// TestChecksOpenHalf: a check that succeeds has an open breaker tried before its time, but not
// one that began before it had opened; and a check that succeeds again and again while the
// trials fail, less and less often.
func TestChecksOpenHalf(t *testing.T) {
	b, _, c := opening(16 * time.Second)
	b.Passed(c.Now())
	if b.State() != health.Closed {
		t.Fatalf("a closed one is %v", b.State())
	}
	b.Report(0, health.Reset, c.advance(time.Second))
	b.Passed(c.Now() - 1)
	if b.State() != health.Open {
		t.Fatalf("after a check that began before: %v", b.State())
	}
	var waited []time.Duration
	for range 5 {
		opened := c.Now()
		for b.Passed(c.Now()); b.State() == health.Open; b.Passed(c.Now()) {
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
	b.Well()
	if b.State() != health.HalfOpen {
		t.Errorf("after a check has found the endpoint healthy that was not: %v", b.State())
	}
	p, _ := b.Begin()
	b.Report(p, health.OK, c.Now())
	b.Report(0, health.Reset, c.Now())
	if b.Better("it is back"); b.State() != health.HalfOpen {
		t.Errorf("what has closed it does not make good what was in vain before: %v", b.State())
	}
}

// TestPassIsBounded: whoever passes an open breaker is under its bounds, and neither closes
// nor opens it.
func TestPassIsBounded(t *testing.T) {
	k, c := idle(0)
	b := health.NewBreaker(k, "pg", nil, &health.BreakerConfig{
		FailurePercentage: 1, Window: time.Second, MinVolume: 1, Open: time.Minute, TrialConnections: 1, Connections: 2,
	})
	b.Report(0, health.Reset, c.Now())
	var permits []health.Permit
	for range 2 {
		p, r := b.Pass()
		if r != health.Granted || p.Trial() {
			t.Fatalf("%v, trial %v", r, p.Trial())
		}
		permits = append(permits, p)
	}
	if _, r := b.Pass(); r != health.RefusedConnections || b.Refused(health.RefusedConnections) != 1 {
		t.Errorf("a third of two: %v", r)
	}
	for _, p := range permits {
		b.Reached()
		b.Report(p, health.OK, c.Now())
		b.End(true)
	}
	if b.State() != health.Open || b.Refused(health.RefusedOpen) != 0 {
		t.Fatalf("%v, %d refused", b.State(), b.Refused(health.RefusedOpen))
	}
	b.Better("a client was served")
	trial, r := b.Pass()
	if r != health.Granted || !trial.Trial() {
		t.Errorf("half-open: %v, trial %v", r, trial.Trial())
	}
	p, r := b.Pass()
	if r != health.Granted || p.Trial() {
		t.Errorf("without trials left: %v, trial %v", r, p.Trial())
	}
	b.Report(p, health.Reset, c.Now())
	if b.State() != health.HalfOpen {
		t.Errorf("what is no trial makes it %v", b.State())
	}
	b.Report(trial, health.OK, c.Now())
	b.Report(permits[0], health.Reset, c.Now())
	if b.State() != health.Closed {
		t.Errorf("who has passed it counts when it is closed: %v", b.State())
	}
}

// A witness notes the checks that succeed.
type witness struct {
	target
	began []int64
}

func (w *witness) Passed(began int64) { w.began = append(w.began, began) }

// TestWitness: each check that succeeds is told of, with when it began, and none that fails.
func TestWitness(t *testing.T) {
	k, c := idle(0)
	ch := health.NewIdleChecker(k, nil)
	w, ill := new(witness), false
	var want []int64
	probe := proberFunc(func(context.Context) error {
		began := c.Now()
		c.advance(time.Millisecond)
		if ill {
			return errIll
		}
		want = append(want, began)
		return nil
	})
	ch.Watch("a", w, &health.CheckConfig{Probe: probe, Interval: time.Second, FastInterval: time.Second, Timeout: time.Second})
	for i := range 9 {
		ill = i%3 == 1
		c.advance(2 * time.Second)
		ch.Step()
	}
	if len(want) != 6 || !slices.Equal(w.began, want) {
		t.Errorf("told of %v, want %v", w.began, want)
	}
}
