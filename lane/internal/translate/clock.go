package translate

import "time"

// A Wait is an event for which the session waits. The comments call the side that must cause it "this side".
type Wait uint8

const (
	// WaitAnswer: data of this side, after data of the other side.
	WaitAnswer Wait = iota
	// WaitMore: data of this side, after earlier data of its own.
	WaitMore
	// WaitWindow: the window of this side, which had room for less than a segment.
	WaitWindow
	// WaitAck: the acknowledgement of this side, after which the other side went on at once.
	WaitAck
	// WaitFlight: data of the other side, while more than a segment is on the way to this side.
	WaitFlight
	// WaitGap: data of this side that is missing here.
	WaitGap
	// WaitAgain: the other side, which must send again, and then the acknowledgement of this side.
	WaitAgain
	// Waits is the number of kinds of waits.
	Waits = int(iota)
)

const (
	// Tick is the unit of waits: 2^17 ns, which is 131 µs.
	Tick = 17
	// quiet bounds waits for data: a longer time is no wait, unless the first side has asked for the data.
	quiet = uint32(2 * time.Second >> Tick)
	// A side that sends data within atOnce ticks and a round trip after an acknowledgement has waited for the
	// acknowledgement.
	atOnce = 8
)

// A Clock says what a session's time was spent on, in ticks. Each tick counts once, when the next packet comes.
// A wait for data counts when the data comes.
type Clock struct {
	Pending, Acked  uint32 // the wait that goes on, and its part until the last acknowledgement
	Spoke           uint8  // 1 + the side that has sent data last; 0: none has
	Stalled         uint8  // 1 + the side that has sent data again that was not acknowledged since; 0: none has
	Waits           [2][Waits]uint32
	Answers, Pauses [2]uint32 // of WaitAnswer and of WaitMore
	// Narrow is how long each side's window had room for less than two segments, or had less than a third of
	// its largest size left, whatever the session was waiting for.
	Narrow [2]uint32
}

// An Open is the wait that goes on when a packet comes. Side is the side that is waited for.
type Open struct {
	Wait Wait
	Side int
	Any  bool // false: the session can only be waiting for data
	// Narrow says which sides have a narrow window, see [Clock.Narrow].
	Narrow [2]bool
}

// OpenWait returns the wait that goes on when a packet of a side comes.
func OpenWait(flows *[2]Flow, side int) (w Open) {
	f, o := &flows[side], &flows[1-side]
	w.Narrow[side], w.Narrow[1-side] = f.narrow(o), o.narrow(f)
	w.Side, w.Any = 1-side, true
	switch {
	case f.missing(o):
		w.Wait, w.Side = WaitGap, side
	case o.missing(f):
		w.Wait = WaitGap
	case o.shut(f):
		w.Wait = WaitWindow
	case f.shut(o):
		w.Wait, w.Side = WaitWindow, side
	case f.Sent > o.Acked+uint64(o.Takes):
		w.Wait = WaitFlight
	default:
		w.Side, w.Any = 0, false
	}
	return w
}

// count adds ticks to the open wait, and reports whether it did. It does not count a wait for data, which
// counts when the data comes.
func (c *Clock) count(open *Open, ticks uint32) bool {
	for i, narrow := range open.Narrow {
		if narrow {
			c.Narrow[i] += ticks
		}
	}
	if !open.Any || open.Wait == WaitFlight {
		return false
	}
	c.Waits[open.Side][open.Wait] += ticks
	return true
}

// Pass counts the ticks before a packet of a side. least is the shortest round trip to the side's endpoint.
func (c *Clock) Pass(open Open, fate Fate, data bool, side int, ticks uint32, least time.Duration) {
	if !c.count(&open, ticks) {
		c.Pending += ticks
	}
	wait, acked, spoke := c.Pending, c.Acked, c.Spoke
	if fate.News && c.Stalled == uint8(2-side) {
		c.Stalled = 0
	}
	if !fate.Fits || !data || fate.Stale {
		if fate.News {
			c.Acked = wait
		}
		return
	}
	c.Pending, c.Acked, c.Spoke = 0, 0, uint8(1+side)
	other, again := 1-side, fate.Again || c.Stalled == uint8(1+side)
	if fate.Again {
		c.Stalled = uint8(1 + side)
	}
	switch {
	case wait == 0:
	case again:
		c.Waits[other][WaitAgain] += wait
	case wait >= quiet && (side != 1 || spoke != 1): // nothing was asked for
	case spoke == uint8(1+other):
		c.Waits[side][WaitAnswer] += wait
		c.Answers[side]++
	case open.Any && open.Wait == WaitFlight:
		c.Waits[other][WaitFlight] += wait
	default:
		if acked != 0 && wait-acked <= uint32(least>>Tick)+atOnce {
			c.Waits[other][WaitAck] += acked
			wait -= acked
		}
		c.Waits[side][WaitMore] += wait
		c.Pauses[side]++
	}
}

// Now returns the clock at some ticks after the last packet. The wait that goes on counts too, unless there may
// be no data to wait for, or its endpoint has ended.
func (c Clock) Now(flows *[2]Flow, ticks uint32) Clock {
	open := OpenWait(flows, 0)
	if c.count(&open, ticks) {
		ticks = 0
	}
	wait := c.Pending + ticks
	switch side := int(c.Spoke) - 1; {
	case c.Stalled != 0:
		c.Waits[2-c.Stalled][WaitAgain] += wait
	case side >= 0 && flows[side].Sent > flows[1-side].Acked+uint64(flows[1-side].Takes):
		c.Waits[1-side][WaitAck] += wait
	case side == 0 && flows[1].Fin == 0:
		c.Waits[1][WaitAnswer] += wait
	}
	return c
}
