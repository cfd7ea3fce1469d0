package worker

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/relay"
)

// A laneSession is a session that is prepared to leave user space, or has left. It is the relay's Carrier, and used once: the lane may have it
// still after its end. Fields belong to the loop's goroutine, but for those that do not change.
type laneSession struct {
	session  lane.Session // first, see laneSessionOf
	conn     *conn
	parked   relay.Parked // of one that has left, and has no relay.Driven
	times    laneTimes
	passed   [2]uint16  // the low bits of how many bytes had come from either side at the last look of Group.Watch
	controls [2]control // the congestion controls of its sockets when it left
	back     uint8      // how often it was taken back; it wraps around
	facts    laneFacts
}

// laneFacts are small facts about a laneSession, with the state of its gap.
type laneFacts uint8

const (
	goneOn   laneFacts = 1 << iota // it goes on without this process, and has ended for it
	coming                         // it is coming back, see [Group.ReturnLane]
	cameBack                       // it has come back: it keeps its place in the lane to its end, for its new sockets need that
	armed                          // the lane may take it
	hasLeft                        // its times are those until it has left
	queued                         // it is looked at later whether it is a flow, see [laneGaps]
	shut                           // a gap is being made for it: its source sees a window of 0
	opened                         // likewise, and its endpoints see windows again: the next packet takes it

	noGap laneFacts = 0
	gaps            = queued | shut | opened // no two at once
)

func (c *laneSession) is(f laneFacts) bool { return c.facts&f != 0 }

func (c *laneSession) set(f laneFacts, on bool) {
	if c.facts &^= f; on {
		c.facts |= f
	}
}

// gap is how far a flow has come with a gap of its own.
func (c *laneSession) gap() laneFacts { return c.facts & gaps }

func (c *laneSession) setGap(to laneFacts) { c.facts = c.facts&^gaps | to }

var _ relay.Carrier = (*laneSession)(nil)

// worker returns that of a session that has not ended. It belongs to the loop's goroutine.
func (c *laneSession) worker() *worker { return c.conn.worker() }

// onLoop calls f on the loop, unless the session has ended by then. Any goroutine may call it.
func (w *worker) onLoop(c *laneSession, f func()) {
	w.post(func() {
		if c.conn.lane == c {
			f()
		}
	})
}

// offer lets the lane have the session from now on, and has it looked at later whether it is a flow without a gap. It does nothing if none is to leave
// any more: the session is going to be withdrawn.
func (c *laneSession) offer() {
	w := c.worker()
	if w.lanes.lane == nil {
		return
	}
	c.conn.driven().Offer(c)
	w.lanes.gaps.await(c)
}

// Arm implements [relay.Carrier].
func (c *laneSession) Arm() { c.set(armed, c.worker().lanes.lane != nil && c.session.Arm()) }

// Disarm implements [relay.Carrier]. A session that cannot leave for long rests from it, and one that a packet could not take is
// looked at again whether it is a flow: it may have paused at the look before.
func (c *laneSession) Disarm() bool {
	here := c.session.Disarm()
	c.set(armed, false)
	if !here {
		c.noteLeaving()
	} else if why := c.session.Refused(); why != lane.None && passing(why) {
		c.worker().lanes.gaps.await(c)
	}
	w := c.worker()
	if c.back++; here && !c.is(shut|opened) && c.back%laneTries == 0 && c.session.Tries() >= laneTries && w.milliseconds()-c.times.tried() >= w.lanes.trying() {
		w.onLoop(c, c.rest)
	}
	return here
}

// milliseconds is the loop's clock, which wraps around.
func (w *worker) milliseconds() uint32 { return uint32(w.loop.Now() / int64(time.Millisecond)) }

// rest has the session be asked again later.
func (c *laneSession) rest() {
	if c.worker().withdraw(c.conn) {
		c.worker().askLater(c.conn)
	}
}

// Leave implements [relay.Carrier].
func (c *laneSession) Leave(a, b int) {
	t := &c.worker().lanes
	c.controls = [2]control{t.controlOf(a), t.controlOf(b)}
	_ = c.session.Leave(a, b) // once, after Disarm
	t.park.later(c)
}

// Progress implements [relay.Carrier].
func (c *laneSession) Progress() (aToB, bToA int64, idle time.Duration) {
	if r := c.worker().lanes.results[c]; r != nil {
		return int64(r.Bytes[0]), int64(r.Bytes[1]), 0
	}
	bytes := c.session.Bytes()
	return int64(bytes[0]), int64(bytes[1]), c.session.Idle()
}

// Quiet implements [relay.Carrier]: all that was sent is acknowledged, and the endpoint was the last to send, or has ended.
func (c *laneSession) Quiet() bool {
	v, ok := c.session.Look()
	return ok && v.Ends[0].Outstanding == 0 && v.Ends[1].Outstanding == 0 && (v.Ends[1].Last || v.EndedBy == 1)
}

// Reset implements [relay.Carrier]. One that goes on without this process ends for it alone.
func (c *laneSession) Reset() {
	if c.is(goneOn) {
		c.worker().onLoop(c, func() { c.conn.driven().Finish(true, relay.SideNone) })
		return
	}
	c.session.Reset()
}

// Return implements [relay.Carrier].
func (c *laneSession) Return() bool {
	if c.is(goneOn) {
		return false
	}
	c.goBack()
	return true
}

// away reports whether the session has left user space, and is not coming back.
func (c *laneSession) away() bool { return c.conn.carried() && !c.is(coming) }

// laneEnded is the end of a session that may have been prepared, and returns its part in the lane; nil: it had none.
func (w *worker) laneEnded(n *conn) *laneSession {
	c := n.lane
	if c != nil {
		n.lane = nil
		c.session.Release()
	}
	return c
}

// note keeps the result of a session that has ended in the lane until it has ended here.
func (t *lanes) note(c *laneSession, r *lane.Result) {
	if t.results == nil {
		t.results = make(map[*laneSession]*lane.Result)
	}
	t.results[c] = r
}

// forget is the end of a session's part in the lane; nil: it had none.
func (t *lanes) forget(c *laneSession) {
	if len(t.results) > 0 {
		delete(t.results, c)
	}
}

// LeaveLane has the sessions that have left user space go on without this process: for it they end, and their
// results have the cause. They do not count as cut. None leaves any more. The lane's Leave is to be called after Close.
// It returns when all have, with their number, and may be called by any goroutine but those of the loops.
func (g *Group) LeaveLane(cause error) int64 {
	for _, w := range g.workers {
		w.post(func() { w.setLane(nil, 0) })
	}
	var left atomic.Int64
	g.scanClients(func(_ *worker, n *conn) {
		if c := n.lane; c != nil && c.away() { // others are in user space now, or soon
			c.set(goneOn, true)
			left.Add(1)
			n.driven().Cut(cause)
		}
	})
	g.scanClients(func(*worker, *conn) {}) // an end is on its loop behind the first scan
	return left.Load()
}

// laneAddresses returns the client's address of a session that has left, and both of the connection to the
// endpoint; ok says that it has left, and that they are known.
func (w *worker) laneAddresses(n *conn) (client, endpoint, local netip.AddrPort, ok bool) {
	c := n.lane
	if c == nil || !n.carried() {
		return client, endpoint, local, false
	}
	a, b, ok := c.session.Addresses()
	return a[0], b[0], b[1], ok
}

// laneSource is the client's source of a session that has left.
func (w *worker) laneSource(n *conn) source.Source {
	client, _, _, ok := w.laneAddresses(n)
	if !ok {
		return source.Source{}
	}
	return source.TCP(client)
}
