package health_test

import (
	"context"
	"errors"
	"fmt"
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

// A proberFunc is a function that is a Prober.
type proberFunc func(context.Context) error

func (f proberFunc) Probe(ctx context.Context) error { return f(ctx) }

var errIll = errors.New("it is ill")

// A fleet is a set of endpoints that are probed on a test's clock.
type fleet struct {
	keeper  *health.Scheduler
	clock   *clock
	checker *health.Checker
	checks  []*health.Check

	mu     sync.Mutex
	probed [][]int64 // times, by endpoint
	ill    func(i int) bool
}

func newFleet(n int, cfg health.CheckConfig) *fleet {
	f := &fleet{probed: make([][]int64, n), ill: func(int) bool { return false }}
	f.keeper, f.clock = idle(0)
	f.checker = health.NewIdleChecker(f.keeper, &health.CheckerConfig{Concurrent: n, Seed: 7})
	for i := range n {
		f.checks = append(f.checks, f.checker.Watch(fmt.Sprintf("pg/10.0.%d.%d:5432", i/256, i%256), new(target), f.config(cfg, i)))
	}
	return f
}

func (f *fleet) config(cfg health.CheckConfig, i int) *health.CheckConfig {
	cfg.Probe = proberFunc(func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.probed[i] = append(f.probed[i], f.clock.Now())
		if f.ill(i) {
			return errIll
		}
		return nil
	})
	return &cfg
}

// run advances the time, from one probe to the next.
func (f *fleet) run(d time.Duration) {
	end := f.clock.Now() + int64(d)
	for next := f.checker.Step(); next <= end; next = f.checker.Step() {
		f.clock.now.Store(next)
	}
	f.clock.now.Store(end)
}

// busiest returns the largest number of probes begun within a time of that length.
func (f *fleet) busiest(within time.Duration, since int64) int {
	count, most := make(map[int64]int), 0
	for _, times := range f.probed {
		for _, at := range times {
			if at >= since {
				count[(at-since)/int64(within)]++
				most = max(most, count[(at-since)/int64(within)])
			}
		}
	}
	return most
}

var everyFive = health.CheckConfig{
	Interval: 5 * time.Second, FastInterval: time.Second, Timeout: time.Second, Jitter: 0.2, Rise: 2, Fall: 3,
}

// TestNoHerd begins with 10,000 endpoints at once, configures all of them again at once, and
// makes a third of them fail at once.
func TestNoHerd(t *testing.T) {
	const n = 10_000
	f := newFleet(n, everyFive)
	begun := f.clock.Now()
	f.run(6*time.Second + time.Millisecond)
	for i, times := range f.probed {
		if len(times) == 0 {
			t.Fatalf("endpoint %d was not probed within an interval and its jitter", i)
		}
	}
	f.run(1700 * time.Millisecond)
	for i, ch := range f.checks {
		ch.Configure(f.config(everyFive, i))
	}
	f.run(7 * time.Second)
	// In the mean 200 begin within a tenth of a second. Chance alone would have about
	// 250 in the busiest of some hundreds.
	if most := f.busiest(100*time.Millisecond, begun); most > 300 {
		t.Errorf("%d probes began within a tenth of a second, of 2000 for each second", most)
	}
	for i, times := range f.probed {
		for j := range times[1:] {
			least, most := 4*time.Second, 6*time.Second
			if j == 0 { // the first probe may have been before its phase
				least, most = everyFive.Interval/2, 5*everyFive.Interval/2
			}
			if gap := time.Duration(times[j+1] - times[j]); gap < least || gap > most {
				t.Fatalf("endpoint %d was probed after %v: configuring it again has cost its phase", i, gap)
			}
		}
	}
	failed := f.clock.Now()
	f.ill = func(i int) bool { return i%3 == 0 }
	f.run(10 * time.Second)
	// A third is probed five times as often for two more probes, and then less often again.
	if most := f.busiest(100*time.Millisecond, failed); most > 600 {
		t.Errorf("%d probes began within a tenth of a second when a third of the endpoints failed", most)
	}
	for i, ch := range f.checks {
		if ch.Healthy() != (i%3 != 0) {
			t.Fatalf("endpoint %d: %+v", i, ch.Status())
		}
	}
	known := f.clock.Now()
	f.run(10 * time.Second)
	if most := f.busiest(100*time.Millisecond, known); most > 300 {
		t.Errorf("%d probes began within a tenth of a second when a third of the endpoints was unhealthy", most)
	}
}

// TestFirstProbeIsSoon: nothing is known of an endpoint before its first probe, so that does not wait for its phase. Many
// endpoints are probed one after another, and one that comes later does not wait for those before it.
func TestFirstProbeIsSoon(t *testing.T) {
	t.Parallel()
	f := newFleet(100, everyFive)
	begun := f.clock.Now()
	f.run(500 * time.Millisecond)
	for i, times := range f.probed {
		if len(times) != 1 || times[0]-begun > int64(i)*int64(5*time.Millisecond) {
			t.Fatalf("endpoint %d was probed at %v", i, times)
		}
	}
	f.run(time.Minute)
	f.probed = append(f.probed, nil)
	now := f.clock.Now()
	f.checker.Watch("later", new(target), f.config(everyFive, 100))
	if f.checker.Step(); !slices.Equal(f.probed[100], []int64{now}) {
		t.Errorf("the later one was probed at %v, want %v", f.probed[100], now)
	}
}

// TestPhasesDiffer: two processes do not probe in step.
func TestPhasesDiffer(t *testing.T) {
	k, c := idle(0)
	cfg := everyFive
	cfg.Probe = proberFunc(func(context.Context) error { return nil })
	second := func(seed uint64) int64 {
		f := health.NewIdleChecker(k, &health.CheckerConfig{Seed: seed})
		f.Watch("a", new(target), &cfg)
		return f.Step() - c.Now()
	}
	if a, b := second(1), second(2); a == b || a != second(1) {
		t.Errorf("two seeds: %d and %d, the first again: %d", a, b, second(1))
	}
}

// TestCheckModel compares the verdict, and the time of the next probe, with the configuration.
func TestCheckModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := health.CheckConfig{
			Interval: 5 * time.Second, FastInterval: time.Second, Timeout: time.Second,
			Jitter: float64(rapid.IntRange(0, 10).Draw(t, "jitter")) / 10,
			Rise:   rapid.IntRange(0, 4).Draw(t, "rise"), Fall: rapid.IntRange(0, 4).Draw(t, "fall"),
		}
		k, c := idle(0)
		var answer error
		cfg.Probe = proberFunc(func(context.Context) error { return answer })
		checker, told := health.NewIdleChecker(k, new(health.CheckerConfig)), new(target)
		ch := checker.Watch("a", told, &cfg)
		dice := dice(t)
		healthy, streak, changes, since := true, 0, int64(0), int64(0)
		fast, last := true, int64(0) // the first probe is before its phase
		for i := range 60 {
			answer = nil
			if dice.IntN(2) == 0 {
				answer = errIll
			}
			now := c.Now()
			if gap := time.Duration(now - last); last != 0 {
				checkGap(t, gap, fast, &cfg)
			}
			last = now
			wasFast := fast
			next := checker.Step()
			streak++
			if (answer == nil) == healthy {
				streak = 0
			}
			if !healthy && streak >= max(cfg.Rise, 1) || healthy && streak >= max(cfg.Fall, 1) || i == 0 && streak > 0 {
				healthy, streak, since = !healthy, 0, now
				changes++
			}
			if fast = streak > 0 || !healthy; wasFast && !fast { // the way back into its phase
				if gap := time.Duration(next - last); gap < cfg.Interval/2 || gap > 5*cfg.Interval/2 {
					t.Fatalf("back in its phase after %v", gap)
				}
				last = 0
			}
			s := ch.Status()
			if s.Since != since {
				t.Fatalf("%+v, want it since %d", s, since)
			}
			if told.ill.Load() == healthy || s.Streak != streak || told.told.Load() != changes {
				t.Fatalf("%+v, notified %d times, want healthy %v, streak %d, %d changes", s, told.told.Load(), healthy, streak, changes)
			}
			c.now.Store(next)
		}
	})
}

func checkGap(t *rapid.T, gap time.Duration, fast bool, cfg *health.CheckConfig) {
	around := cfg.Interval
	if fast {
		around = cfg.FastInterval
	}
	off := time.Duration(cfg.Jitter*float64(around)) + time.Microsecond
	if gap < around-off || gap > around+off {
		t.Fatalf("the next probe is made after %v (fast: %v, jitter %v)", gap, fast, cfg.Jitter)
	}
}

// TestTransitionsAreTold checks the reports about an endpoint that fails, and about one that
// flaps.
func TestTransitionsAreTold(t *testing.T) {
	k, c := idle(time.Minute)
	ill := false
	checker := health.NewIdleChecker(k, new(health.CheckerConfig))
	checker.Watch("pg/a", new(target), &health.CheckConfig{
		Interval: time.Second, FastInterval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1,
		Probe: proberFunc(func(context.Context) error {
			if ill = !ill; ill {
				return errIll
			}
			return nil
		}),
	})
	end := c.advance(0) + int64(10*time.Minute)
	var told []health.Transition
	for c.Now() < end {
		c.now.Store(min(checker.Step(), k.Step()))
		told = append(told, k.Told()...)
	}
	if len(told) < 12 || len(told) > 13 { // three at once, and then one in a minute
		t.Fatalf("reported %d times in ten minutes", len(told))
	}
	if tr := told[0]; tr.Subject != "pg/a" || !tr.Bad || tr.Kind != health.Health || tr.State != "unhealthy" || tr.Suppressed != 0 ||
		!strings.Contains(tr.Cause, "its first check failed: it is ill") {
		t.Errorf("first: %+v", tr)
	}
	if tr := told[1]; tr.Bad || tr.State != "healthy" || tr.Suppressed != 0 {
		t.Errorf("second: %+v, want the recovery at once", tr)
	}
	if tr := told[3]; tr.Suppressed < 50 {
		t.Errorf("fourth: %+v, which hides about sixty", tr)
	}
	sum := int64(0)
	for _, tr := range told {
		sum += 1 + int64(tr.Suppressed)
	}
	if all := k.Transitions.Load(); all < sum || all-sum > 61 {
		t.Errorf("%d reported or counted of %d", sum, all)
	}
}

// TestOwnFaultSaysNothing: a probe fails for lack of descriptors.
func TestOwnFaultSaysNothing(t *testing.T) {
	k, c := idle(0)
	checker, told := health.NewIdleChecker(k, new(health.CheckerConfig)), new(target)
	cfg := everyFive
	cfg.Fall = 1
	cfg.Probe = proberFunc(func(context.Context) error { return fmt.Errorf("connect: %w", syscall.EMFILE) })
	ch := checker.Watch("a", told, &cfg)
	for range 5 {
		c.now.Store(checker.Step())
	}
	if s := ch.Status(); told.told.Load() != 0 || !errors.Is(s.Err, syscall.EMFILE) || s.Streak != 0 {
		t.Errorf("%+v", s)
	}
}

// TestConcurrentIsABound: more endpoints are due than may be probed at once. All are probed in
// turn, and one that is stopped is released at once.
func TestConcurrentIsABound(t *testing.T) {
	k := health.NewScheduler(&health.SchedulerConfig{})
	defer k.Close()
	const bound, n = 8, 100
	checker := health.NewChecker(k, &health.CheckerConfig{Concurrent: bound})
	var running, most atomic.Int64
	var probed sync.WaitGroup
	probed.Add(n)
	var checks []*health.Check
	for i := range n {
		var once sync.Once
		checks = append(checks, checker.Watch(fmt.Sprint(i), new(target), &health.CheckConfig{
			Interval: 20 * time.Millisecond, FastInterval: 20 * time.Millisecond, Timeout: 5 * time.Millisecond, Rise: 1, Fall: 1,
			Probe: proberFunc(func(ctx context.Context) error {
				now := running.Add(1)
				defer running.Add(-1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				once.Do(probed.Done)
				<-ctx.Done()
				return ctx.Err()
			}),
		}))
	}
	probed.Wait()
	if most.Load() != bound {
		t.Errorf("%d probes at once, want %d", most.Load(), bound)
	}
	for _, ch := range checks {
		ch.Stop()
		ch.Stop()
	}
	checker.Close()
	checker.Close()
	if queued, running := checker.Left(); queued+running != 0 {
		t.Errorf("%d checks are left, and %d probes run after Close", queued, running)
	}
}

// TestComingAndGoing: several goroutines watch, configure, query and stop endpoints while they
// are probed.
func TestComingAndGoing(t *testing.T) {
	k := health.NewScheduler(&health.SchedulerConfig{Report: func(health.Transition) {}, ReportEvery: time.Millisecond})
	defer k.Close()
	checker := health.NewChecker(k, &health.CheckerConfig{Concurrent: 16})
	defer checker.Close()
	var probes atomic.Int64
	cfg := func(every time.Duration) *health.CheckConfig {
		return &health.CheckConfig{
			Interval: every, FastInterval: every, Timeout: time.Second, Rise: 1, Fall: 1, Jitter: 1,
			Probe: proberFunc(func(context.Context) error {
				if probes.Add(1)%3 == 0 {
					return errIll
				}
				return nil
			}),
		}
	}
	var all sync.WaitGroup
	var stopped sync.Map // the state set when their checks were stopped
	for g := range 4 {
		all.Go(func() {
			for i := range 200 {
				told := new(target)
				ch := checker.Watch(fmt.Sprint(g, i), told, cfg(time.Millisecond))
				for range 5 {
					ch.Configure(cfg(time.Duration(1+i%3) * time.Millisecond))
					_ = ch.Status()
				}
				for probes.Load() < int64(g*200+i) {
					time.Sleep(time.Millisecond) // until some were made
				}
				ch.Stop()
				if told.ill.Load() {
					t.Error("unhealthy after its check was stopped")
				}
				stopped.Store(told, told.told.Load())
				ch.Configure(cfg(time.Millisecond))
			}
		})
	}
	all.Wait()
	checker.Close()
	stopped.Range(func(of, was any) bool {
		if now := of.(*target).told.Load(); now != was {
			t.Errorf("notified %d times, %d before it was stopped", now, was)
		}
		return true
	})
	if queued, _ := checker.Left(); queued != 0 {
		t.Errorf("%d checks are left", queued)
	}
}

// TestStopDuringAProbe stops a check with a probe in progress.
func TestStopDuringAProbe(t *testing.T) {
	k := health.NewScheduler(&health.SchedulerConfig{})
	defer k.Close()
	checker, told, begun := health.NewChecker(k, new(health.CheckerConfig)), new(target), make(chan struct{})
	ch := checker.Watch("a", told, &health.CheckConfig{
		Interval: time.Millisecond, FastInterval: time.Millisecond, Timeout: time.Hour, Rise: 1, Fall: 1,
		Probe: proberFunc(func(ctx context.Context) error {
			close(begun) // panics if it is probed again
			<-ctx.Done()
			return ctx.Err()
		}),
	})
	<-begun
	ch.Stop()
	eventually(t, func() bool { _, running := checker.Left(); return running == 0 })
	checker.Close()
	if told.told.Load() != 0 || ch.Status().Err != nil {
		t.Errorf("notified %d times, %+v", told.told.Load(), ch.Status())
	}
}

// TestConfigureWakes: a check that is due in an hour becomes due at once.
func TestConfigureWakes(t *testing.T) {
	k := health.NewScheduler(&health.SchedulerConfig{})
	defer k.Close()
	checker := health.NewChecker(k, new(health.CheckerConfig))
	defer checker.Close()
	probed := make(chan struct{}, 1)
	cfg := health.CheckConfig{
		Interval: 1000 * time.Hour, FastInterval: time.Hour, Timeout: time.Hour, Rise: 1, Fall: 1,
		Probe: proberFunc(func(context.Context) error {
			select {
			case probed <- struct{}{}:
			default:
			}
			return nil
		}),
	}
	ch := checker.Watch("a", new(target), &cfg)
	eventually(t, func() bool { return checker.Asleep() })
	often := cfg
	often.Interval = time.Millisecond
	ch.Configure(&often)
	<-probed
	ch.Configure(&cfg)
	eventually(t, func() bool { return checker.Asleep() })
	checker.Watch("b", new(target), &often)
	<-probed
}

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
		if ch.Healthy() {
			t.Fatal("it is not unhealthy yet")
		}
		probes = 0
		run(30 * time.Second)
		if want := int(30 * time.Second / c.every); probes < want-1 || probes > want+1 {
			t.Errorf("%d unhealthy, %d places: %d probes within 30s, want one every %v", c.ill, c.places, probes, c.every)
		}
	}
}

// TestUnhealthyIsAskedSoon: the next probe of an unhealthy endpoint is soon, also after a change of the interval, and
// after a probe that this machine could not make.
func TestUnhealthyIsAskedSoon(t *testing.T) {
	for name, change := range map[string]func(cfg *health.CheckConfig, result *error){
		"another interval": func(cfg *health.CheckConfig, _ *error) { cfg.Interval = 24 * time.Hour },
		"own fault":        func(_ *health.CheckConfig, result *error) { *result = syscall.EMFILE },
	} {
		k, clock := idle(0)
		checker := health.NewIdleChecker(k, new(health.CheckerConfig))
		cfg, result := everyFive, errIll
		cfg.Interval, cfg.Fall = time.Hour, 1
		cfg.Probe = proberFunc(func(context.Context) error { return result })
		ch := checker.Watch("a", new(target), &cfg)
		for ch.Healthy() {
			clock.now.Store(checker.Step())
		}
		next := cfg
		change(&next, &result)
		ch.Configure(&next)
		for range 3 {
			due := checker.Step()
			if wait := time.Duration(due - clock.Now()); wait > cfg.FastInterval {
				t.Errorf("%s: the next probe is after %v", name, wait)
			}
			clock.now.Store(due)
		}
	}
}

// TestHurry: after a failed connect an endpoint is probed at once, or a fast interval after
// its last probe, and not more often however many connects fail.
func TestHurry(t *testing.T) {
	k, c := idle(0)
	checker := health.NewIdleChecker(k, new(health.CheckerConfig))
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
		{[]error{no}, true, false, true},       // the first check decides alone
		{[]error{nil, no}, true, false, false}, // it is still healthy
		{[]error{nil, no, errIll}, true, false, true},
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
		checker := health.NewIdleChecker(k, new(health.CheckerConfig))
		var answer error
		cfg := everyFive
		cfg.Rise, cfg.Fall, cfg.Answered, cfg.Strict = 2, 2, c.answered, c.strict
		cfg.Probe = proberFunc(func(context.Context) error { return answer })
		w := new(witness)
		ch := checker.Watch("a", w, &cfg)
		for _, answer = range c.answers {
			clock.now.Store(checker.Step())
		}
		if w.barred.Load() != c.barred {
			t.Errorf("%v (answered %v, strict %v): barred is %v", c.answers, c.answered, c.strict, w.barred.Load())
		}
		if ch.Stop(); w.barred.Load() {
			t.Errorf("%v: barred after its check was stopped", c.answers)
		}
	}
}
