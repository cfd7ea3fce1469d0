package worker

import (
	"math"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

const (
	// gapBytes is how much a session moves within the time between two looks that is a flow. Others have gaps.
	gapBytes = 64 << 10
	// gapPoll is how often a gap that is being made is looked at.
	gapPoll = time.Millisecond
	// gapMost is for how long one is made: until a slow sink has taken what is queued before it, which are some megabytes. It has
	// bytes until the gap is there, so the flow does not pause meanwhile.
	gapMost = 2 * time.Second
	// gapTries is how many packets may fail to take the session out of gaps of its own, before it rests.
	gapTries = 2
	// gapLater is how many times later a flow is looked at that has not moved a byte: it waits for its sink.
	gapLater = 20
	// gapsAtOnce is how many flows of a loop have a gap made at a time. Each costs its loop a look at both sockets per gapPoll.
	gapsAtOnce = 64
)

// A laneFlow is a session that was offered, with its bytes then.
type laneFlow struct {
	session *laneSession
	moved   [2]int64
	due     int64 // loop clock
}

// A gapInMaking is a gap that is being made.
type gapInMaking struct {
	session *laneSession
	sides   [2]bool // whose windows are shut
	since   int64   // loop clock
	back    uint8   // of the session when it was opened
	tries   int
}

// laneGaps are the gaps of a loop. A session that has one without help is not among them.
type laneGaps struct {
	worker      *worker
	flows       [2][]laneFlow // those that move, and those that stand still, each in the order in which they are due
	making      []gapInMaking
	looks, poll loop.Timer
}

// await has a session that is offered be looked at, once it has had the time to leave by itself.
func (g *laneGaps) await(c *laneSession) {
	if c.gap() == noGap && g.worker.lanes.lane != nil {
		c.setGap(queued)
		g.add(c, false)
	}
}

// add has a flow be looked at again, later if it stands still.
func (g *laneGaps) add(c *laneSession, still bool) {
	w := g.worker
	list, wait := &g.flows[0], w.lanes.after
	if still {
		list, wait = &g.flows[1], gapLater*w.lanes.after
	}
	*list = append(*list, laneFlow{c, c.moved(), w.loop.Now() + int64(wait)})
	if !g.looks.Armed() {
		w.loop.Arm(&g.looks, g, w.lanes.after)
	}
}

// moved is the bytes of both directions.
func (c *laneSession) moved() [2]int64 {
	r := c.conn.result()
	return [2]int64{r.AToB.Bytes(), r.BToA.Bytes()}
}

// forget is called when no session leaves any more.
func (g *laneGaps) forget() {
	for _, t := range []*loop.Timer{&g.looks, &g.poll} {
		g.worker.loop.Disarm(t)
	}
	g.flows = [2][]laneFlow{} // and withdrawAll has their sessions know
	for _, m := range g.making {
		m.session.open()
	}
	g.making = nil
}

// is reports whether the lane may take a session, and has not.
func (g *laneGaps) is(c *laneSession, at laneFacts) bool {
	return c.conn.lane == c && c.is(at) && !c.conn.carried()
}

// Expired implements [loop.Expirer].
func (g *laneGaps) Expired(t *loop.Timer) {
	if t == &g.poll {
		making := g.making
		g.making = g.making[:0]
		for i := range making {
			if m := making[i]; !g.goOn(&m) {
				g.making = append(g.making, m)
			}
		}
		clear(making[len(g.making):])
	}
	g.look()
	if len(g.making) > 0 && !g.poll.Armed() {
		g.worker.loop.Arm(&g.poll, g, gapPoll)
	}
}

// look begins gaps for the flows that are due, as many as may be made at a time, and sets the time of the next look: no later
// than that of a flow that is added meanwhile.
func (g *laneGaps) look() {
	w := g.worker
	now := w.loop.Now()
	next := int64(math.MaxInt64)
	for i := range g.flows {
		if due := g.beginDue(i, now); due != 0 {
			next = min(next, due)
		}
	}
	if next != math.MaxInt64 && len(g.making) < gapsAtOnce { // else the end of one looks again
		w.loop.Arm(&g.looks, g, min(max(time.Duration(next-now), w.lanes.after/8), w.lanes.after))
	}
}

// beginDue begins those of one list, and returns when the next one is due; 0: there is none.
func (g *laneGaps) beginDue(i int, now int64) (next int64) {
	list := &g.flows[i]
	for len(*list) > 0 && (*list)[0].due <= now && len(g.making) < gapsAtOnce {
		f := (*list)[0]
		*list = (*list)[1:]
		if here := g.is(f.session, queued); here {
			g.begin(f, now)
		} else if f.session.gap() == queued {
			f.session.setGap(noGap)
		}
	}
	if len(*list) == 0 {
		*list = nil
		return 0
	}
	return (*list)[0].due
}

// begin shuts the window of a flow's source. A session that has moved little is looked at again, unless it is idle: then it leaves with
// its next packet. None is shut of a flow both ways: the faster one would stand still until the slower one has delivered
// a window of some megabytes.
func (g *laneGaps) begin(f laneFlow, now int64) {
	c, moved := f.session, f.session.moved()
	var sides [2]bool
	most := int64(0)
	for i := range moved {
		by := moved[i] - f.moved[i]
		sides[i], most = by >= gapBytes, max(most, by)
	}
	c.setGap(noGap)
	switch {
	case most == 0 && c.is(armed), sides[0] && sides[1], !passing(c.session.Refused()):
	case most < gapBytes:
		c.setGap(queued)
		g.add(c, most == 0)
	default:
		if m := (gapInMaking{session: c, sides: sides, since: now}); m.shut() {
			g.making = append(g.making, m)
		}
	}
}

// passing reports whether the reason for which a packet could not take a session may be that it has no gap.
func passing(why lane.Reason) bool {
	switch why {
	case lane.None, lane.Unread, lane.OutOfOrder, lane.NotNext, lane.Unacknowledged, lane.InFlight, lane.Device, lane.Interrupted:
		return true
	}
	return false
}

// goOn looks at a gap that is being made, and reports whether that is over.
func (g *laneGaps) goOn(m *gapInMaking) (over bool) {
	c := m.session
	if !g.is(c, shut) && !g.is(c, opened) || c.conn.session.Obstacle() != relay.NoObstacle { // it has left, or stays
		c.open()
		return true
	}
	late, unused := g.worker.loop.Now()-m.since >= int64(gapMost), c.is(opened) && c.back == m.back
	switch {
	case unused && late: // it is no flow any more
		c.setGap(noGap)
		return true
	case unused: // no packet has come yet
	case late, c.is(opened) && m.tries == gapTries:
		g.worker.group.stays[stayFlow].Add(1)
		c.open()
		c.rest()
		return true
	case c.is(opened): // a packet has come, and has not taken it
		return !m.shut()
	case !c.is(armed): // its source's mark may have been lowered
		c.conn.driven().Recall()
	case c.delivered():
		m.tries, m.back = m.tries+1, c.back
		c.open()
		c.setGap(opened)
	}
	return false
}

// shut shuts windows, and reports whether that can be had.
func (m *gapInMaking) shut() bool {
	c := m.session
	if c.setGap(noGap); !c.session.Shut(m.sides[0], m.sides[1]) {
		return false
	}
	c.setGap(shut)
	return true
}

// delivered reports whether the peers have acknowledged all that the sockets have sent, and take more: a source is shown no more than
// its sink takes.
func (c *laneSession) delivered() bool {
	a, b := c.conn.descriptors()
	for _, fd := range [2]int{a, b} {
		if n, err := sys.SIOCOUTQ(fd); err != nil || n > 0 {
			return false
		}
		var info sys.TCPInfo
		if err := sys.GetTCPInfo(fd, &info); err != nil || info.Snd_wnd == 0 {
			return false
		}
	}
	return true
}

// open ends the gap of a session, if one is being made: its endpoints see windows again.
func (c *laneSession) open() {
	if c.is(shut) {
		a, b := c.conn.descriptors()
		_ = c.session.Open(a, b) // or they see them later
	}
	c.setGap(noGap)
}
