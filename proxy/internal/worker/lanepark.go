package worker

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/relay"
)

const (
	// parkAfter is how long a session must have been out of user space, or unparked, before it is parked.
	parkAfter = time.Second
	// parkBatch is how many sessions are parked in one turn.
	parkBatch = 256
	// A parked session is unparked parkAhead before its timeout, so that the timer of its relay.Driven ends it in time.
	// Only sessions without a timeout within parkLeast are parked.
	parkAhead = 3 * time.Second
	parkLeast = 2 * parkAhead
	// parkLooks is the shortest interval between looks at the timeouts of parked sessions.
	parkLooks = time.Second
	// never is the due of a session without a timeout.
	never = math.MaxInt32
)

// lanePark parks the sessions of a loop that have left user space: they keep their places, and give their relay.Drivens
// back to the pool. The loop finds sessions near their timeout by a pass over all its clients, some in each turn.
// Without timeouts there is no pass.
type lanePark struct {
	worker *worker
	list   []laneParting // in the order in which they are due
	timer  loop.Timer
	looks  loop.Timer
	bound  int   // number of parked sessions with timeouts
	first  int32 // earliest due seen by the present pass, see conn.due
	passes bool  // a pass is under way
}

// A laneParting is a session to be parked at a time of the loop's clock, if it may be parked then.
type laneParting struct {
	session *laneSession
	due     int64
}

// due returns a time in seconds of the loop's clock, before which a parked session has no timeout.
func (n *conn) due() int32 { return n.number }

func second(at int64) int32 {
	return int32(min(max(at/int64(time.Second), math.MinInt32), never-1))
}

func (p *lanePark) later(c *laneSession) {
	l := p.worker.loop
	p.list = append(p.list, laneParting{c, l.Now() + int64(parkAfter)})
	if !p.timer.Armed() {
		l.Arm(&p.timer, p, parkAfter)
	}
}

func (p *lanePark) Expired(t *loop.Timer) {
	if t == &p.looks {
		if !p.passes {
			p.passes, p.first = true, never
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

// resume looks after an adopted session, which begins parked.
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

// longest reports whether a session with these limits can be parked at all: its timeouts are long enough once bytes have
// moved.
func longest(l *relay.Limits) bool {
	return (l.IdleTimeout <= 0 || l.IdleTimeout > parkLeast) && (l.HalfCloseTimeout <= 0 || l.HalfCloseTimeout > parkLeast)
}

func (p *lanePark) note(n *conn, left time.Duration) {
	w := p.worker
	n.number = second(w.loop.Now() + int64(min(left, math.MaxInt32*time.Second)))
	if n.number < p.first {
		p.first = n.number
		if !p.passes {
			p.await()
		}
	}
}

// await begins the next pass in time for the first timeout.
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

func (p *lanePark) look() {
	p.worker.scanClients(func(w *worker, n *conn) {
		switch {
		case n.state != joined || !n.parked() || n.due() == never:
		case n.due() > second(w.loop.Now()+int64(parkAhead+parkLooks)):
			p.first = min(p.first, n.due())
		default:
			p.near(n)
		}
	}, func(time.Duration) {
		p.passes = false
		p.await()
	})
}

// near unparks a session that has a timeout soon, unless bytes have moved since the last look.
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

// An Adoption is the listener and the endpoint of sessions from an earlier process.
type Adoption interface {
	// Begin takes the places of one session, even beyond limits, and returns its limits and its admission token. Loops call
	// it on their goroutines, and it must not wait. [Binding] and [Admitter] give the places back at the end.
	Begin(from source.Source, now int64) (*relay.Limits, uint64)
	// Bind takes the place at the endpoint for a session that began under another Adoption, before its endpoint was known.
	Bind() *relay.Limits
}

// Adopt gives a loop an earlier process's session in the lane; afterwards it is like a session that the loop has parked
// itself. It counts as a client of a socket that is not closed yet, and has the service of this socket. m holds all that is
// known of the session, and belongs to the group afterwards. A session that has ended is left alone. Any goroutine but the
// loops' may call it.
func (g *Group) Adopt(in *lane.Lane, one *lane.Session, m *record.Image, at *Listening, service *Service, to Adoption) {
	w := slices.MinFunc(g.workers, byLoad)
	w.load.Add(1)
	at.refs.Add(1)
	w.post(func() { w.adopt(in, one, m, at, service, to) })
}

func (w *worker) adopt(in *lane.Lane, one *lane.Session, m *record.Image, at *Listening, service *Service, to Adoption) {
	s, n := w.servingOf(at, service), w.take()
	c := &laneSession{conn: n, flags: flags[laneFacts]{hasLeft}}
	n.ref = &s.listenerRef
	r := &m.Record
	if err := in.Own(one, &c.session, (*laneOwner)(w), [2]uint64{uint64(r.Result.AToB.Carried), uint64(r.Result.BToA.Carried)}); err != nil { // the session has ended
		w.free(n)
		w.load.Add(-1)
		at.Release()
		return
	}
	w.lanes.begin(w)
	n.state, n.lane, n.number = joined, c, never
	n.set(adopted|isTCP, true) // the lane has only TCP
	w.counts.Active++
	s.clients++
	w.group.gate.adopt()
	now, age := w.loop.Now(), c.session.Age()
	limits, token := to.Begin(r.From(), now)
	n.admissionToken = token
	w.driver.Adopt(&c.parked, limits, c, age, c.session.Idle(), &r.Result)
	w.windows.begin(n)
	before := negative(n.result()) // bytes of the earlier process, which do not count in this one
	w.ended.Add(before)
	w.scanPast(n, before)
	w.deferred.ended(n.binding(), &before)
	w.recordAdopted(n, m, now-int64(age))
	w.lanes.park.resume(n)
	if w.canceled != nil {
		n.driven().Cut(w.canceled)
	}
}

// recordAdopted keeps the record of a session that was joined at a time. If the record's ID is known, the session was
// traced or logged before, and is traced.
func (w *worker) recordAdopted(n *conn, m *record.Image, joined int64) {
	s, r, host := n.ref.serving, &m.Record, w.group.cfg.Host
	if r.ID.IsZero() {
		r.ID = w.nextID()
	} else {
		r.Sampler = host.Traces(r.ID)
	}
	switch {
	case r.Sampler != 0 || host.Records(s.service.Name, r.ID):
		m.JoinedAt(joined)
		n.ref = w.pack(r, s)
	case r.Source.IsValid():
		w.sources[n] = r.Source
	}
}

func negative(r relay.Result) relay.Result {
	of := func(f *relay.Flow) relay.Flow {
		return relay.Flow{Spliced: -f.Spliced, Copied: -f.Copied, Carried: -f.Carried}
	}
	return relay.Result{AToB: of(&r.AToB), BToA: of(&r.BToA)}
}

// Rebind gives adopted sessions in the lane to the Adoption that find returns for their limits and their endpoint's
// address; nil leaves a session as it is. The loops call find, perhaps after Rebind has returned. It must not wait.
func (g *Group) Rebind(find func(of *relay.Limits, endpoint netip.AddrPort) Adoption) {
	for _, w := range g.workers {
		w.post(func() {
			w.scanClients(func(w *worker, n *conn) {
				if n.state != joined || !n.is(adopted) {
					return
				}
				if _, endpoint, _, known := w.laneAddresses(n); known {
					if to := find(n.limits(), endpoint); to != nil {
						w.rebind(n.lane, n.limits(), to)
					}
				}
			}, nil)
		})
	}
}

// rebind assigns a session with these limits to another endpoint. Bytes that it moved before do
// not count there. It waits while bytes are being added up, because otherwise they would count
// twice.
func (w *worker) rebind(c *laneSession, of *relay.Limits, to Adoption) {
	if w.deferred != nil {
		w.rebinds = append(w.rebinds, func() { w.onLoop(c, func() { w.rebind(c, of, to) }) })
		return
	}
	n := c.conn
	if !n.carried() || n.limits() != of {
		return
	}
	moved := n.result()
	before := negative(moved)
	if b := n.binding(); b != nil {
		w.deferred.ended(b, &moved)
	}
	n.driven().Rebind(to.Bind())
	w.deferred.ended(n.binding(), &before)
}
