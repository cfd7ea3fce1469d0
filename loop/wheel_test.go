package loop_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/loop"
	"pgregory.net/rapid"
)

// modelTimer is a timer of TestWheel, and what it ought to do.
type modelTimer struct {
	loop.Timer
	name  int
	due   int64 // ns; what it was armed for
	tick  int64 // at which it fires
	fired func(*modelTimer)
}

func (m *modelTimer) Expired(t *loop.Timer) {
	if t != &m.Timer {
		panic("the owner was told of another timer")
	}
	m.fired(m)
}

// wheelModel is a wheel beside the sorted list that it stands for.
type wheelModel struct {
	*loop.Wheel
	t      *rapid.T
	base   int64
	now    int64
	timers []*modelTimer
	armed  map[*modelTimer]bool
	fired  []*modelTimer
	then   map[*modelTimer]func() // what a timer does to others when it fires
}

func newWheelModel(t *rapid.T) *wheelModel {
	base := rapid.Int64Range(1, 1<<50).Draw(t, "base")
	m := &wheelModel{
		Wheel: loop.NewWheel(base), t: t, base: base, now: base,
		armed: map[*modelTimer]bool{}, then: map[*modelTimer]func(){},
	}
	for i := range 8 {
		m.timers = append(m.timers, &modelTimer{name: i, fired: m.onFired})
	}
	return m
}

func (m *wheelModel) onFired(timer *modelTimer) {
	if !m.armed[timer] {
		m.t.Fatalf("timer %d fired, which is not armed", timer.name)
	}
	if timer.Armed() {
		m.t.Fatalf("timer %d is armed while it fires", timer.name)
	}
	if timer.due > m.now {
		m.t.Fatalf("timer %d fired %v early", timer.name, time.Duration(timer.due-m.now))
	}
	delete(m.armed, timer)
	m.fired = append(m.fired, timer)
	if f := m.then[timer]; f != nil {
		delete(m.then, timer)
		f()
	}
}

func (m *wheelModel) arm(timer *modelTimer, d time.Duration) {
	timer.due = m.now + int64(d)
	// What is due by now fires with what is due at the next tick.
	timer.tick = max((timer.due-m.base+loop.WheelTick-1)/loop.WheelTick, (m.now-m.base)/loop.WheelTick+1)
	m.Arm(&timer.Timer, timer, timer.due)
	m.armed[timer] = true
}

func (m *wheelModel) disarm(timer *modelTimer) {
	m.Disarm(&timer.Timer)
	delete(m.armed, timer)
	if timer.Armed() {
		m.t.Fatalf("timer %d is armed still", timer.name)
	}
}

// check: what is armed is what ought to be; nothing that has been due for a tick is
// left; and the time until the next one is no longer than it may be.
func (m *wheelModel) check() {
	first := int64(-1)
	for _, timer := range m.timers {
		if timer.Armed() != m.armed[timer] {
			m.t.Fatalf("timer %d: armed is %v, want %v", timer.name, timer.Armed(), m.armed[timer])
		}
		if m.armed[timer] && (first < 0 || timer.due < first) {
			first = timer.due
		}
	}
	next := m.UntilNext(m.now)
	switch {
	case first < 0 && next >= 0:
		m.t.Fatalf("the next one is in %v, but there is none", time.Duration(next))
	case first >= 0 && (next < 0 || next > max(first-m.now, 0)+loop.WheelTick):
		m.t.Fatalf("the next one is in %v, want at most %v and a tick", time.Duration(next), time.Duration(first-m.now))
	}
}

// advance moves the clock, and checks what fired against the list.
func (m *wheelModel) advance(d time.Duration) {
	m.now += int64(d)
	must := []*modelTimer{}
	for timer := range m.armed {
		if m.base+timer.tick*loop.WheelTick <= m.now {
			must = append(must, timer)
		}
	}
	scripted := len(m.then) > 0
	m.fired = nil
	m.Advance(m.now)
	if scripted {
		return // others may have been disarmed meanwhile; check looks at the rest
	}
	for _, timer := range must {
		if !slices.Contains(m.fired, timer) {
			m.t.Fatalf("timer %d has not fired, and was due %v ago", timer.name, time.Duration(m.now-timer.due))
		}
	}
	if !slices.IsSortedFunc(m.fired, func(a, b *modelTimer) int { return cmp.Compare(a.tick, b.tick) }) {
		m.t.Fatalf("fired out of order: %v", m.fired)
	}
}

// durations are as likely to be near the edges of the wheel's levels as anywhere.
func durations(t *rapid.T) time.Duration {
	tick := rapid.OneOf(
		rapid.Int64Range(0, 70),
		rapid.Int64Range(4000, 4200),
		rapid.Int64Range(262_000, 262_300),
		rapid.Int64Range(1<<30-100, 1<<30+100), // what the wheel holds
		rapid.Int64Range(0, 1<<34),
	).Draw(t, "ticks")
	return time.Duration(tick*loop.WheelTick + rapid.Int64Range(-1, 1).Draw(t, "off"))
}

func TestWheel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newWheelModel(t)
		timers := rapid.SampledFrom(m.timers)
		t.Repeat(map[string]func(*rapid.T){
			"":       func(*rapid.T) { m.check() },
			"arm":    func(t *rapid.T) { m.arm(timers.Draw(t, "timer"), durations(t)) },
			"disarm": func(t *rapid.T) { m.disarm(timers.Draw(t, "timer")) },
			"when fired, arm": func(t *rapid.T) {
				timer, other, d := timers.Draw(t, "timer"), timers.Draw(t, "other"), durations(t)
				m.then[timer] = func() { m.arm(other, d) }
			},
			"when fired, disarm": func(t *rapid.T) {
				timer, other := timers.Draw(t, "timer"), timers.Draw(t, "other")
				m.then[timer] = func() { m.disarm(other) }
			},
			"advance": func(t *rapid.T) { m.advance(max(durations(t), 0)) },
		})
		clear(m.then)
		m.advance(time.Duration(1<<35) * time.Millisecond)
		if len(m.armed) > 0 {
			t.Fatalf("%d have never fired", len(m.armed))
		}
	})
}

// TestWheelIsPrecise: a timer fires at the first tick at or after its time.
func TestWheelIsPrecise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newWheelModel(t)
		timer := m.timers[0]
		m.advance(max(durations(t), 0))
		m.arm(timer, max(durations(t), 1))
		for m.armed[timer] {
			d := m.UntilNext(m.now)
			if d < 0 {
				t.Fatal("it waits for nothing, with a timer armed")
			}
			m.advance(time.Duration(max(d, 1)))
		}
		if late := m.now - timer.due; late >= loop.WheelTick {
			t.Fatalf("it fired %v late", time.Duration(late))
		}
	})
}
