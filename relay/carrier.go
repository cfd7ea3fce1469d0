package relay

import (
	"maps"
	"math"
	"syscall"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay/driver"
)

// An offer is a session that a Carrier may take, or has taken.
type offer struct {
	carrier driver.Carrier
	cause   error
	moved   uint32 // low bits of what the Carrier had moved at the last look
	armed   bool
	reason  Reason // why a session that has left is being reset, with cause; otherwise ReasonNone
}

// offers holds the offers of a driver's sessions that are not parked.
type offers struct {
	of   map[*Driven]*offer // nil before the first offer
	most int                // the most offers since the map was made: a map does not shrink
}

const (
	// A map that never had more than fewOffers is left as it is.
	fewOffers = 4096
	// Once at most fewOffers/offersLeft offers are left, a larger map is replaced by a new one.
	offersLeft = 4
)

func (t *offers) note(s *Driven, o *offer) {
	if t.of == nil {
		t.of = make(map[*Driven]*offer)
	}
	t.of[s] = o
	t.most = max(t.most, len(t.of))
}

func (t *offers) forget(s *Driven) {
	delete(t.of, s)
	if left := len(t.of); t.most > fewOffers && left <= fewOffers/offersLeft {
		of := make(map[*Driven]*offer, left)
		maps.Copy(of, t.of)
		t.of, t.most = of, left
	}
}

// offer returns the offer of a session, or of the parked session that is being viewed.
func (s *Driven) offer() *offer {
	if v := s.drv.viewed; v != nil && s == &v.driven {
		return &v.offer
	}
	return s.drv.offers.of[s]
}

// Obstacle returns the first reason why no [driver.Carrier] may have the session. Call it between Start and the
// end, on the loop's goroutine.
func (s *Driven) Obstacle() driver.Obstacle {
	x, y := s.layers()
	switch {
	case s.drv == nil, s.is(over | half | toEnd), s.outlived():
		return driver.ObstacleEnd
	case x != nil || y != nil:
		return driver.ObstacleLayer
	case !s.a.is(tcp) || !s.b.is(tcp):
		return driver.ObstacleSocket
	case s.limits.paces():
		return driver.ObstacleBandwidth
	case s.ab.mode == rewriting || s.ba.mode == rewriting:
		return driver.ObstacleRewrite
	case (s.ab.state|s.ba.state)&(mirrored|observed) != 0:
		return driver.ObstacleMirror
	}
	return driver.NoObstacle
}

// Heard reports whether bytes of the second side have moved. It helps to decide about [Driven.Offer].
func (s *Driven) Heard() bool { return s.ba.moves != 0 }

// Moves returns how many reads and writes have moved bytes, in both directions. It helps to decide about
// [Driven.Offer]. The number may wrap. A session that was [Parked] continues from at most 255 for each
// direction.
func (s *Driven) Moves() uint32 { return s.ab.moves + s.ba.moves }

// Offer lets c take the session whenever it holds no byte and waits for both sides, until [Driven.Withdraw]. It
// does nothing if the session has a [driver.Obstacle] or is already offered. Call it on the loop's goroutine, but
// not within a callback of a session.
func (s *Driven) Offer(c driver.Carrier) {
	if s.is(offered) || s.Obstacle() != driver.NoObstacle {
		return
	}
	s.drv.offers.note(s, &offer{carrier: c, moved: uint32(s.ab.carried() + s.ba.carried())})
	s.state |= offered
	s.lend()
}

// Withdraw ends the offer and returns true. It returns false if the Carrier already has the session.
func (s *Driven) Withdraw() bool {
	if !s.is(offered) {
		return true
	}
	here := s.regain()
	if here {
		s.forgetOffer()
	}
	return here
}

// Recall reports whether the session is still with the loop. Call it before you touch a socket. It does not end
// the offer.
func (s *Driven) Recall() bool {
	if !s.is(offered) {
		return true
	}
	here := s.regain()
	if here {
		s.lend()
	}
	return here
}

// Rebind gives a session that a [driver.Carrier] has other limits, which must equal the present ones except for
// Of. Call it on the loop's goroutine.
func (s *Driven) Rebind(to *Limits) {
	if s.is(carried) {
		s.limits = to
	}
}

// Carried reports whether a [driver.Carrier] has the session.
func (s *Driven) Carried() bool { return s.is(carried) }

func (s *Driven) forgetOffer() {
	if s.is(offered) {
		s.drv.offers.forget(s)
		s.state &^= offered | carried
	}
}

// lend arms the Carrier of an offered session that rests.
func (s *Driven) lend() {
	if s.is(offered) && !s.is(carried) && s.rests() {
		if o := s.offer(); !o.armed {
			o.armed = true
			o.carrier.Arm()
		}
	}
}

// rests reports whether nothing is held, not even by a gate, and the session waits for both sides.
func (s *Driven) rests() bool {
	const stirred = readable | peerClosed | drained | urgent | gone | raised
	return s.state&^offered == 0 && (s.a.state|s.b.state)&stirred == 0 && (s.ab.state|s.ba.state)&limited == 0 && s.ab.residue() == 0 && s.ba.residue() == 0
}

// regain takes an offered session back before a socket is touched, and reports whether the session is with the
// loop.
func (s *Driven) regain() bool {
	o := s.offer()
	switch {
	case s.is(carried):
		return false
	case !o.armed:
		return true
	}
	o.armed = false
	if o.carrier.Disarm() {
		return true
	}
	s.state |= carried
	s.drv.loop.Drop(s.a.id)
	s.drv.loop.Drop(s.b.id)
	a, b := s.Descriptors()
	s.a.fd, s.b.fd = -1, -1
	o.carrier.Leave(a, b)
	return false
}

// refresh sets active to the time of the last packet if the Carrier has delivered bytes since the last look.
func (s *Driven) refresh() {
	o := s.offer()
	ab, ba, idle := o.carrier.Progress()
	if moved := uint32(ab + ba); moved != o.moved {
		o.moved = moved
		s.active = max(s.active, s.drv.loop.Now()-int64(idle))
		s.drv.viewed.keep(s, moved)
	}
}

// resetCarried does what settle does, for a session that has left. The first cause counts.
func (s *Driven) resetCarried(reason Reason, cause error) {
	if s.is(toEnd) {
		s.drv.forgetEnd(s)
		s.state &^= toEnd
	}
	o := s.offer()
	if o.reason != ReasonNone {
		return
	}
	o.reason, o.cause = reason, cause
	s.drv.loop.Disarm(&s.timer)
	o.carrier.Reset()
}

// Finish ends a session that a [driver.Carrier] has. reset says that at least one side was reset; otherwise
// both sides have ended. by is the side that sent the reset or ended first, or SideNone if that is unknown. The
// owner is notified before Finish returns. Call it once, on the loop's goroutine.
func (s *Driven) Finish(reset bool, by Side) {
	if !s.is(carried) {
		return
	}
	o := s.offer()
	reason, cause := o.reason, o.cause
	switch {
	case !reset:
		reason, cause = ReasonEOF, nil
		s.endedFirst(by)
	case reason == ReasonNone:
		reason, cause = ReasonReset, s.failedAt(by, syscall.ECONNRESET)
	}
	s.finish(reason, cause)
}

// FinishError is Finish for a session that was reset because the connection of a side failed with another
// error, such as syscall.ETIMEDOUT. The result is the same as if a read of that side had failed with it.
func (s *Driven) FinishError(at Side, cause syscall.Errno) {
	if !s.is(carried) {
		return
	}
	o := s.offer()
	if o.reason != ReasonNone {
		s.finish(o.reason, o.cause)
		return
	}
	s.finish(reasonOf(cause), s.failedAt(at, cause))
}

// finish ends a session that its Carrier has.
func (s *Driven) finish(reason Reason, cause error) {
	drv, o := s.drv, s.offer()
	ab, ba, _ := o.carrier.Progress()
	s.refresh()
	s.forgetOffer()
	s.ab.rareState().carried, s.ba.rareState().carried = ab, ba
	s.ab.finished(reason)
	s.ba.finished(reason)
	s.reason, s.state, s.active = reason, s.state|over, drv.loop.Now()
	drv.loop.Disarm(&s.timer)
	drv.sessions--
	s.tell(s.Result(), cause)
	if s.is(over) {
		s.limits = &drv.relay.limits
	}
}

// endedFirst notes the side that has ended first, unless one had ended before the session left.
func (s *Driven) endedFirst(by Side) {
	switch {
	case s.a.is(lastWay) || s.b.is(lastWay):
	case by != SideNone:
		s.socketAt(by).set(lastWay, true)
	}
}

// failedAt notes the side with the failed connection, and returns its error.
func (s *Driven) failedAt(by Side, cause syscall.Errno) error {
	d, p := &s.ab, &s.a
	if by == SideB {
		d, p = &s.ba, &s.b
	}
	if by != SideNone {
		d.rareState().failure = &failure{side: sideSource, op: "read", err: cause}
	}
	return opErrorOn(p, "read", cause)
}

// Return brings a session back from its [driver.Carrier] to the loop, with new sockets, which s owns afterwards.
// The sockets are registered with the loop, and have no Mirror, Transform, Gate or Layer. ended says whether the
// direction from a, or from b, has ended meanwhile; at most one may have. The Carrier has passed this end on:
// Return does not, and reads nothing more from that side. last is the side whose bytes came to the Carrier last,
// or SideNone. The offer ends; call [Driven.Offer] again. Return reports false if no Carrier has the session or if
// it is being reset; then the sockets still belong to the caller. Call it on the loop's goroutine, but not within
// a callback of a session.
func (s *Driven) Return(a, b Socket, ended [2]bool, last Side) bool {
	if !s.is(carried) || s.offer().reason != ReasonNone {
		return false
	}
	ab, ba, _ := s.offer().carrier.Progress()
	s.refresh()
	s.forgetOffer()
	if s.limits.LifetimeJitter > 0 {
		s.ab.rareState().seed = s.seed()
	}
	s.returned(&s.ab, &s.a, &a, ab)
	s.returned(&s.ba, &s.b, &b, ba)
	if last != SideNone {
		s.b.set(saidLast, last == SideB)
	}
	s.drv.loop.Hand(a.ID, s)
	s.drv.loop.Hand(b.ID, s)
	for i, d := range [2]*direction{&s.ab, &s.ba} {
		if ended[i] {
			s.halfEnded(s.sideOf(d))
			s.socketOf(d).state |= peerClosed | drained
			d.set(eofSeen, true)
			d.finished(ReasonEOF)
		}
	}
	s.timeout()
	return true
}

// returned continues a direction that now reads from another socket, after the Carrier has delivered carried of
// its bytes.
func (s *Driven) returned(d *direction, p *loopSocket, by *Socket, carried int64) {
	const lasting = lastWay | said | saidLast | asking | answered
	was := *p
	*p = newSocket(*by)
	p.state |= was.state&lasting | wrote
	p.asked = was.asked
	if carried > d.carried() {
		d.rareState().carried = carried
		d.moves++
		p.state |= said
	}
}

// HalfEnded notes that one direction has ended while a [driver.Carrier] has the session. From now on the session's
// timeout is [Limits.HalfCloseTimeout]. It does nothing if a direction had ended before, or if no Carrier has the
// session. Call it on the loop's goroutine.
func (s *Driven) HalfEnded(source Side) {
	if s.is(carried) && !s.is(half) {
		s.halfEnded(source)
		s.refresh()
		s.timeout()
	}
}

func (s *Driven) halfEnded(source Side) {
	if s.is(half) {
		return
	}
	s.state |= half
	s.socketAt(source).set(lastWay, true)
	if o, ok := s.owner.(Observer); ok {
		o.HalfClosed(s, source)
	}
}

// A Parked holds the state of a session that a [driver.Carrier] has, until the session ends or comes back, in a
// quarter of the memory of a [Driven]. It is made to be part of a larger struct. It belongs to the loop of the
// [Driver] that had the session; the Driver still counts the session. It has no timer: its owner asks
// [Parked.Timeout], and calls [Driver.Unpark] in time. The zero Parked is no session.
type Parked struct {
	limits  *Limits
	rest    *parkedRest // nil for most sessions
	started int64
	active  int64
	id      loop.ID // of socket a when the session left: the seed of its lifetime, unless rest has one
	copied  [2]uint32
	moved   uint32 // as in offer
	waited  [smallWaitings]uint16
	pauses  [2]uint16
	asked   uint16   // of socket a
	moves   [2]uint8 // 255: or more
	state   parkedState
}

// A parkedState holds flags of a Parked.
type parkedState uint8

const (
	parkedHalf     parkedState = 1 << iota
	parkedLastA                // lastWay of a
	parkedLastB                // lastWay of b
	parkedSaidA                // said of a
	parkedSaidB                // said of b
	parkedSaidLast             // saidLast of b
	parkedAsking               // asking of a
	parkedAnswered             // answered of b
)

// parkedOf lists the flags of the two sockets that a Parked keeps, and where a Driven has them; see
// [Driven.Return].
var parkedOf = [...]struct {
	state  parkedState
	of     Side
	socket socketState
}{
	{parkedLastA, SideA, lastWay},
	{parkedLastB, SideB, lastWay},
	{parkedSaidA, SideA, said},
	{parkedSaidB, SideB, said},
	{parkedSaidLast, SideB, saidLast},
	{parkedAsking, SideA, asking},
	{parkedAnswered, SideB, answered},
}

// A parkedRest holds counters and engines that do not fit into a Parked. Only sessions that have spliced, moved
// gigabytes, waited long or come back need one.
type parkedRest struct {
	rare            [2]*rareState
	spliced, copied [2]int64
	waited          [smallWaitings]uint32
	pauses          [2]uint32
	engines         [2]engineState
}

// An engineState is how a direction chooses its engine.
type engineState struct {
	state     directionState
	streak    uint16
	mode      mode
	pipeSize  pipeSize
	growScore uint8
}

func (d *direction) engine() engineState {
	return engineState{d.state, d.streak, d.mode, d.pipeSize, d.growScore}
}

func (d *direction) setEngine(e engineState) {
	d.state, d.streak, d.mode, d.pipeSize, d.growScore = e.state, e.streak, e.mode, e.pipeSize, e.growScore
}

// Park moves the session into p, and reports whether it did. It refuses if no [driver.Carrier] has the session,
// while the session is being reset, or while [Limits.FirstByte] may still end it. Afterwards s may be used for
// another session. Call it on the loop's goroutine, but not within a callback of a session.
func (s *Driven) Park(p *Parked) bool {
	if !s.is(carried) || s.state&^(half|offered|carried) != 0 || s.drv.stepping {
		return false
	}
	o, first := s.offer(), s.limits.FirstByte
	if o.reason != ReasonNone || first > 0 && (!s.ba.answered() || s.limits.Answered != nil && s.drv.loop.Now()-s.started <= int64(first)) {
		return false
	}
	*p = Parked{
		limits: s.limits, started: s.started, active: s.active, id: s.a.id, moved: o.moved, asked: s.a.asked,
		moves: [2]uint8{uint8(min(s.ab.moves, math.MaxUint8)), uint8(min(s.ba.moves, math.MaxUint8))},
	}
	if s.is(half) {
		p.state = parkedHalf
	}
	for _, f := range parkedOf {
		if at := s.socketAt(f.of); at.is(f.socket) {
			p.state |= f.state
		}
	}
	if !p.fits(s) {
		p.rest = restOf(s)
	}
	s.drv.loop.Disarm(&s.timer)
	s.drv.offers.forget(s)
	*s = Driven{}
	return true
}

func (s *Driven) socketAt(side Side) *loopSocket {
	if side == SideB {
		return &s.b
	}
	return &s.a
}

// fits fills in the counters of p, and reports whether they all fit.
func (p *Parked) fits(s *Driven) bool {
	for i, n := range s.waited {
		if p.waited[i] = uint16(n); n > math.MaxUint16 {
			return false
		}
	}
	for i, d := range [2]*direction{&s.ab, &s.ba} {
		n := d.copied.Load()
		p.copied[i], p.pauses[i] = uint32(n), uint16(s.pauses[i])
		if d.rare.Load() != nil || d.engine() != s.drv.plain || d.spliced.Load() != 0 || n > math.MaxUint32 || s.pauses[i] > math.MaxUint16 {
			return false
		}
	}
	return true
}

func restOf(s *Driven) *parkedRest {
	r := &parkedRest{waited: s.waited, pauses: s.pauses}
	for i, d := range [2]*direction{&s.ab, &s.ba} {
		r.rare[i], r.spliced[i], r.copied[i], r.engines[i] = d.rare.Load(), d.spliced.Load(), d.copied.Load(), d.engine()
	}
	return r
}

// restore copies the session of p to s, without owner, offer and timer.
func (s *Driven) restore(d *Driver, p *Parked) {
	*s = Driven{
		drv: d, limits: p.limits, started: p.started, active: p.active, state: offered | carried,
		a: loopSocket{id: p.id, fd: -1, state: tcp, asked: p.asked}, b: loopSocket{fd: -1, state: tcp},
	}
	if p.state&parkedHalf != 0 {
		s.state |= half
	}
	for _, f := range parkedOf {
		if p.state&f.state != 0 {
			s.socketAt(f.of).state |= f.socket
		}
	}
	s.ab.link, s.ba.link = (*aToB)(s), (*bToA)(s)
	for i, w := range [2]*direction{&s.ab, &s.ba} {
		w.moves = uint32(p.moves[i])
		if r := p.rest; r != nil {
			w.rare.Store(r.rare[i])
			w.spliced.Store(r.spliced[i])
			w.copied.Store(r.copied[i])
			w.setEngine(r.engines[i])
			continue
		}
		w.copied.Store(int64(p.copied[i]))
		w.setEngine(d.plain)
		s.pauses[i] = uint32(p.pauses[i])
	}
	if r := p.rest; r != nil {
		s.waited, s.pauses = r.waited, r.pauses
		return
	}
	for i, n := range p.waited {
		s.waited[i] = uint32(n)
	}
}

// Unpark turns the parked session p back into the Driven s. Only [Driven.Moves] starts lower: at most 255 for
// each direction. c has the session, and owner is notified of its end. Unpark does nothing and reports false if
// p is no session, or if the session of s has not ended. Call it on the loop's goroutine.
func (d *Driver) Unpark(s *Driven, p *Parked, owner Owner, c driver.Carrier) bool {
	if p.limits == nil || s.drv != nil && !s.is(over) {
		return false
	}
	s.restore(d, p)
	s.owner = owner
	d.offers.note(s, &offer{carrier: c, moved: p.moved})
	*p = Parked{}
	if left, what := s.nextTimeout(); what != ReasonNone {
		d.loop.Arm(&s.timer, s, max(left, 0))
	}
	return true
}

// Adopt makes p a session that c already has, such as a session of an earlier process. age is the age of the
// session, and idle the time since its last byte. Each side counts as having sent something. before has the
// bytes that were spliced and copied before c had the session. d counts the session like a parked session of
// [Driver.StartLimited]. nil limits mean the limits of the relay's [Config]. Call it on the loop's goroutine.
func (d *Driver) Adopt(p *Parked, limits *Limits, c driver.Carrier, age, idle time.Duration, before *Result) {
	if limits == nil {
		limits = &d.relay.limits
	}
	ab, ba, _ := c.Progress()
	now := d.loop.Now()
	*p = Parked{limits: limits, started: now - int64(age), active: now - int64(idle), moved: uint32(ab + ba), moves: [2]uint8{1, 1}, state: parkedAnswered}
	if a, b := &before.AToB, &before.BToA; a.Spliced|a.Copied|b.Spliced|b.Copied != 0 {
		p.rest = &parkedRest{spliced: [2]int64{a.Spliced, b.Spliced}, copied: [2]int64{a.Copied, b.Copied}, engines: [2]engineState{d.plain, d.plain}}
	}
	d.sessions++
}

// A viewed is a parked session that is being looked at.
type viewed struct {
	driven Driven // the session as if it were not parked
	offer  offer
	of     *Parked
}

// view returns the session of p to look at, until the next view.
func (d *Driver) view(p *Parked, c driver.Carrier) *Driven {
	if d.viewed == nil {
		d.viewed = new(viewed)
	}
	v := d.viewed
	v.driven.restore(d, p)
	v.offer, v.of = offer{carrier: c, moved: p.moved}, p
	return &v.driven
}

// keep stores what a look has found in the parked session, if s is its view.
func (v *viewed) keep(s *Driven, moved uint32) {
	if v != nil && s == &v.driven {
		v.of.active, v.of.moved = s.active, moved
	}
}

// Limits returns the session's limits, or nil if p is no session.
func (p *Parked) Limits() *Limits { return p.limits }

// Result is [Driven.Result] for a parked session of d that c has. Call it on the loop's goroutine.
func (p *Parked) Result(d *Driver, c driver.Carrier) Result {
	if p.limits == nil {
		return Result{}
	}
	return d.view(p, c).Result()
}

// Idle is [Driven.Idle] for a parked session of d that c has. Call it on the loop's goroutine.
func (p *Parked) Idle(d *Driver, c driver.Carrier) time.Duration {
	if p.limits == nil {
		return 0
	}
	return d.view(p, c).Idle()
}

// Timeout returns the time until the next timeout of a parked session of d that c has, or false if there is
// none. Call it on the loop's goroutine.
func (p *Parked) Timeout(d *Driver, c driver.Carrier) (left time.Duration, has bool) {
	if p.limits == nil {
		return 0, false
	}
	s := d.view(p, c)
	s.refresh()
	left, what := s.nextTimeout()
	return left, what != ReasonNone
}
