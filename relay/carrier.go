package relay

import (
	"maps"
	"syscall"
	"time"
)

// A Carrier carries a session on a loop otherwise than by its sockets, such as by a program in the kernel that
// translates packets. Its methods are called on the loop's goroutine, and must not wait.
type Carrier interface {
	// Arm is called when the session holds no byte and waits for both sides: the Carrier may take it at any
	// moment from then on.
	Arm()
	// Disarm is called before a socket is touched, and reports whether the session is still there. If not, the
	// Carrier has it, until [Driven.Return] if ever.
	Disarm() bool
	// Leave follows a Disarm that has reported false: both descriptors are the Carrier's, and are on no loop
	// once they are closed. It calls [Driven.Finish] or [Driven.FinishError] at the end.
	Leave(a, b int)
	// Progress returns the bytes that Carriers have delivered, each time that one has had the session, and for how
	// long nothing has moved.
	Progress() (aToB, bToA int64, idle time.Duration)
	// Quiet is [Driven.Quiet] of a session that has left.
	Quiet() bool
	// Reset ends a session that has left: both sides are reset, and [Driven.Finish] is called soon after.
	Reset()
	// Return is called for a session that has left and was idle for too long, so that it comes back by [Driven.Return] and ends
	// with an end of file of both sides. False: it cannot, and is reset.
	Return() bool
}

// An offer is a session that a Carrier may take, or has taken.
type offer struct {
	carrier Carrier
	cause   error
	moved   uint32 // by the Carrier, at the last look; the low bits
	armed   bool
	reason  Reason // of a session that has left and is being reset, and its cause
}

// offers are those of a driver's sessions, but for sessions that are parked.
type offers struct {
	of   map[*Driven]*offer // nil: there were none yet
	most int                // that there were since it was made: a map does not shrink
}

const (
	// fewOffers are not too many to be copied at once, nor for a map to be left as it is.
	fewOffers = 4096
	// offersLeft is the part of the most that is left when the map is made anew.
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

// offer returns that of a session that is offered, or is only looked at.
func (s *Driven) offer() *offer {
	if v := s.drv.viewed; v != nil && s == &v.driven {
		return &v.offer
	}
	return s.drv.offers.of[s]
}

// An Obstacle is why no [Carrier] may have a session, for as long as it lasts.
type Obstacle uint8

const (
	// NoObstacle: a Carrier may have it.
	NoObstacle Obstacle = iota
	// ObstacleSocket: an end is no TCP socket.
	ObstacleSocket
	// ObstacleLayer: a [Layer] is spoken at an end.
	ObstacleLayer
	// ObstacleBandwidth: it has a limit of bandwidth.
	ObstacleBandwidth
	// ObstacleMirror: a [Mirror] gets its bytes, or did.
	ObstacleMirror
	// ObstacleRewrite: a [Rewriter] changes its bytes.
	ObstacleRewrite
	// ObstacleEnd: a side has ended.
	ObstacleEnd
)

// Obstacle returns the first reason why no [Carrier] may have the session. Between Start and the end it may be
// called on the loop's goroutine.
func (s *Driven) Obstacle() Obstacle {
	x, y := s.layers()
	switch {
	case s.drv == nil, s.is(over | half | toEnd), s.outlived():
		return ObstacleEnd
	case x != nil || y != nil:
		return ObstacleLayer
	case !s.a.is(tcp) || !s.b.is(tcp):
		return ObstacleSocket
	case s.limits.paces():
		return ObstacleBandwidth
	case s.ab.mode == rewriting || s.ba.mode == rewriting:
		return ObstacleRewrite
	case (s.ab.state|s.ba.state)&(mirrored|observed) != 0:
		return ObstacleMirror
	}
	return NoObstacle
}

// Heard is for those who decide about [Driven.Offer], as penstock's program does: it reports whether bytes of the second side have moved.
func (s *Driven) Heard() bool { return s.ba.moves != 0 }

// Moves is for those who decide about [Driven.Offer], as penstock's program does: how many reads and writes have moved bytes, both
// ways; it may wrap, and after the session was a [Parked] it goes on from 255 each way at most.
func (s *Driven) Moves() uint32 { return s.ab.moves + s.ba.moves }

// Offer lets a Carrier have the session, as soon as it rests and each time that it does, until Withdraw. It does
// nothing for a session with an [Obstacle], nor for one that has been offered. It is called on the loop's
// goroutine, and not within a callback of a session's.
func (s *Driven) Offer(c Carrier) {
	if s.is(offered) || s.Obstacle() != NoObstacle {
		return
	}
	s.drv.offers.note(s, &offer{carrier: c, moved: uint32(s.ab.carried() + s.ba.carried())})
	s.state |= offered
	s.lend()
}

// Withdraw ends the offer, unless the Carrier has the session already, and reports whether it is here.
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

// Recall looks whether the session is still here, as before a socket is touched. One that is goes on being
// offered.
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

// Carried reports whether a [Carrier] has the session.
func (s *Driven) Carried() bool { return s.is(carried) }

func (s *Driven) forgetOffer() {
	if s.is(offered) {
		s.drv.offers.forget(s)
		s.state &^= offered | carried
	}
}

// lend arms the Carrier of a session that is offered, if it rests.
func (s *Driven) lend() {
	if s.is(offered) && !s.is(carried) && s.rests() {
		if o := s.offer(); !o.armed {
			o.armed = true
			o.carrier.Arm()
		}
	}
}

// rests reports whether nothing is held, by a gate neither, and both sides are waited for.
func (s *Driven) rests() bool {
	const stirred = readable | peerClosed | drained | urgent | gone | raised
	return s.state&^offered == 0 && (s.a.state|s.b.state)&stirred == 0 && (s.ab.state|s.ba.state)&limited == 0 && s.ab.residue() == 0 && s.ba.residue() == 0
}

// regain has the session back before a socket is touched, and reports whether it is here. It is called for
// sessions that are offered.
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

// refresh has active be the time at which the Carrier has last delivered bytes, as far as that is known: if it has
// delivered some since the last look, that of the last packet.
func (s *Driven) refresh() {
	o := s.offer()
	ab, ba, idle := o.carrier.Progress()
	if moved := uint32(ab + ba); moved != o.moved {
		o.moved = moved
		s.active = max(s.active, s.drv.loop.Now()-int64(idle))
		s.drv.viewed.keep(s, moved)
	}
}

// resetCarried is settle of a session that has left. The first cause counts.
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

// Finish ends a session that its [Carrier] has had; reset says that at least one side was, and not both have
// ended. by is the side that has reset it, or has ended first; SideNone: that is not known. The owner is notified before it returns. It is called on the loop's goroutine, once.
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

// FinishError is Finish of a session that was reset because the connection of a side has failed otherwise, such as by
// syscall.ETIMEDOUT: its result is that of a read there with this error.
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

// finish ends a session that its Carrier has had.
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
	s.owner.Ended(s, s.Result(), cause)
	if s.is(over) {
		s.limits = &drv.relay.limits
	}
}

// endedFirst notes the side that has ended first, unless that was before the session left.
func (s *Driven) endedFirst(by Side) {
	switch {
	case s.a.is(lastWay) || s.b.is(lastWay):
	case by == SideA:
		s.a.set(lastWay, true)
	case by == SideB:
		s.b.set(lastWay, true)
	}
}

// failedAt notes the side at which the connection has failed, and returns the error of that.
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
