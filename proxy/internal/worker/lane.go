package worker

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// LaneUse is whether the sessions of a listening socket may leave user space.
type LaneUse uint8

const (
	// LaneOff: they stay.
	LaneOff LaneUse = iota
	// LaneOn: they may, if nothing of them has to be looked at.
	LaneOn
	// LaneTransparent: they would, but for their addresses, which are not this machine's own.
	LaneTransparent
)

// Times of a session at which it is asked whether it may leave user space. One that ends before has cost
// nothing; one that has exchanged something twice by the first time is likely to go on for as long again.
const (
	// laneMoves are the reads and writes of two questions and their answers.
	laneMoves = 8
	// laneRetry is how much longer than the first time it takes until the question is asked again, and then
	// again and again of one that has not shown that its endpoint answers.
	laneRetry = 20
	// laneBatch is how many sessions of a loop are prepared in one turn, at some ten microseconds each.
	laneBatch = 16
	// laneTries is how many packets may fail to take a session, and laneTrying for how much longer than the first time they
	// may, before it rests for a time of laneRetry: a stream has 64 packets within a millisecond, and leaves after some tenths of a second.
	laneTries  = 64
	laneTrying = 3
)

// A laneCandidate is a session that is going to be asked.
type laneCandidate struct {
	conn  *conn
	began int64 // loop clock; another session of the conn has another
	due   int64
}

// A laneQueue is candidates in the order in which they are due.
type laneQueue struct {
	worker *worker
	list   []laneCandidate
	timer  loop.Timer
	last   bool // those that were asked before
}

// lanes is a worker's part in the lane. Without one it is never touched.
type lanes struct {
	lane         *lane.Lane // borrowed; nil: no session may leave
	after        time.Duration
	first, again *laneQueue
	full         *laneFull
	gaps         *laneGaps

	park *lanePark

	results  map[*laneSession]*lane.Result // of those that have ended in the lane, until they have ended here; nil: there were none yet
	controls []string                      // congestion controls that sockets of sessions that left have had
}

// trying is for how many milliseconds packets may fail to take a session.
func (t *lanes) trying() uint32 { return uint32(laneTrying * t.after / time.Millisecond) }

// SetLane has sessions leave user space by a lane, once they have lasted for a time; nil: none is asked or offered any more, those that are offered
// to the lane are withdrawn, some in each turn of their loop, and those that have left by then stay there, see [Group.ReturnLane], which finds all of them.
// Sessions from before are asked as well. The lane is borrowed until the group is closed. It may be called at any time by any goroutine but those of the loops.
func (g *Group) SetLane(l *lane.Lane, after time.Duration) {
	for _, w := range g.workers {
		w.post(func() { w.setLane(l, after) })
	}
}

// begin makes a worker's part in the lane, once.
func (t *lanes) begin(w *worker) {
	if t.first == nil {
		t.first, t.again, t.full = &laneQueue{worker: w}, &laneQueue{worker: w, last: true}, &laneFull{worker: w}
		t.gaps = &laneGaps{worker: w}
		t.park = newLanePark(w)
	}
}

func (w *worker) setLane(l *lane.Lane, after time.Duration) {
	t := &w.lanes
	t.begin(w)
	was := t.lane
	t.lane, t.after = l, after
	if l != nil {
		if was == nil {
			w.askAgain(func(*Listening, Binding) bool { return true })
		}
		return
	}
	w.loop.Disarm(&t.full.timer)
	t.full.list = nil
	for _, q := range []*laneQueue{t.first, t.again} {
		w.loop.Disarm(&q.timer)
		q.list = nil
	}
	t.gaps.forget()
	w.withdrawAll()
}

// withdrawAll has all sessions stay in user space that are there, some in each turn. Those that have not had theirs may leave meanwhile, if they are
// armed: scans that begin later find them there, and askAgain has none asked before.
func (w *worker) withdrawAll() {
	w.beginClientScan(&clientScan{over: make(chan scanned, 1), visit: func(w *worker, n *conn) {
		n.set(waitsLane, false) // the queues were forgotten
		if c := n.lane; c != nil && !w.withdraw(n) && c.gap() == queued {
			c.setGap(noGap) // no gap is made for it: the flows are forgotten
		}
	}})
}

// withdraw has a session stay in user space, if it is there, and reports whether it is.
func (w *worker) withdraw(n *conn) bool {
	c := n.lane
	switch {
	case c == nil:
		return true
	case n.parked(), !n.session.Withdraw():
		return false
	}
	c.open()
	if !c.is(cameBack) {
		w.laneEnded(n)
	}
	return true
}

// awaitLane notes a session that begins, if it may be one of the lane's.
func (w *worker) awaitLane(n *conn) {
	if t := &w.lanes; t.lane != nil {
		t.first.add(n, w.loop.Now(), t.after)
	}
}

// add has a session be asked after a time, which is the same for all of a queue. One that waits for that already, there or in
// another queue, is asked once.
func (q *laneQueue) add(n *conn, began int64, after time.Duration) {
	if n.is(waitsLane) {
		return
	}
	n.set(waitsLane, true)
	l := q.worker.loop
	q.list = append(q.list, laneCandidate{n, began, l.Now() + int64(after)})
	if !q.timer.Armed() {
		l.Arm(&q.timer, q, after)
	}
}

// Expired implements [loop.Expirer].
func (q *laneQueue) Expired(*loop.Timer) {
	w, n := q.worker, 0
	now, began := w.loop.Now(), time.Now()
	for prepared := 0; n < len(q.list) && q.list[n].due <= now && prepared < laneBatch; n++ {
		if n%64 == 63 && time.Since(began) > turnTime {
			break
		}
		if c := q.list[n]; w.unqueued(c) && w.askLane(c, q.last) {
			prepared++
		}
	}
	q.list = append(q.list[:0], q.list[n:]...)
	if len(q.list) > 0 {
		w.loop.Arm(&q.timer, q, max(time.Duration(q.list[0].due-now), w.lanes.after/8)) // several at a time
	}
}

// goesOn reports whether the session of a candidate has not ended.
func (w *worker) goesOn(c laneCandidate) bool {
	return c.conn.state == joined && w.began(c.conn) == c.began
}

// unqueued takes a candidate out of its queue, and reports whether its session has not ended.
func (w *worker) unqueued(c laneCandidate) bool {
	goesOn := w.goesOn(c)
	if goesOn {
		c.conn.set(waitsLane, false)
	}
	return goesOn
}

// askLane asks whether a session may leave user space, and if so prepares it, which it reports.
func (w *worker) askLane(of laneCandidate, last bool) (prepared bool) {
	t, n := &w.lanes, of.conn
	c := n.lane
	if c != nil && !c.is(cameBack) || n.carried() {
		return false // it was asked before
	}
	switch why := w.staysHere(n, last); why {
	case mayLeave:
	case notYet:
		if last && !n.session.Heard() {
			w.group.stays[staySilent].Add(1)
		}
		t.again.add(n, of.began, laneRetry*t.after)
		return false
	default:
		w.group.stays[why].Add(1)
		return false
	}
	if c != nil { // it has come back
		c.tries()
		c.session.MayLeave()
		c.offer()
		return true
	}
	c = &laneSession{conn: n}
	c.tries()
	a, b := n.descriptors()
	if err := t.lane.Register(&c.session, a, b, (*laneOwner)(w)); err != nil {
		if errors.Is(err, lane.Full) || errors.Is(err, lane.JoinedAlready) { // the address of a session that has just ended
			t.full.add(of)
		}
		return true // the lane has counted it
	}
	n.lane = c
	return true
}

// mostFull is how many sessions of a loop wait for a place in the lane. Others stay in user space for good.
const mostFull = 4096

// A laneFull is the sessions that have found the lane full. They are tried again in turn, and as soon as one finds it full still
// the others wait as well.
type laneFull struct {
	worker *worker
	list   []laneCandidate
	timer  loop.Timer
}

// add has a session be tried again.
func (q *laneFull) add(c laneCandidate) {
	if len(q.list) < mostFull && !c.conn.is(waitsLane) {
		c.conn.set(waitsLane, true)
		q.list = append(q.list, c)
	}
	if w := q.worker; !q.timer.Armed() {
		w.loop.Arm(&q.timer, q, laneRetry*w.lanes.after)
	}
}

// Expired implements [loop.Expirer].
func (q *laneFull) Expired(*loop.Timer) {
	w := q.worker
	q.list = slices.DeleteFunc(q.list, func(c laneCandidate) bool { return !w.goesOn(c) })
	for range min(laneBatch, len(q.list)) {
		c := q.list[0]
		q.list = q.list[1:]
		left := len(q.list)
		c.conn.set(waitsLane, false)
		if w.askLane(c, true); len(q.list) > left {
			break // it is full still
		}
	}
	if len(q.list) > 0 && !q.timer.Armed() {
		w.loop.Arm(&q.timer, q, laneRetry*w.lanes.after)
	}
}

// A stay is why a session stays in user space, as far as this process decides it.
type stay uint8

const (
	mayLeave stay = iota
	notYet
	stayOff
	stayTransparent
	stayUnix
	stayTLS
	stayBandwidth
	stayMirror
	stayRewrite
	stayEnded
	stayFlow
	staySilent

	stays = iota
)

var stayTexts = [stays]string{
	stayOff: "switched off", stayTransparent: "transparent", stayUnix: "unix socket", stayTLS: "TLS ends or begins here", stayBandwidth: "bandwidth limit",
	stayMirror: "mirror", stayRewrite: "rewrite", stayEnded: "a side has ended", stayFlow: "no gap", staySilent: "the endpoint has sent nothing",
}

var stayOf = map[relay.Obstacle]stay{
	relay.ObstacleSocket: stayUnix, relay.ObstacleLayer: stayTLS, relay.ObstacleBandwidth: stayBandwidth,
	relay.ObstacleMirror: stayMirror, relay.ObstacleRewrite: stayRewrite, relay.ObstacleEnd: stayEnded,
}

// stayCounts count sessions that stay in user space.
type stayCounts [stays]atomic.Int64

// staysHere answers the one question: may this session leave user space? It may if nothing of it has to be looked
// at, and its endpoint has shown that it answers: first-byte timeouts, trials of breakers and the records of
// sessions need no more of it then. The PROXY header was written before the session began. last says that it was
// asked before, and need not have exchanged much.
func (w *worker) staysHere(n *conn, last bool) stay {
	switch n.ref.serving.socket.Service().Lane { // as the listener is now, not as it was
	case LaneTransparent:
		return stayTransparent
	case LaneOff:
		return stayOff
	}
	if why := n.session.Obstacle(); why != relay.NoObstacle {
		return stayOf[why]
	}
	limits := n.limits()
	switch {
	case !n.session.Heard(), !last && n.session.Moves() < laneMoves && !flows(n):
		return notYet
	case limits.Answered != nil && n.result().Duration <= limits.FirstByte: // a trial that is not reported
		return notYet
	}
	return mayLeave
}

// flows reports whether a session has moved as much as a flow does, be it by few reads and writes.
func flows(n *conn) bool {
	r := n.result()
	return r.AToB.Bytes()+r.BToA.Bytes() >= gapBytes
}

// LaneStays returns how many sessions have stayed in user space, by reason; only reasons that occurred. The lane has
// further ones.
func (g *Group) LaneStays() map[string]int64 {
	counts := make(map[string]int64)
	for why, text := range stayTexts {
		if n := g.stays[why].Load(); n > 0 && text != "" {
			counts[text] = n
		}
	}
	return counts
}
