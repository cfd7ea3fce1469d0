package worker

import (
	"net/netip"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/relay"
)

// A laneSession is a session that is prepared to leave user space, or has left. It is the lane's Owner and the
// relay's Carrier. Fields belong to the loop's goroutine.
type laneSession struct {
	worker  *worker
	conn    *conn
	session *lane.Session
	back    uint32       // how often it was taken back
	left    bool         // it goes on without this process, and has ended for it
	result  *lane.Result // of one that has ended in the lane
}

var (
	_ lane.Owner    = (*laneSession)(nil)
	_ relay.Carrier = (*laneSession)(nil)
)

// onLoop calls f on the loop, unless the session has ended by then.
func (c *laneSession) onLoop(f func()) {
	c.worker.post(func() {
		if c.worker.lanes.of[c.conn] == c {
			f()
		}
	})
}

// Ready implements [lane.Owner].
func (c *laneSession) Ready() { c.onLoop(func() { c.conn.session.Offer(c) }) }

// Left implements [lane.Owner].
func (c *laneSession) Left() { c.onLoop(func() { c.conn.session.Recall() }) }

// Ended implements [lane.Owner].
func (c *laneSession) Ended(r lane.Result) {
	c.onLoop(func() {
		c.result = &r
		c.conn.session.Finish(r.Reset)
	})
}

// Arm implements [relay.Carrier].
func (c *laneSession) Arm() { c.session.Arm() }

// Disarm implements [relay.Carrier]. A session that cannot leave for long rests from it.
func (c *laneSession) Disarm() bool {
	here := c.session.Disarm()
	if c.back++; here && c.back%laneTries == 0 && c.session.Tries() >= laneTries {
		c.onLoop(c.rest)
	}
	return here
}

// rest has the session be asked again later.
func (c *laneSession) rest() {
	w, n := c.worker, c.conn
	if w.withdraw(n) && w.lanes.lane != nil {
		w.lanes.again.add(n, w.loop.Now()-int64(n.session.Result().Duration), laneRetry*w.lanes.after)
	}
}

// Leave implements [relay.Carrier].
func (c *laneSession) Leave(a, b int) { _ = c.session.Leave(a, b) } // once, after Disarm

// Progress implements [relay.Carrier].
func (c *laneSession) Progress() (aToB, bToA int64, idle time.Duration) {
	if r := c.result; r != nil {
		return int64(r.Bytes[0]), int64(r.Bytes[1]), 0
	}
	bytes := c.session.Bytes()
	return int64(bytes[0]), int64(bytes[1]), c.session.Idle()
}

// Reset implements [relay.Carrier]. One that goes on without this process ends for it alone.
func (c *laneSession) Reset() {
	if c.left {
		c.onLoop(func() { c.conn.session.Finish(true) })
		return
	}
	c.session.Reset()
}

// laneEnded is the end of a session that may have been prepared, and reports whether it goes on without this process.
func (w *worker) laneEnded(n *conn) (left bool) {
	if c := w.lanes.of[n]; c != nil {
		delete(w.lanes.of, n)
		c.session.Release()
		left = c.left
	}
	return left
}

// LeaveLane has the sessions that have left user space go on without this process: for it they end, and their
// results have the cause. They do not count as cut. None leaves any more. The lane's Leave is to be called after Close.
func (g *Group) LeaveLane(cause error) {
	for _, w := range g.workers {
		w.post(func() {
			w.setLane(nil, 0)
			for n, c := range w.lanes.of { // setLane has withdrawn the others
				c.left = true
				n.session.Cut(cause)
			}
		})
	}
}

// laneAddresses returns the client's address of a session that has left, and both of the connection to the
// endpoint; ok says that it has left, and that they are known.
func (w *worker) laneAddresses(n *conn) (client, endpoint, local netip.AddrPort, ok bool) {
	c := w.lanes.of[n]
	if c == nil || !n.session.Carried() {
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

// CutLane ends the sessions that match and have left user space: both sides are reset, and their results have the
// cause. Those that match and are about to leave stay. It returns how many were cut.
func (g *Group) CutLane(match Match, cause error) int {
	counts := make([]int, len(g.workers)) // each its worker's, until that has been scanned
	all := g.scanClients(func(w *worker, n *conn) {
		if n.state != joined || w.lanes.of[n] == nil || !match(n.ref.serving.socket, bindingOf(n.session.Limits())) {
			return
		}
		if !w.withdraw(n) {
			counts[w.index]++
			n.session.Cut(cause)
		}
	})
	cut := 0
	for _, t := range all {
		cut += counts[t.worker.index]
	}
	return cut
}
