package loop_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
)

// again is a timer that is armed again when it is due.
type again struct {
	l     *loop.Loop
	timer loop.Timer
	fired int
}

func (a *again) arm() { a.l.Arm(&a.timer, a, time.Millisecond) }

func (a *again) Expired(*loop.Timer) {
	a.fired++
	a.arm()
}

// TestDirect: a loop that has looked for events in vain blocks without looking, which is one call for an event
// and not two. It looks again once events come without a sleep, and events come between timers all the same.
func TestDirect(t *testing.T) {
	t.Parallel()

	now, step := int64(1), int64(0)
	l := newLoop(t, &loop.Config{Now: func() int64 { now += step; return now }})
	a, b := pair(t)
	defer sys.Close(a)
	h := &scripted{then: func(uint8, loop.Events) { _, _ = sys.Recv(a, make([]byte, 8), sys.MSG_DONTWAIT) }}
	add(t, l, a, 0, h)
	timers := &again{l: l}
	timers.arm() // so that a turn without events ends
	expect := func(when string, event, direct bool) {
		t.Helper()
		if event {
			write(t, b, "x")
		}
		told := len(h.told)
		if err := l.Turn(); err != nil {
			t.Fatal(err)
		}
		if got := len(h.told) > told; got != event || l.Direct() != direct {
			t.Fatalf("%s: an event came %v, want %v; it blocked at once %v, want %v", when, got, event, l.Direct(), direct)
		}
	}
	turn(t, l) // it is writable
	for range 3 {
		expect("busy", true, false)
	}
	for range loop.Futile {
		expect("in vain", false, false)
	}
	step = 3000 // ns of the clock, so that it has slept
	for range 2 * loop.Prompt {
		expect("after a sleep", true, true)
	}
	step = 0
	for range loop.Prompt {
		expect("at once", true, true)
	}
	expect("it looks again", true, false)

	for range loop.Futile {
		expect("in vain once more", false, false)
	}
	step = int64(time.Second) // timers are always due
	fired := timers.fired
	for range 3 {
		expect("beside timers", true, true)
		step = 0
		for range loop.Futile {
			expect("in vain", false, false)
		}
		step = int64(time.Second)
	}
	if timers.fired == fired {
		t.Error("no timer was due")
	}
}
