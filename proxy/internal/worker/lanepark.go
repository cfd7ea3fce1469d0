package worker

import (
	"cmp"
	"errors"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/relay"
)

const (
	// parkAfter is for how long a session has been out of user space, or has been a relay.Driven again, before it is parked.
	parkAfter = time.Second
	// parkBatch is how many are parked in one turn.
	parkBatch = 256
	// parkAhead is how long before a timeout of it a session is a relay.Driven again: it ends in time by the timer there. Sessions that have none
	// to wait for until parkLeast are parked.
	parkAhead = 3 * time.Second
	parkLeast = 2 * parkAhead
	// parkLooks is how often timeouts of parked sessions are looked at, at most.
	parkLooks = time.Second
	// never is the due of a session without a timeout.
	never = math.MaxInt32
)

// lanePark parks the sessions of a loop that have left user space: they keep their places, and give their relay.Drivens back to the pool. The loop finds
// those with timeouts by a pass over all its clients, some in each turn. Without timeouts there is none.
type lanePark struct {
	worker *worker
	list   []laneParting // in the order in which they are due
	timer  loop.Timer
	looks  loop.Timer
	bound  int   // how many are parked that have timeouts
	first  int32 // none of those that the present pass has been by is due before, see conn.due
	at     int   // where the present pass is; negative: there is none
	goOn   func()
}

// A laneParting is a session that is parked at a time of the loop's clock, if it may be then.
type laneParting struct {
	session *laneSession
	due     int64
}

func newLanePark(w *worker) *lanePark {
	p := &lanePark{worker: w, first: never, at: -1}
	p.goOn = p.look
	return p
}

// due is a time of the loop's clock in seconds before which no timeout of a parked session can have passed.
func (n *conn) due() int32 { return n.number }

// second is a time of the loop's clock in seconds.
func second(at int64) int32 {
	return int32(min(max(at/int64(time.Second), math.MinInt32), never-1))
}

// later has a session be parked after a while.
func (p *lanePark) later(c *laneSession) {
	l := p.worker.loop
	p.list = append(p.list, laneParting{c, l.Now() + int64(parkAfter)})
	if !p.timer.Armed() {
		l.Arm(&p.timer, p, parkAfter)
	}
}

// Expired implements [loop.Expirer].
func (p *lanePark) Expired(t *loop.Timer) {
	if t == &p.looks {
		if p.at < 0 {
			p.at, p.first = 0, never
			p.look()
		}
		return
	}
	n, now := 0, p.worker.loop.Now()
	for ; n < min(len(p.list), parkBatch) && p.list[n].due <= now; n++ {
		p.park(p.list[n].session)
	}
	rest := p.list[n:]
	if len(rest) == 0 {
		p.list = nil
		return
	}
	p.list = rest
	p.worker.loop.Arm(&p.timer, p, max(time.Duration(rest[0].due-now), 0))
}

// park parks a session that has left user space and is going to stay there, as far as is known.
func (p *lanePark) park(c *laneSession) {
	w, n := p.worker, c.conn
	if n.lane != c || n.parked() || !c.away() || !n.session.Park(&c.parked) {
		return
	}
	left, has := c.parked.Timeout(w.driver, c)
	if has && left < parkLeast {
		w.driver.Unpark(n.session, &c.parked, n, c)
		if longest(n.session.Limits()) {
			p.later(c)
		}
		return
	}
	w.places.giveSession(n)
	n.number = never
	if has {
		p.bound++
		p.note(n, left)
	}
}

// resume looks after a session that is parked from the begin.
func (p *lanePark) resume(n *conn) {
	left, has := n.lane.parked.Timeout(p.worker.driver, n.lane)
	switch {
	case has && left < parkLeast:
		p.worker.unpark(n)
	case has:
		p.bound++
		p.note(n, left)
	}
}

// longest reports whether a session with such limits may have no timeout for long enough to be parked, once bytes have moved.
func longest(l *relay.Limits) bool {
	return (l.IdleTimeout <= 0 || l.IdleTimeout > parkLeast) && (l.HalfCloseTimeout <= 0 || l.HalfCloseTimeout > parkLeast)
}

// note notes the next timeout of a parked session.
func (p *lanePark) note(n *conn, left time.Duration) {
	w := p.worker
	n.number = second(w.loop.Now() + int64(min(left, math.MaxInt32*time.Second)))
	if n.number < p.first {
		p.first = n.number
		if p.at < 0 {
			p.await()
		}
	}
}

// await has the next pass begin in time for the first timeout.
func (p *lanePark) await() {
	l := p.worker.loop
	if p.bound == 0 {
		p.first = never
		l.Disarm(&p.looks)
		return
	}
	wait := time.Duration(p.first)*time.Second - time.Duration(l.Now()) - parkAhead
	l.Arm(&p.looks, p, max(wait, parkLooks))
}

// look goes on with the pass for as long as a turn may take.
func (p *lanePark) look() {
	w, began := p.worker, time.Now()
	near := second(w.loop.Now() + int64(parkAhead+parkLooks))
	for looks := 0; p.bound > 0; looks++ {
		slab := p.at / slabSize
		if slab >= len(w.slabs) {
			break
		}
		if looks%64 == 63 && time.Since(began) > turnTime {
			w.post(p.goOn)
			return
		}
		n := &w.slabs[slab][p.at%slabSize]
		p.at++
		switch {
		case n.state != joined || !n.parked() || n.due() == never:
		case n.due() > near:
			p.first = min(p.first, n.due())
		default:
			p.near(n)
		}
	}
	p.at = -1
	p.await()
}

// near looks at a session that has a timeout soon, if nothing has moved since it was looked at last.
func (p *lanePark) near(n *conn) {
	if left, has := n.lane.parked.Timeout(p.worker.driver, n.lane); has && left > parkLeast {
		p.note(n, left)
		return
	}
	p.worker.unpark(n)
}

// unpark turns a parked session back into a relay.Driven.
func (w *worker) unpark(n *conn) {
	p, c := w.lanes.park, n.lane
	if n.due() != never {
		p.bound--
	}
	w.places.takeSession(n)
	w.driver.Unpark(n.session, &c.parked, n, c)
	p.later(c)
}

// An Adoption is where sessions belong that a process before this one has had.
type Adoption interface {
	// Begin takes the places of one session, also beyond limits, and returns its limits and its admission token. It is called on the
	// goroutine of a loop, and must not wait. The places are given back as those of other sessions, by [Binding] and [Admitter].
	Begin(from source.Source, now int64) (*relay.Limits, uint64)
}

// Adopt has a loop go on with a session in the lane that a process before this one has had, as with its own that have left user space and are parked: it came in at a
// socket, which is not closed yet, and has its service. r is all that is known of it, and the group's from now on. One that has ended is left alone. It may be called at any
// time by any goroutine but those of the loops.
func (g *Group) Adopt(in *lane.Lane, one *lane.Session, r *record.Record, at *Listening, service *Service, to Adoption) {
	w := slices.MinFunc(g.workers, func(a, b *worker) int { return cmp.Compare(a.load.Load(), b.load.Load()) })
	w.load.Add(1)
	at.refs.Add(1)
	w.post(func() { w.adopt(in, one, r, client{fd: -1, socket: at, service: service}, to) })
}

// adopt is Adopt on the loop.
func (w *worker) adopt(in *lane.Lane, one *lane.Session, r *record.Record, as client, to Adoption) {
	s, n := w.servingOf(as), w.take(as)
	c := &laneSession{conn: n, facts: hasLeft}
	n.ref = &s.listenerRef
	if err := in.Own(one, &c.session, (*laneOwner)(w)); err != nil { // it has ended
		w.free(n)
		w.load.Add(-1)
		as.socket.unref()
		return
	}
	w.lanes.begin(w)
	n.state, n.lane, n.number = joined, c, never
	n.set(adopted, true)
	w.active++
	s.clients++
	w.group.gate.adopt()
	now, age := w.loop.Now(), c.session.Age()
	limits, token := to.Begin(r.Client, now)
	n.admissionToken = token
	w.driver.Adopt(&c.parked, limits, c, age, c.session.Idle())
	w.windows.begin(n)
	w.uncount(n)
	if id := w.nextID(); w.group.cfg.Host.Records(as.socket, id) {
		r.ID, r.Accepted, r.Joined = id, now-int64(age), now-int64(age)
		n.ref = w.pack(r, s)
	}
	w.lanes.park.resume(n)
	if w.canceled != nil {
		n.driven().Cut(w.canceled)
	}
}

// uncount takes off the counters of this process the bytes that a session has moved in the one before.
func (w *worker) uncount(n *conn) {
	r := n.result()
	before := relay.Result{AToB: relay.Flow{Carried: -r.AToB.Carried}, BToA: relay.Flow{Carried: -r.BToA.Carried}}
	w.ended.Add(before)
	w.scanPast(n, before)
	if b := n.binding(); b != nil {
		w.deferred.ended(b, &before)
	}
}

const (
	// laneGap is how long a session that comes back waits for a moment at which nothing of it is on the way. Without one a
	// sender waits for its retransmission timer.
	laneGap = 200 * time.Millisecond
	// laneReturns is how many come back at a time: each has a thread wait for the kernel's grace period.
	laneReturns = 64
)

// CutLane ends the sessions that match and have left user space: both sides are reset, and their results have the
// cause. Those that match and are about to leave stay. It returns how many were cut.
func (g *Group) CutLane(match Match, cause error) int {
	counts := make([]int, len(g.workers)) // each its worker's, until that has been scanned
	cut := 0
	for _, t := range g.scanLane(match, func(w *worker, n *conn) {
		counts[w.index]++
		n.driven().Cut(cause)
	}) {
		cut += counts[t.worker.index]
	}
	return cut
}

// scanLane calls visit for sessions that match and have left user space. Those that are about to leave stay, and are asked later.
func (g *Group) scanLane(match Match, visit func(w *worker, n *conn)) []scanned {
	return g.scanClients(func(w *worker, n *conn) {
		switch {
		case n.state != joined || n.lane == nil || !match(n.ref.serving.socket, n.binding()):
		case w.withdraw(n):
			w.askLater(n)
		default:
			visit(w, n)
		}
	})
}

// ReturnLane has the sessions that match and have left user space go on there again, and returns how many do, and how many could
// not, so that both sides were reset: their results have the reason. Those that end meanwhile are neither. One that has
// come back leaves again as others do. It may be called at any time by any goroutine but those of the loops.
func (g *Group) ReturnLane(match Match) (returned, reset int) {
	lists := make([][]*laneSession, len(g.workers)) // each its worker's, until that has been scanned
	var back, failed atomic.Int64
	var all sync.WaitGroup
	for _, t := range g.scanLane(match, func(w *worker, n *conn) {
		if c := n.lane; !c.is(coming) {
			c.set(coming, true)
			lists[w.index] = append(lists[w.index], c)
		}
	}) {
		for _, c := range lists[t.worker.index] {
			g.returning <- struct{}{}
			all.Go(func() {
				defer func() { <-g.returning }()
				switch here, err := c.comeBack(t.worker); {
				case here:
					back.Add(1)
				case err != nil && !errors.Is(err, net.ErrClosed):
					failed.Add(1)
				}
			})
		}
	}
	all.Wait()
	return int(back.Load()), int(failed.Load())
}

// comeBack has a session go on in user space, and reports whether it does. It waits. An error that wraps net.ErrClosed is
// that of one that has ended; with others both sides were reset.
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
	arrived := make(chan error, 1)
	if err := w.loop.Post(func() { arrived <- c.arrive(w, a, b, ended) }); err != nil {
		c.discard(a, b)
		return false, err
	}
	select {
	case err = <-arrived:
	case <-w.group.ended:
		select {
		case err = <-arrived:
		default:
			err = ErrEnding
		}
	}
	return err == nil, err
}

// discard ends a session whose new sockets are of no use, with a reset of both.
func (c *laneSession) discard(a, b int) {
	for _, fd := range [2]int{a, b} {
		_ = sys.AbortOnClose(fd)
		closeSocket(fd)
	}
	c.session.Reset() // Ended is called
}

// arrive is the second half of comeBack, on the loop.
func (c *laneSession) arrive(w *worker, a, b int, ended [2]bool) error {
	n := c.conn
	c.set(coming, false)
	if n.lane != c { // it was cut meanwhile
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
		w.loop.Drop(ida) // it is being reset
		w.loop.Drop(idb)
		c.discard(a, b)
		return net.ErrClosed
	}
	return nil
}

// AskLane asks again sessions that match, and have not left user space, whether they may.
func (g *Group) AskLane(match Match) {
	for _, w := range g.workers {
		w.post(func() { w.askAgain(match) })
	}
}

func (w *worker) askAgain(match Match) {
	w.beginClientScan(&clientScan{over: make(chan scanned, 1), visit: func(w *worker, n *conn) {
		if t := &w.lanes; t.lane != nil && n.state == joined && !n.carried() && match(n.ref.serving.socket, n.binding()) {
			t.first.add(n, w.began(n), t.after)
		}
	}})
}

// askLater has a session be asked again.
func (w *worker) askLater(n *conn) {
	if t := &w.lanes; t.lane != nil {
		t.again.add(n, w.began(n), laneRetry*t.after)
	}
}

// began is when the session of a client began, by the loop's clock.
func (w *worker) began(n *conn) int64 { return w.loop.Now() - int64(n.result().Duration) }
