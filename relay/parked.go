package relay

import (
	"math"
	"time"

	"github.com/penstock/penstock/loop"
)

// A Parked is a session that a [Carrier] has, in a quarter of the bytes of a [Driven]: all that is needed of it until it ends or comes
// back. It is made to be part of a larger struct, and belongs to the goroutine of the loop whose [Driver] had the session, which counts it on.
// It has no timer: its owner looks at [Parked.Timeout], and has the session be a Driven again before that. The zero Parked is no session.
type Parked struct {
	limits  *Limits
	rest    *parkedRest // nil for most
	started int64
	active  int64
	id      loop.ID // of a, when it left: it decides the lifetime, unless the session has come back before
	copied  [2]uint32
	moved   uint32 // of the offer
	waited  [smallWaitings]uint16
	pauses  [2]uint16
	asked   uint16   // of a
	moves   [2]uint8 // or more
	state   parkedState
}

// A parkedState is small facts about a Parked.
type parkedState uint8

const (
	parkedHalf     parkedState = 1 << iota
	parkedLastA                // lastWay
	parkedLastB                // the same of b
	parkedSaidA                // said
	parkedSaidB                // the same of b
	parkedSaidLast             // saidLast
	parkedAsking               // asking
	parkedAnswered             // answered
)

// parkedOf are the facts and where a Driven has them: all that lasts of sockets, see [Driven.Return]. Both are TCP.
var parkedOf = [...]struct {
	state  parkedState
	ofB    bool
	socket socketState
}{
	{parkedLastA, false, lastWay},
	{parkedLastB, true, lastWay},
	{parkedSaidA, false, said},
	{parkedSaidB, true, said},
	{parkedSaidLast, true, saidLast},
	{parkedAsking, false, asking},
	{parkedAnswered, true, answered},
}

// A parkedRest is the counters and engines that do not fit into a Parked: of sessions that have spliced, moved gigabytes, waited for long, or come back.
type parkedRest struct {
	rare            [2]*rareState
	spliced, copied [2]int64
	waited          [smallWaitings]uint32
	pauses          [2]uint32
	engines         [2]engineState
}

// An engineState is the knowledge of a direction about its engine.
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

// Park moves the session into p, and reports whether it did: not if no [Carrier] has it, while it is being reset, nor while its
// endpoint may still fail [Limits.FirstByte]. s may be used again then. It is called on the loop's goroutine, and not within a
// callback of a session's.
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
		if at := s.socketAt(f.ofB); at.is(f.socket) {
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

func (s *Driven) socketAt(b bool) *loopSocket {
	if b {
		return &s.b
	}
	return &s.a
}

// fits fills in the counters, and reports whether p has room for all of the session.
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

// restore makes s the session of p, but for its owner, its offer and its timer.
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
			s.socketAt(f.ofB).state |= f.socket
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

// Unpark has s be the session of p, which is none any more: as if it had never been parked, but that [Driven.Moves] is at most 255 for each
// direction. c has the session, and owner is notified of its end. It does nothing, and reports false, if p is no session, or s is one that has not
// ended. It is called on the loop's goroutine.
func (d *Driver) Unpark(s *Driven, p *Parked, owner Owner, c Carrier) bool {
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

// Adopt makes p a session that c has from the begin, such as one that a process before this one has left to it: it is of that age, has moved its last byte
// so long ago, and each side has sent something before. d counts it from then on, as one of [Driver.StartLimited] that was parked. nil limits are those of the relay's [Config]. It
// is called on the loop's goroutine.
func (d *Driver) Adopt(p *Parked, limits *Limits, c Carrier, age, idle time.Duration) {
	if limits == nil {
		limits = &d.relay.limits
	}
	ab, ba, _ := c.Progress()
	now := d.loop.Now()
	*p = Parked{limits: limits, started: now - int64(age), active: now - int64(idle), moved: uint32(ab + ba), moves: [2]uint8{1, 1}, state: parkedAnswered}
	d.sessions++
}

// A viewed is a parked session that is being looked at.
type viewed struct {
	driven Driven // as it would be
	offer  offer
	of     *Parked
}

// view returns the session of p for as long as nothing else is looked at: only to be looked at.
func (d *Driver) view(p *Parked, c Carrier) *Driven {
	if d.viewed == nil {
		d.viewed = new(viewed)
	}
	v := d.viewed
	v.driven.restore(d, p)
	v.offer, v.of = offer{carrier: c, moved: p.moved}, p
	return &v.driven
}

// keep keeps the time that a look has found out, if s is only looked at.
func (v *viewed) keep(s *Driven, moved uint32) {
	if v != nil && s == &v.driven {
		v.of.active, v.of.moved = s.active, moved
	}
}

// Limits returns those of the session; nil: it is none.
func (p *Parked) Limits() *Limits { return p.limits }

// Result is [Driven.Result] of a session that d has had parked, and that c has. It is called on the loop's goroutine.
func (p *Parked) Result(d *Driver, c Carrier) Result {
	if p.limits == nil {
		return Result{}
	}
	return d.view(p, c).Result()
}

// Idle is [Driven.Idle] of a session that d has had parked, and that c has. It is called on the loop's goroutine.
func (p *Parked) Idle(d *Driver, c Carrier) time.Duration {
	if p.limits == nil {
		return 0
	}
	return d.view(p, c).Idle()
}

// Timeout returns the time until the next timeout of a session that d has had parked, and that c has, or false if it has none. It is
// called on the loop's goroutine.
func (p *Parked) Timeout(d *Driver, c Carrier) (left time.Duration, has bool) {
	if p.limits == nil {
		return 0, false
	}
	s := d.view(p, c)
	s.refresh()
	left, what := s.nextTimeout()
	return left, what != ReasonNone
}
