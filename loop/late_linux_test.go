package loop_test

import (
	"math/bits"
	"testing"
	"time"

	"github.com/penstock/penstock/loop"
)

// TestTimerLate: how late timers fire is counted from the tick that they had to wait for
// to the beginning of the turn, once for all of a tick.
func TestTimerLate(t *testing.T) {
	t.Parallel()

	c := clock{now: 1}
	l := newLoop(t, &loop.Config{Now: func() int64 { return c.now }})
	base := c.now
	var timers [4]loop.Timer
	var fired int
	expired := expirer(func() { fired++; c.now += 3e6 }) // which is the turn's time, and not theirs
	tick := time.Duration(loop.WheelTick)
	l.Arm(&timers[0], expired, 10*tick-1)
	l.Arm(&timers[1], expired, 10*tick)
	l.Arm(&timers[2], expired, 10*tick+1)
	l.Arm(&timers[3], expired, time.Hour)
	counted := func(on, n int64, late, most time.Duration) {
		t.Helper()
		s, sum := l.Stats(), int64(0)
		for _, k := range s.TimerLate {
			sum += k
		}
		if sum != n || s.TimerLate[bits.Len64(uint64(late/time.Microsecond))] != on || s.MaxTimerLate != most {
			t.Fatalf("%v, the longest %v; want %d of %d of %v, the longest %v", s.TimerLate, s.MaxTimerLate, on, n, late, most)
		}
	}
	for _, step := range []struct {
		at         time.Duration
		fired      int
		n          int64
		late, most time.Duration
	}{
		{10 * tick, 2, 1, 0, 0}, // in time, the one that was rounded up too
		{11*tick + 5*time.Millisecond, 3, 2, 5 * time.Millisecond, 5 * time.Millisecond},
		{time.Hour - tick, 3, 2, 5 * time.Millisecond, 5 * time.Millisecond}, // only longer lists' times
		{time.Hour + time.Millisecond, 4, 3, time.Millisecond, 5 * time.Millisecond},
	} {
		c.now = base + int64(step.at)
		_ = l.Post(func() {})
		turn(t, l)
		if fired != step.fired {
			t.Fatalf("%d timers have fired at %v, want %d", fired, step.at, step.fired)
		}
		counted(1, step.n, step.late, step.most)
	}
}
