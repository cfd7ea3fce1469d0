package relay

import (
	"errors"
	"time"

	"github.com/penstock/penstock/loop"
)

// A Driven is a session on an event loop. It is made to be part of a larger struct,
// takes no goroutine and less than 300 bytes, and may be used again after its end.
// Like its [Driver] it belongs to the loop's goroutine.
type Driven struct {
	ab, ba  direction // first, for their atomics on 32-bit systems
	active  int64     // loop clock of the last byte moved, or the last wait for bandwidth, and at last of the end
	started int64
	drv     *Driver
	owner   Owner
	limits  *Limits
	timer   loop.Timer
	a, b    loopSocket // own the descriptors
	reason  Reason
	state   drivenState
	counted uint16                // the last count of the bulk tracker that it was in
	waited  [smallWaitings]uint32 // ticks, see waits.go; active is the end of the last of them
	pauses  [2]uint32             // waits of a tick or more for bytes of a, and of b
}

// A drivenState is small facts about a Driven.
type drivenState uint8

const (
	half     drivenState = 1 << iota // one direction has ended
	over                             // both have, or it was cut
	recalled                         // to be called again
	due                              // it is called for that
	moving                           // it is being started, or is in move: an end waits until that is over
	toEnd                            // its driver has an end of it to be seen to
	offered                          // a Carrier may have it: its driver has an offer
	carried                          // a Carrier has it, and the sockets
)

func (s *Driven) is(f drivenState) bool { return s.state&f != 0 }

// An Owner is notified of the end of its session.
type Owner interface {
	// Ended is called on the loop's goroutine, once, when both sockets are closed and
	// everything is accounted for: with the results of [Session.Run], but for the addresses in
	// the error, which the owner knows. s may be started again.
	Ended(s *Driven, res Result, err error)
}

// An Observer is an Owner that is notified of stages of its session as well, on the loop's
// goroutine.
type Observer interface {
	Owner
	// FirstByte is called when the first byte of a side was moved, unless the owner has moved
	// some of that side's before.
	FirstByte(s *Driven, source Side)
	// HalfClosed is called when a side's end of file was passed on, and the other side goes on.
	HalfClosed(s *Driven, source Side)
}

// sideOf is the source of a direction.
func (s *Driven) sideOf(d *direction) Side {
	if d == &s.ab {
		return SideA
	}
	return SideB
}

// Start joins two sockets, which s owns from now on, until both directions have ended or the
// session is cut. It moves bytes at once, so owner may be notified of the end before Start
// returns; but within a callback of a session's or a mirror's it moves them in the loop's next turn.
// If s is a session that has not ended, that goes on, and the two sockets are reset: owner is notified of
// [ReasonError] before Start returns.
func (d *Driver) Start(s *Driven, a, b Socket, owner Owner) { d.StartLimited(s, a, b, owner, nil) }

// StartLimited is Start of a session with limits of its own, in which a is the client
// and b the endpoint; nil means those of the relay's [Config].
func (d *Driver) StartLimited(s *Driven, a, b Socket, owner Owner, limits *Limits) {
	if s.drv != nil && !s.is(over) {
		d.refuse(s, a, b, owner)
		return
	}
	if limits == nil {
		limits = &d.relay.limits
	}
	now, spare := max(1, d.loop.Now()), s.throttle()
	*s = Driven{drv: d, owner: owner, limits: limits, active: now, started: now, state: moving, a: newSocket(a), b: newSocket(b)}
	s.bind(&a, &b)
	s.ab.setRewriter(&a)
	s.ba.setRewriter(&b)
	s.ab.setMirror(&a, &s.ba)
	s.ba.setMirror(&b, &s.ab)
	if limits.paces() {
		d.pace(s, spare)
	}
	d.sessions++
	d.loop.Hand(a.ID, s)
	d.loop.Hand(b.ID, s)
	s.a.note(a.Events)
	s.b.note(b.Events)
	s.ab.began(a.Moved, &s.b)
	s.ba.began(b.Moved, &s.a)
	s.setGate(&s.ab, &s.ba, &a)
	s.setGate(&s.ba, &s.ab, &b)
	s.a.set(said, a.Moved > 0)
	s.b.set(said|saidLast, b.Moved > 0)
	if left, what := s.nextTimeout(); what != ReasonNone {
		d.loop.Arm(&s.timer, s, left)
	}
	s.state &^= moving
	for _, way := range [2]*direction{&s.ab, &s.ba} {
		if f := way.failure(); f != nil { // a Rewriter that is none, or a Gate where none can be
			s.end(Reason(way.reason.Load()), s.opErrorOf(way, *f))
			return
		}
	}
	if d.stepping {
		s.recall()
		return
	}
	s.move()
}

// errDriven is the cause of a start that is refused.
var errDriven = errors.New("penstock: relay: start: the Driven is a session that has not ended")

// refuse is the start of a session that has not ended. Its sockets stay, if it is started with those again.
func (d *Driver) refuse(s *Driven, a, b Socket, owner Owner) {
	for _, p := range [2]*Socket{&a, &b} {
		if p.Gate != nil {
			p.Gate.Close()
		}
	}
	for _, p := range [2]loopSocket{newSocket(a), newSocket(b)} {
		if p.fd == s.a.fd || p.fd == s.b.fd {
			continue
		}
		d.loop.Drop(p.id)
		p.abort()
		p.close()
	}
	owner.Ended(s, Result{Reason: ReasonError}, errDriven)
}

// began takes note of bytes that the owner has moved to a socket.
func (d *direction) began(n int, to *loopSocket) {
	if n > 0 {
		d.consumed(n)
		d.copied.Add(int64(n))
		to.state |= wrote
	}
}

// socketOf returns where a direction reads.
func (s *Driven) socketOf(d *direction) *loopSocket {
	if d == &s.ab {
		return &s.a
	}
	return &s.b
}

// Ready implements [loop.Handler].
func (s *Driven) Ready(which uint8, events loop.Events) {
	if s.is(offered) && !s.regain() {
		return
	}
	if events != 0 {
		p := &s.a
		if which == 1 {
			p = &s.b
		}
		p.note(events)
		s.flushLayers()
	} else {
		s.state = s.state&^recalled | due
	}
	s.advance()
	s.state &^= due
	if s.is(offered) {
		s.lend()
	}
}

// advance moves, and has more gather where that pays.
func (s *Driven) advance() {
	before := s.spliced()
	s.move()
	if s.spliced()-before >= bulkMove {
		s.drv.gather(s)
	}
}

// spliced is how much has been, both ways.
func (s *Driven) spliced() int64 { return s.ab.spliced.Load() + s.ba.spliced.Load() }

// checkPeerFailure ends the session if a socket has failed while no direction would notice: the one
// that reads it is blocked by its destination, or has ended. It reports whether it did. It is
// asked after each move, for a direction that reads when the failure is reported may be
// blocked by the bytes that it has read.
func (s *Driven) checkPeerFailure(p *loopSocket) bool {
	if !p.is(gone) {
		return false
	}
	reads, writes := &s.ab, &s.ba
	if p == &s.b {
		reads, writes = writes, reads
	}
	if reads.wantsRead() {
		return false
	}
	err := p.socketError()
	if err == nil {
		return false
	}
	if !reads.is(ended) {
		reads.fail("read", sideSource, err)
	} else {
		writes.fail("write", sideSink, err)
	}
	s.settle(reasonOf(err), opErrorOn(p, "read", err))
	return true
}

// move moves bytes, both ways, and then sees to the ends that callbacks have asked for. s may have ended,
// and be another session's, when it returns.
func (s *Driven) move() {
	drv := s.drv
	s.state |= moving
	if !s.moveBoth() {
		s.state &^= moving
	}
	if len(drv.ends) > 0 {
		drv.seeToEnds()
	}
}

// moveBoth is move, and reports whether the session has ended.
func (s *Driven) moveBoth() (ended bool) {
	if s.outlived() {
		return s.linger()
	}
	again := false
	for _, d := range [2]*direction{&s.ab, &s.ba} {
		if s.is(toEnd) {
			return false
		}
		if !s.canMove(d) {
			continue
		}
		moves, open := d.moves, s.open()
		w := s.drv.step(d)
		if d.moves != moves {
			s.moved(d, moves == 0, open)
		}
		switch {
		case w == waitDone && s.stopped(d, open):
			return true
		case w == waitTokens:
			now := s.drv.loop.Now()
			s.pass(s.ended(d, open, now), now)
			s.drv.await(d)
		}
		again = again || w == waitTurn
	}
	if s.is(toEnd) {
		return false
	}
	if s.checkPeerFailure(&s.a) || s.checkPeerFailure(&s.b) {
		return true
	}
	if again {
		s.recall()
	}
	return false
}

// recall has the session called again in the loop's next turn.
func (s *Driven) recall() {
	if !s.is(recalled) {
		s.state |= recalled
		s.drv.loop.Again(s.a.id)
	}
}

// canMove reports whether a step would find out anything.
func (s *Driven) canMove(d *direction) bool {
	from, to := &s.a, &s.b
	if d == &s.ba {
		from, to = to, from
	}
	switch {
	case d.is(ended), d.pace == resting:
		return false
	case d.held != nil:
		return to.is(writable)
	case d.mode == rewriting && d.transformed():
		return false
	case from.state&(readable|drained) != 0:
		return true
	}
	return to.is(writable) && d.waitsForSink()
}

// stopped sees to the end of a direction, and reports whether it is the session's. open is the wait until then.
func (s *Driven) stopped(d *direction, open waiting) bool {
	if d.failure() != nil || s.is(half) || s.drv.relay.cfg.CloseOnEOF {
		now := s.drv.loop.Now()
		if open == forNothing {
			open = s.ended(d, open, now)
		}
		s.pass(open, now)
	}
	if f := d.failure(); f != nil {
		s.settle(Reason(d.reason.Load()), s.opErrorOf(d, *f))
		return true
	}
	if s.is(half) {
		s.settle(ReasonEOF, nil)
		return true
	}
	s.state |= half
	s.socketOf(d).set(lastWay, true)
	if s.drv.relay.cfg.CloseOnEOF {
		s.settle(ReasonEOF, nil)
		return true
	}
	if s.limits.HalfCloseTimeout > 0 {
		now := s.drv.loop.Now()
		s.pass(s.open(), now)
	}
	if o, ok := s.owner.(Observer); ok {
		o.HalfClosed(s, s.sideOf(d))
	}
	return s.timeout()
}

// settle ends the session: it delivers the bytes that a side sent before its reset, counts
// lost bytes, resets the sides that have to be, closes both, and notifies the owner.
func (s *Driven) settle(reason Reason, cause error) {
	if s.is(offered) {
		if !s.regain() {
			s.resetCarried(reason, cause)
			return
		}
		s.forgetOffer()
	}
	drv := s.drv
	if l := drv.lingering[s]; l != nil {
		reason, cause = l.reason, l.cause
		delete(drv.lingering, s)
	} else if reason == ReasonReset || reason == ReasonError {
		if s.lingers(reason, cause) {
			return
		}
	}
	s.pass(s.open(), drv.loop.Now())
	legs := s.legsAtEnd()
	if s.is(toEnd) {
		drv.forgetEnd(s)
	}
	s.state = s.state&^(moving|toEnd) | over
	drv.loop.Disarm(&s.timer)
	if t := s.throttle(); t != nil {
		drv.loop.Disarm(&t.pacers[0].timer)
		drv.loop.Disarm(&t.pacers[1].timer)
	}
	if s.ab.atEOF() && s.ba.atEOF() {
		reason, cause = ReasonEOF, nil
	}
	s.reason = reason
	gently := reason == ReasonIdle && !s.is(half) && !s.unanswered() && s.losesNothing()
	if reason != ReasonEOF {
		s.a.untold()
		s.b.untold()
	}
	s.ab.stopRewrite()
	s.ba.stopRewrite()
	resetB := drv.finish(&s.ab, &s.ba, reason)
	resetA := drv.finish(&s.ba, &s.ab, reason)
	if truncated(&s.ab, &s.ba) {
		s.reason, cause = ReasonTruncated, ErrTruncated
	}
	for _, d := range [2]*direction{&s.ab, &s.ba} {
		if m := d.mirror(); m != nil {
			m.sessionEnded(d.atEOF())
		}
	}
	s.closeGates()
	x, y := s.layers()
	if resetA && !gently || x != nil && !x.end() {
		s.ba.countLost(s.a.abort())
	}
	if resetB && !gently || y != nil && !y.end() {
		s.ab.countLost(s.b.abort())
	}
	drv.loop.Drop(s.a.id)
	drv.loop.Drop(s.b.id)
	s.a.close()
	s.b.close()
	s.active = drv.loop.Now()
	drv.sessions--
	res := s.Result()
	res.Legs = legs
	s.owner.Ended(s, res, cause)
	if s.is(over) { // and was not started again; the parts that it was bound to may be given up
		s.limits = &drv.relay.limits
		s.ab.link, s.ba.link = (*aToB)(s), (*bToA)(s)
		s.ab.forget()
		s.ba.forget()
	}
	if len(drv.ends) > 0 {
		drv.seeToEnds()
	}
}

// finish is [finish] with a lease in hand.
func (d *Driver) finish(dir, other *direction, reason Reason) (resetSink bool) {
	if dir.held == nil {
		dir.held = &d.work
	}
	own := dir.held
	d.stepping = true
	e := endingOf(dir, other, reason)
	e.flushAndAbandon(true)
	resetSink = e.over()
	d.stepping = false
	if own != &d.work {
		*own = inFlight{}
		d.spare = append(d.spare, own)
	}
	dir.held = nil
	return resetSink
}

// Limits returns those of the session until its owner has been notified of the end, then those
// of the relay's [Config], and nil if it was never started.
func (s *Driven) Limits() *Limits { return s.limits }

// Result returns the counters of the session so far; after its end, the final ones.
func (s *Driven) Result() Result {
	res := Result{Reason: s.reason, AToB: s.ab.flow(), BToA: s.ba.flow(), Waits: s.waits()}
	if s.is(carried) {
		res.AToB.Carried, res.BToA.Carried, _ = s.offer().carrier.Progress()
	}
	switch {
	case s.a.is(lastWay):
		res.First = SideA
	case s.b.is(lastWay):
		res.First = SideB
	}
	if s.is(over) && (s.reason == ReasonReset || s.reason == ReasonError) {
		res.Culprit = culprit(&s.ab, &s.ba)
	}
	switch {
	case s.drv == nil:
	case s.is(over):
		res.Duration = time.Duration(s.active - s.started)
	default:
		res.Duration = time.Duration(s.drv.loop.Now() - s.started)
	}
	return res
}

// opErrorOf dresses a raw failure of a direction.
func (s *Driven) opErrorOf(d *direction, f failure) error {
	p := &s.b
	if (d == &s.ba) == (f.side == sideSink) {
		p = &s.a
	}
	return opErrorOn(p, f.op, f.err)
}

// opErrorOn returns the error of package net for a failure at a socket, but for the addresses.
func opErrorOn(p *loopSocket, op string, err error) error {
	network := "unix"
	if p.is(tcp) {
		network = "tcp"
	}
	return newOpError(op, network, err)
}
