package translate_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/lane/internal/translate"
)

// A course is a session with pauses between its packets.
type course struct {
	flow  [2]translate.Flow
	clock translate.Clock
}

const mss = 1000

func newCourse() *course {
	c := new(course)
	for i := range c.flow {
		c.flow[i] = translate.Flow{Edge: 1 << 16, Window: 1 << 16, Widest: 1 << 16, Takes: mss}
	}
	return c
}

// packet sends bytes of a side from a position on, after some ticks, and acknowledges the other side up to ack.
// window is in bytes.
func (c *course) packet(ticks uint32, side int, at, length, ack int64, window uint32) {
	f, o := &c.flow[side], &c.flow[1-side]
	open := translate.OpenWait(&c.flow, side)
	fate := f.Note(o, translate.Segment{Sequence: uint32(at), Ack: uint32(ack), Length: uint32(length), Window: window, Flags: translate.ACK})
	c.clock.Pass(open, fate, length > 0, side, ticks, 13*time.Millisecond) // 99 ticks
}

const open = 1 << 16

// TestClock: each wait counts once, for the side that was waited for, and with its kind.
func TestClock(t *testing.T) {
	type counts map[translate.Wait]uint32
	for name, k := range map[string]struct {
		course func(c *course)
		want   [2]counts
	}{
		"questions and answers": {func(c *course) {
			c.packet(50, 0, 0, 100, 0, open)
			c.packet(40, 1, 0, 0, 100, open) // an acknowledgement does not end it
			c.packet(60, 1, 0, 500, 100, open)
			c.packet(30, 0, 100, 100, 500, open)
		}, [2]counts{{translate.WaitMore: 50, translate.WaitAnswer: 30}, {translate.WaitAnswer: 100}}},
		"a long answer": {func(c *course) {
			c.packet(0, 0, 0, 100, 0, open)
			c.packet(20000, 1, 0, 500, 100, open)
		}, [2]counts{{}, {translate.WaitAnswer: 20000}}},
		"a quiet time": {func(c *course) {
			c.packet(0, 1, 0, 500, 0, open)
			c.packet(1, 0, 0, 0, 500, open)
			c.packet(20000, 0, 0, 100, 500, open)
		}, [2]counts{}},
		"a slow sender": {func(c *course) {
			c.packet(0, 1, 0, 500, 0, open)
			c.packet(300, 0, 0, 0, 500, open) // a delayed acknowledgement
			c.packet(400, 1, 500, 500, 0, open)
			c.packet(200, 1, 1000, 400, 0, open)
		}, [2]counts{{}, {translate.WaitMore: 900}}},
		"an acknowledgement is waited for": {func(c *course) {
			c.packet(0, 1, 0, 500, 0, open)
			c.packet(300, 0, 0, 0, 500, open)
			c.packet(100, 1, 500, 500, 0, open) // as long as the round trip takes
		}, [2]counts{{translate.WaitAck: 300}, {translate.WaitMore: 100}}},
		"packets on the way": {func(c *course) {
			c.packet(0, 1, 0, 1000, 0, open)
			c.packet(0, 1, 1000, 1000, 0, open)
			c.packet(200, 1, 2000, 1000, 0, open)
		}, [2]counts{{translate.WaitFlight: 200}, {}}},
		"a window": {func(c *course) {
			c.packet(0, 1, 0, 1000, 0, open)
			c.packet(7, 0, 0, 0, 1000, 0)
			c.packet(800, 0, 0, 0, 1000, 5000)
			c.packet(3, 1, 1000, 1000, 0, open)
		}, [2]counts{{translate.WaitWindow: 800, translate.WaitAck: 7}, {translate.WaitMore: 3}}},
		"a loss before the lane": {func(c *course) {
			c.packet(0, 1, 0, 1000, 0, open)
			c.packet(5, 1, 2000, 1000, 0, open)
			c.packet(1600, 1, 1000, 1000, 0, open)
			c.packet(4, 0, 0, 0, 3000, open)
			c.packet(6, 1, 3000, 1000, 0, open)
		}, [2]counts{{}, {translate.WaitMore: 11, translate.WaitGap: 1604}}},
		"a loss behind it": {func(c *course) {
			c.packet(0, 1, 0, 1000, 0, open)
			c.packet(1600, 1, 0, 1000, 0, open)
		}, [2]counts{{translate.WaitAgain: 1600}, {}}},
		"an endpoint that takes nothing for a while": {func(c *course) {
			c.packet(0, 0, 0, 100, 0, open)
			c.packet(50, 0, 0, 100, 0, open)
			c.packet(30, 0, 100, 100, 0, open) // new bytes do not end a wait for the round trip
			c.packet(20, 1, 0, 0, 200, open)
			c.packet(200, 0, 200, 100, 0, open)
		}, [2]counts{{translate.WaitMore: 220}, {translate.WaitAgain: 80}}},
		"an endpoint that gets nothing, and repeats its last answer": {func(c *course) {
			c.packet(0, 1, 0, 500, 0, open)
			c.packet(0, 0, 0, 100, 500, open)
			c.packet(60, 1, 0, 500, 0, open)
			c.packet(40, 0, 0, 100, 500, open)
			c.packet(30, 1, 0, 500, 0, open)
			c.packet(10, 0, 100, 100, 500, open)
		}, [2]counts{{}, {translate.WaitAgain: 140}}},
		"strays": {func(c *course) {
			c.packet(0, 0, 0, 100, 0, open)
			c.packet(60, 1, 1<<30, 500, 100, open)
			c.packet(40, 1, 0, 500, 100, open)
		}, [2]counts{{}, {translate.WaitAnswer: 100}}},
	} {
		c := newCourse()
		k.course(c)
		for side, want := range k.want {
			for w := range translate.Waits {
				if got := c.clock.Waits[side][w]; got != want[translate.Wait(w)] {
					t.Errorf("%s: side %d, wait %d: %d, want %d", name, side, w, got, want[translate.Wait(w)])
				}
			}
		}
	}
}

// TestClockNow: a wait that goes on counts for the second side if the first one has sent the last data, and for
// the side to which packets are on the way.
func TestClockNow(t *testing.T) {
	c := newCourse()
	c.packet(0, 0, 0, 100, 0, open)
	if now := c.clock.Now(&c.flow, 500); now.Waits[1][translate.WaitAnswer] != 500 {
		t.Errorf("a question: %+v", now)
	}
	c.packet(40, 0, 0, 100, 0, open)
	if now := c.clock.Now(&c.flow, 500); now.Waits[1][translate.WaitAgain] != 540 || now.Waits[1][translate.WaitAnswer] != 0 {
		t.Errorf("a question that comes again: %+v", now)
	}
	c.packet(0, 1, 0, 0, 100, open)
	if now := c.clock.Now(&c.flow, 500); now.Waits[1][translate.WaitAgain] != 40 || now.Waits[1][translate.WaitAnswer] != 500 {
		t.Errorf("a question that has arrived: %+v", now)
	}
	c.packet(9, 1, 0, 100, 100, open)
	if now := c.clock.Now(&c.flow, 500); now != c.clock {
		t.Errorf("an answer: %+v", now)
	}
	c.packet(0, 1, 100, 1000, 100, open)
	c.packet(0, 1, 1100, 1000, 100, open)
	if now := c.clock.Now(&c.flow, 500); now.Waits[0][translate.WaitAck] != 500 {
		t.Errorf("packets on the way: %+v", now)
	}
	c.flow[0].Window = 2100 // and Edge stays
	if now := c.clock.Now(&c.flow, 500); now.Waits[0][translate.WaitWindow] != 500 {
		t.Errorf("a window: %+v", now)
	}
}

// TestClockNarrow: the time counts as narrow in which a window holds less than two segments, or less than a
// third of its largest size is left, even if the window is smaller by then. It counts beside the wait of that
// time.
func TestClockNarrow(t *testing.T) {
	const whole = 3 << 14
	c := newCourse()
	c.flow[0].Window, c.flow[0].Widest = whole, whole
	expect := func(when string, want uint32) {
		t.Helper()
		if got := c.clock.Narrow; got != [2]uint32{want, 0} {
			t.Errorf("%s: %d, want %d of the first side", when, got, want)
		}
	}
	c.packet(0, 1, 0, whole*2/3, 0, open)
	c.packet(10, 1, whole*2/3, 1, 0, open)
	expect("with a third left", 0)
	if now := c.clock.Now(&c.flow, 500); now.Narrow != [2]uint32{500, 0} {
		t.Errorf("what goes on: %d", now.Narrow)
	}
	c.packet(30, 0, 0, 0, whole*2/3+1, whole)
	expect("until it opens", 30)
	c.packet(50, 1, whole*2/3+1, whole-1, 0, open)
	c.packet(7, 0, 0, 0, whole*5/3, whole/8)
	expect("until all is acknowledged", 37)
	c.packet(20, 1, whole*5/3, 100, 0, open)
	expect("with a smaller window that is all free", 57)
	if got := c.clock.Waits[0][translate.WaitWindow]; got != 7 {
		t.Errorf("it was shut for %d, want 7", got)
	}
	c = newCourse()
	c.flow[0].Window, c.flow[0].Widest = 2*mss-1, 2*mss-1
	c.packet(3, 1, 0, 1, 0, open)
	expect("with less than two segments", 3)
}
