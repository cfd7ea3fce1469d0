package health_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
)

// TestUnhealthyAreAskedOften: an unhealthy endpoint is probed at the fast interval, unless
// many are unhealthy and would delay the probes of others.
func TestUnhealthyAreAskedOften(t *testing.T) {
	for _, c := range []struct {
		ill, places int
		every       time.Duration
	}{{1, 4096, time.Second}, {400, 4096, time.Second}, {1500, 4096, 3 * time.Second}, {20, 20, 2 * time.Second}, {50, 20, 5 * time.Second}} {
		k, clock := idle(0)
		checker := health.NewIdleChecker(k, &health.CheckerConfig{Concurrent: c.places})
		probes := 0
		cfg := everyFive
		cfg.Jitter = 0
		cfg.Probe = proberFunc(func(context.Context) error { return errIll })
		others := cfg
		for range c.ill - 1 {
			checker.Watch("another", new(target), &others)
		}
		cfg.Probe = proberFunc(func(context.Context) error { probes++; return errIll })
		ch := checker.Watch("a", new(target), &cfg)
		run := func(d time.Duration) {
			end := clock.Now() + int64(d)
			for next := checker.Step(); next <= end; next = checker.Step() {
				clock.now.Store(next)
			}
			clock.now.Store(end)
		}
		run(15 * time.Second)
		if ch.Status().Healthy {
			t.Fatal("it is not unhealthy yet")
		}
		probes = 0
		run(30 * time.Second)
		if want := int(30 * time.Second / c.every); probes < want-1 || probes > want+1 {
			t.Errorf("%d unhealthy, %d places: %d probes within 30s, want one every %v", c.ill, c.places, probes, c.every)
		}
	}
}

// TestHurry: after a failed connect an endpoint is probed at once, or a fast interval after
// its last probe, and not more often however many connects fail.
func TestHurry(t *testing.T) {
	k, c := idle(0)
	checker := health.NewIdleChecker(k, nil)
	var probed []int64
	cfg := everyFive
	cfg.Jitter = 0
	var ch *health.Check
	during := func() {}
	cfg.Probe = proberFunc(func(context.Context) error {
		probed = append(probed, c.Now())
		during()
		return nil
	})
	ch = checker.Watch("a", new(target), &cfg)
	c.now.Store(checker.Step())
	checker.Step()
	first := c.Now()
	for range 20 {
		c.advance(100 * time.Millisecond)
		ch.Hurry(c.Now())
		checker.Step()
	}
	if want := []int64{first, first + 1e9, first + 2e9}; !slices.Equal(probed, want) {
		t.Errorf("probed at %v, want %v", probed, want)
	}
	during = func() { ch.Hurry(c.Now() + 1) } // while a probe that began before is in progress
	c.now.Store(checker.Step())
	probed = nil
	next := checker.Step()
	during = func() {}
	if len(probed) != 1 || next != probed[0]+int64(cfg.FastInterval) {
		t.Errorf("after one that was under way it is due after %v, want %v", time.Duration(next-probed[0]), cfg.FastInterval)
	}
	c.now.Store(next)
	if next = checker.Step(); next-c.Now() < int64(cfg.Interval)/2 {
		t.Errorf("then, after %v", time.Duration(next-c.Now()))
	}
	ch.Stop()
	ch.Hurry(c.Now() + 1)
	c.advance(time.Minute)
	if checker.Step(); len(probed) != 2 {
		t.Errorf("%d probes, the last after it was stopped", len(probed))
	}
}

// TestBarred: an unhealthy endpoint is barred if the last answer of its checks was that it
// must not serve. A missing answer is no answer, unless it is configured to count as that.
func TestBarred(t *testing.T) {
	no := fmt.Errorf("status 503: %w", health.ErrAnswer)
	for _, c := range []struct {
		answers        []error // with rise and fall 2
		answered       bool
		strict, barred bool
	}{
		{[]error{no, no}, true, false, true},
		{[]error{no}, true, false, false}, // it is still healthy
		{[]error{no, errIll}, true, false, true},
		{[]error{errIll, errIll}, true, false, false},
		{[]error{errIll, errIll}, true, true, true},
		{[]error{errIll, errIll}, false, true, false},
		{[]error{no, no}, false, false, false},
		{[]error{errIll, errIll, no}, true, false, true},
		{[]error{no, no, errIll, errIll}, true, false, true},
		{[]error{no, no, nil}, true, false, false}, // it is unhealthy still
		{[]error{no, no, nil, errIll}, true, false, false},
		{[]error{no, no, nil, nil}, true, false, false},
	} {
		k, clock := idle(0)
		checker := health.NewIdleChecker(k, nil)
		var answer error
		cfg := everyFive
		cfg.Rise, cfg.Fall, cfg.Answered, cfg.Strict = 2, 2, c.answered, c.strict
		cfg.Probe = proberFunc(func(context.Context) error { return answer })
		w := new(witness)
		ch := checker.Watch("a", w, &cfg)
		next := checker.Step()
		for _, answer = range c.answers {
			clock.now.Store(next)
			next = checker.Step()
		}
		if w.barred.Load() != c.barred {
			t.Errorf("%v (answered %v, strict %v): barred is %v", c.answers, c.answered, c.strict, w.barred.Load())
		}
		if ch.Stop(); w.barred.Load() {
			t.Errorf("%v: barred after its check was stopped", c.answers)
		}
	}
}
