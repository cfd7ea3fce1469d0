package worker

import (
	"errors"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/driver"
)

// LaneUse says whether the sessions of a listening socket may leave user space.
type LaneUse uint8

const (
	// LaneOff: they stay.
	LaneOff LaneUse = iota
	// LaneOn: they may, if none of their bytes has to be looked at.
	LaneOn
	// LaneTransparent: they would, but their addresses are not this machine's own.
	LaneTransparent
)

// These are the times at which a session is asked whether it may leave user space. A session that ends earlier costs
// nothing. A session that has exchanged something twice by then will probably go on for as long again.
const (
	// laneMoves are the reads and writes of two questions and their answers.
	laneMoves = 8
	// laneRetry is the interval, in units of the first wait, at which the question is repeated as long
	// as the endpoint has not shown that it answers.
	laneRetry = 20
	// laneBatch is how many sessions of a loop are prepared in one turn, at some ten microseconds each.
	laneBatch = 16
	// A session that laneTries packets could not take, for laneTrying times the first wait, is asked again after laneRetry.
	// It needs both: a stream has 64 packets within a millisecond, and leaves after some tenths of a second.
	laneTries  = 64
	laneTrying = 3
)

// A laneCandidate is a session that is going to be asked.
type laneCandidate struct {
	conn  *conn
	began int64 // loop clock at the session's begin; tells sessions of the same conn apart
	due   int64
}

// A laneQueue holds candidates in the order in which they are due.
type laneQueue struct {
	worker *worker
	list   []laneCandidate
	timer  loop.Timer
	last   bool // its sessions were asked before
}

// lanes is a worker's part in the lane. Without one it is never touched.
type lanes struct {
	lane         *lane.Lane // borrowed; nil: no session may leave
	after        time.Duration
	first, again *laneQueue
	gaps         *laneGaps

	park *lanePark

	results  map[*laneSession]*lane.Result // of sessions that have ended in the lane, but not here yet
	controls []string                      // names of congestion controls, for control
}

func (t *lanes) trying() uint32 { return uint32(laneTrying * t.after / time.Millisecond) }

// SetLane lets sessions leave user space by a lane, once they have lasted for a time, including sessions that began
// earlier. With nil no session leaves any more: offers to the lane are withdrawn, some in each turn of a loop, and
// sessions that have left stay there until [Group.ReturnLane]. The lane is borrowed until the group is closed. Any
// goroutine but the loops' may call it.
func (g *Group) SetLane(l *lane.Lane, after time.Duration) {
	for _, w := range g.workers {
		w.post(func() { w.setLane(l, after) })
	}
}

// begin makes a worker's part in the lane, once.
func (t *lanes) begin(w *worker) {
	if t.first == nil {
		t.first, t.again = &laneQueue{worker: w}, &laneQueue{worker: w, last: true}
		t.gaps = &laneGaps{worker: w}
		t.park = &lanePark{worker: w, first: never}
		t.results = make(map[*laneSession]*lane.Result)
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
	for _, q := range []*laneQueue{t.first, t.again} {
		w.loop.Disarm(&q.timer)
		q.list = nil
	}
	t.gaps.forget()
	w.withdrawAll()
}

// withdrawAll keeps all sessions that are in user space there, a few in each turn. An armed session may leave before its
// turn comes: then it is in the lane, and askAgain asks it no more.
func (w *worker) withdrawAll() {
	w.scanClients(func(w *worker, n *conn) {
		n.set(waitsLane, false) // the queues were forgotten
		if c := n.lane; c != nil && !w.withdraw(n) && c.gap() == queued {
			c.setGap(noGap) // the flows are forgotten, so no gap will be made for it
		}
	}, nil)
}

// withdraw keeps a session in user space, unless it has left, and reports whether it is there.
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

func (w *worker) awaitLane(n *conn) {
	if t := &w.lanes; t.lane != nil {
		t.first.add(n, w.loop.Now(), t.after)
	}
}

// add lets a session be asked after a time, the same for the whole queue. A session that waits in any queue is not added.
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
		w.loop.Arm(&q.timer, q, max(time.Duration(q.list[0].due-now), w.lanes.after/8)) // at most every eighth of the wait, so that several are due
	}
}

// unqueued notes that a candidate has left its queue, and reports whether its session still runs.
func (w *worker) unqueued(c laneCandidate) bool {
	goesOn := c.conn.state == joined && w.began(c.conn) == c.began
	if goesOn {
		c.conn.set(waitsLane, false)
	}
	return goesOn
}

// askLane asks whether a session may leave user space, and prepares it if so.
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
			w.group.stays.Add(int(staySilent))
		}
		t.again.add(n, of.began, laneRetry*t.after)
		return false
	default:
		w.group.stays.Add(int(why))
		return false
	}
	if c != nil { // the session has come back
		c.tries()
		c.retag(new(relay.Result))
		c.session.MayLeave()
		c.offer()
		return true
	}
	c = &laneSession{conn: n}
	c.tries()
	a, b := n.descriptors()
	if err := t.lane.Register(&c.session, a, b, (*laneOwner)(w)); err != nil {
		if errors.Is(err, lane.Full) || errors.Is(err, lane.JoinedAlready) { // the address of a session that has just ended
			t.again.add(n, of.began, laneRetry*t.after)
		}
		return true // the lane has counted it
	}
	n.lane = c
	return true
}

// A stay is this process's reason for a session to stay in user space.
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

var stayOf = map[driver.Obstacle]stay{
	driver.ObstacleSocket: stayUnix, driver.ObstacleLayer: stayTLS, driver.ObstacleBandwidth: stayBandwidth,
	driver.ObstacleMirror: stayMirror, driver.ObstacleRewrite: stayRewrite, driver.ObstacleEnd: stayEnded,
}

// staysHere decides whether a session may leave user space. It may if none of its bytes has to be looked at, and its
// endpoint has shown that it answers: then first-byte timeouts, trials of breakers and records need nothing more. The PROXY
// header was written before the session began. last says that the session was asked before, and need not have exchanged
// much.
func (w *worker) staysHere(n *conn, last bool) stay {
	switch n.ref.serving.socket.Service().Lane { // the listener's present service, not the client's
	case LaneTransparent:
		return stayTransparent
	case LaneOff:
		return stayOff
	}
	if why := n.session.Obstacle(); why != driver.NoObstacle {
		return stayOf[why]
	}
	limits := n.limits()
	switch {
	case !n.session.Heard(), !last && n.session.Moves() < laneMoves && !flows(n):
		return notYet
	case limits.Answered != nil && n.result().Duration <= limits.FirstByte: // a trial of a breaker that is not reported yet
		return notYet
	}
	return mayLeave
}

// flows reports whether a session has moved as many bytes as a flow does, even by few reads and writes.
func flows(n *conn) bool {
	r := n.result()
	return r.AToB.Bytes()+r.BToA.Bytes() >= gapBytes
}

// LaneStays returns how many sessions have stayed in user space, by reason, without reasons that did not occur. The lane
// has further reasons.
func (g *Group) LaneStays() map[string]int64 { return g.stays.ByReason(false) }

const (
	// laneGap is how long the return of a session waits for a moment at which nothing is on the way. Without such a moment
	// a sender waits for its retransmission timer.
	laneGap = 200 * time.Millisecond
	// laneReturns is how many sessions come back at a time: each takes a thread that waits for the kernel's grace period.
	laneReturns = 64
)

// CutLane ends the matching sessions that have left user space, for an operator: both sides are
// reset. Matching sessions that are about to leave stay in user space. It returns
// how many were cut.
func (g *Group) CutLane(match Match) int {
	var cut atomic.Int64
	g.scanLane(match, func(_ *worker, n *conn) {
		cut.Add(1)
		n.driven().Cut(record.ErrOperatorNow)
	})
	return int(cut.Load())
}

// scanLane calls visit for matching sessions that have left user space. Sessions that are about to
// leave stay, and are asked later.
func (g *Group) scanLane(match Match, visit func(w *worker, n *conn)) {
	g.scanClients(func(w *worker, n *conn) {
		switch {
		case n.state != joined || n.lane == nil || !match(n.ref.serving.socket, n.binding()):
		case w.withdraw(n):
			w.askLater(n)
		default:
			visit(w, n)
		}
	})
}

// ReturnLane brings the matching sessions that have left user space back. It returns how many came back, and how many could
// not: these were reset on both sides, and their results have the reason. Sessions that end meanwhile are not counted. A
// session that has come back may leave again. Any goroutine but the loops' may call it.
func (g *Group) ReturnLane(match Match) (returned, reset int) {
	var mu sync.Mutex
	found := make(map[*laneSession]*worker) // under mu
	g.scanLane(match, func(w *worker, n *conn) {
		if c := n.lane; !c.is(coming) {
			c.set(coming, true)
			mu.Lock()
			found[c] = w
			mu.Unlock()
		}
	})
	mu.Lock()
	defer mu.Unlock()
	var back, failed atomic.Int64
	var all sync.WaitGroup
	for c, w := range found {
		g.returning <- struct{}{}
		all.Go(func() {
			defer func() { <-g.returning }()
			switch here, err := c.comeBack(w); {
			case here:
				back.Add(1)
			case err != nil && !errors.Is(err, net.ErrClosed):
				failed.Add(1)
			}
		})
	}
	all.Wait()
	return int(back.Load()), int(failed.Load())
}

// comeBack brings a session back to user space, and waits for it. here says that the session goes on there. An error that
// wraps net.ErrClosed says that the session has ended; after other errors both sides were reset.
func (c *laneSession) comeBack(w *worker) (here bool, err error) {
	a, b, ended, err := c.session.TakeBack(laneGap)
	switch {
	case a < 0: // it has not left, or has ended
		w.onLoop(c, func() { c.set(coming, false) })
		return false, err
	case err != nil: // its sockets are in repair still
		c.discard(a, b)
		return false, err
	}
	called, err := w.call(func() error { return c.arrive(w, a, b, ended) })
	if !called {
		c.discard(a, b)
	}
	return err == nil, err
}

// discard resets a session, and closes both new sockets, which are of no use.
func (c *laneSession) discard(a, b int) {
	for _, fd := range [2]int{a, b} {
		resetSocket(fd)
	}
	c.session.Reset() // Ended is called
}

// arrive does the loop's half of comeBack.
func (c *laneSession) arrive(w *worker, a, b int, ended [2]bool) error {
	n := c.conn
	c.set(coming, false)
	if n.lane != c { // the session was cut meanwhile
		c.discard(a, b)
		return net.ErrClosed
	}
	session := n.driven()
	ida, errA := w.loop.Add(a, whichClient, session)
	idb, errB := w.loop.Add(b, whichEndpoint, session)
	if err := errors.Join(errA, errB); err != nil {
		w.loop.Drop(ida)
		w.loop.Drop(idb)
		c.discard(a, b)
		return err
	}
	c.setOptions([2]int{a, b})
	last := relay.SideNone
	if v, ok := c.session.Look(); ok && v.Ends[0].Last {
		last = relay.SideA
	} else if ok && v.Ends[1].Last {
		last = relay.SideB
	}
	c.set(cameBack, true)
	w.askLater(n)
	if !session.Return(relay.Socket{FD: a, ID: ida, TCP: true, NoDelay: true}, relay.Socket{FD: b, ID: idb, TCP: true, NoDelay: true}, ended, last) {
		w.loop.Drop(ida) // the session is being reset
		w.loop.Drop(idb)
		c.discard(a, b)
		return net.ErrClosed
	}
	return nil
}

// AskLane asks matching sessions in user space again whether they may leave it.
func (g *Group) AskLane(match Match) {
	for _, w := range g.workers {
		w.post(func() { w.askAgain(match) })
	}
}

func (w *worker) askAgain(match Match) {
	w.scanClients(func(w *worker, n *conn) {
		if t := &w.lanes; t.lane != nil && n.state == joined && !n.carried() && match(n.ref.serving.socket, n.binding()) {
			t.first.add(n, w.began(n), t.after)
		}
	}, nil)
}

func (w *worker) askLater(n *conn) {
	if t := &w.lanes; t.lane != nil {
		t.again.add(n, w.began(n), laneRetry*t.after)
	}
}

func (w *worker) began(n *conn) int64 { return w.loop.Now() - int64(n.result().Duration) }

const (
	// gapBytes is how much a session must move between two looks to count as a flow. Other sessions
	// have gaps.
	gapBytes = 64 << 10
	// gapPoll is the interval between looks at a gap that is being made.
	gapPoll = time.Millisecond
	// gapMost bounds how long making a gap takes: a slow sink has to take some queued megabytes
	// first. These keep the sink busy until the gap is there, so the flow does not pause.
	gapMost = 2 * time.Second
	// gapTries is how many packets may fail to take a session that has gaps by itself, before it
	// rests.
	gapTries = 2
	// gapLater is how many times longer a flow waits for its next look if it has not moved a byte: its sink keeps it
	// waiting.
	gapLater = 20
	// gapsAtOnce is the number of flows of a loop for which gaps are made at a time. Each costs its loop a look at both
	// sockets per gapPoll.
	gapsAtOnce = 64
)

// A laneFlow is an offered session, with the bytes that it had moved when it was added.
type laneFlow struct {
	session *laneSession
	moved   [2]int64
	due     int64 // loop clock
}

// A gapInMaking is a gap that is being made.
type gapInMaking struct {
	session *laneSession
	sides   [2]bool // sides with shut windows
	since   int64   // loop clock
	back    uint8   // the session's back when the gap was opened
	tries   int
}

// laneGaps are the gaps that a loop makes. Sessions with gaps of their own are not among them.
type laneGaps struct {
	worker      *worker
	flows       [2][]laneFlow // flows that move, and flows that stand still, each in the order in which they are due
	making      []gapInMaking
	looks, poll loop.Timer
}

// await looks at an offered session, after it has had time to leave by itself.
func (g *laneGaps) await(c *laneSession) {
	if c.gap() == noGap && g.worker.lanes.lane != nil {
		c.setGap(queued)
		g.add(c, false)
	}
}

// add looks at a flow again, later if it stands still.
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

func (c *laneSession) moved() [2]int64 {
	r := c.conn.result()
	return [2]int64{r.AToB.Bytes(), r.BToA.Bytes()}
}

// forget is called when no further session may leave.
func (g *laneGaps) forget() {
	for _, t := range []*loop.Timer{&g.looks, &g.poll} {
		g.worker.loop.Disarm(t)
	}
	g.flows = [2][]laneFlow{} // withdrawAll resets the state of their sessions
	for _, m := range g.making {
		m.session.open()
	}
	g.making = nil
}

// is reports whether a session is in a state, and the lane has not taken it.
func (g *laneGaps) is(c *laneSession, at laneFacts) bool {
	return c.conn.lane == c && c.is(at) && !c.conn.carried()
}

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

// look begins gaps for the flows that are due, as many as may be made at a time, and sets the time of the next look.
func (g *laneGaps) look() {
	w := g.worker
	now := w.loop.Now()
	next := int64(math.MaxInt64)
	for i := range g.flows {
		if due := g.beginDue(i, now); due != 0 {
			next = min(next, due)
		}
	}
	if next != math.MaxInt64 && len(g.making) < gapsAtOnce { // otherwise the end of a gap looks again
		w.loop.Arm(&g.looks, g, min(max(time.Duration(next-now), w.lanes.after/8), w.lanes.after))
	}
}

// beginDue begins the gaps of one list, and returns when its next flow is due; 0: there is none.
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

// begin shuts the window of a flow's source. A session that has moved little is looked at again, unless it is idle: an idle
// session leaves with its next packet. A flow in both directions keeps its windows: the faster direction would stand still
// until the slower one has delivered a window of some megabytes.
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

// passing reports whether a packet may have failed to take the session because the flow has no gap.
func passing(why lane.Reason) bool {
	switch why {
	case lane.None, lane.Unread, lane.OutOfOrder, lane.NotNext, lane.Unacknowledged, lane.InFlight, lane.Device, lane.Interrupted:
		return true
	}
	return false
}

// goOn looks at a gap that is being made, and reports whether it is over.
func (g *laneGaps) goOn(m *gapInMaking) (over bool) {
	c := m.session
	if !g.is(c, shut) && !g.is(c, opened) || c.conn.session.Obstacle() != driver.NoObstacle { // it has left, or stays
		c.open()
		return true
	}
	late, unused := g.worker.loop.Now()-m.since >= int64(gapMost), c.is(opened) && c.back == m.back
	switch {
	case unused && late: // the session is no longer a flow
		c.setGap(noGap)
		return true
	case unused: // no packet has come yet
	case late, c.is(opened) && m.tries == gapTries:
		g.worker.group.stays.Add(int(stayFlow))
		c.open()
		c.rest()
		return true
	case c.is(opened): // a packet has come, but has not taken the session
		return !m.shut()
	case !c.is(armed): // the mark of its source may have been lowered
		c.conn.driven().Recall()
	case c.delivered():
		m.tries, m.back = m.tries+1, c.back
		c.open()
		c.setGap(opened)
	}
	return false
}

func (m *gapInMaking) shut() bool {
	c := m.session
	if c.setGap(noGap); !c.session.Shut(m.sides[0], m.sides[1]) {
		return false
	}
	c.setGap(shut)
	return true
}

// delivered reports whether the peers have acknowledged all bytes that the sockets have sent, and accept more. A source is
// shown no larger window than the sink's.
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
		_ = c.session.Open(a, b) // on an error the endpoints see their windows later
	}
	c.setGap(noGap)
}
