package translate

import "time"

// A Wait is the thing that a side is waited for.
type Wait uint8

const (
	// WaitAnswer: its data, after data of the other side.
	WaitAnswer Wait = iota
	// WaitMore: its data, after data of its own.
	WaitMore
	// WaitWindow: its window, which held less than a segment.
	WaitWindow
	// WaitAck: its acknowledgement, after which the other side went on at once.
	WaitAck
	// WaitFlight: the other side's data, with more than a segment on the way to it.
	WaitFlight
	// WaitGap: data of its own that is missing here.
	WaitGap
	// WaitAgain: the other side, to send again, and then its acknowledgement.
	WaitAgain
	// Waits is how many there are.
	Waits = int(iota)
)

const (
	// Tick is the unit of waits as a shift of nanoseconds: 131 µs.
	Tick = 17
	// quiet is the time from which on a wait for data is none, unless the first side has asked.
	quiet = uint32(2 * time.Second >> Tick)
	// atOnce is how long after an acknowledgement, and the way to it and back, a side goes on that has waited for it.
	atOnce = 8
)

// A Clock has how a session's time has passed, in ticks. Each counts once, from one packet to the next, and a
// wait for data when that comes.
type Clock struct {
	Pending, Acked  uint32 // the wait that goes on, and its part until the last acknowledgement
	Spoke           uint8  // 1 and the side that has sent data last; 0: none has
	Stalled         uint8  // 1 and the side that has sent again what the other one has not acknowledged since; 0: none has
	Waits           [2][Waits]uint32
	Answers, Pauses [2]uint32 // of WaitAnswer and of WaitMore
	// Narrow is how long each side's window held less than two segments, or had less than a third of the largest one
	// left, whatever was waited for.
	Narrow [2]uint32
}

// An Open is the wait that a packet ends, or is in the middle of; Side is the side that is waited for.
type Open struct {
	Wait Wait
	Side int
	Any  bool // else it is that for data alone
	// Narrow says which windows are narrow, see [Clock.Narrow].
	Narrow [2]bool
}

// OpenWait returns the wait of a session before a packet of a side.
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

// count counts ticks of the wait, and reports whether they are of none for data.
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

// Pass counts the ticks until a packet of a side. least is the shortest way to its endpoint and back.
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

// Now is the clock some ticks after the last packet: a wait that goes on counts, unless it may
// be for nothing, or for an endpoint that has ended.
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
