package relay

import "time"

// A Turn is how a session stands in which the first side asks and the second one answers,
// since it was looked at before. What neither side has said, its end of file included, is
// no part of it.
type Turn struct {
	// Last is the side from which bytes have moved last; SideNone if none has, if the second
	// side has ended, or while bytes wait for bandwidth.
	Last Side
	// Quiet is how long ago that was, or if that was later, the end of the first side.
	Quiet time.Duration
	// Ended says that the first side has ended, and sends nothing more.
	Ended bool
	// Spoke says that by the look before the second side had sent something.
	Spoke bool
	// Asked is for how long at least the second side has been silent since the first side has
	// sent something, whether or not that has gone on sending; or if neither has sent anything
	// yet, since they were joined. 0: it is not its turn.
	Asked time.Duration
	// Answered says that since the look before the second side has sent something that may be
	// an answer: the first side had asked then, or has since. Waited is for how long the
	// question had been open that was open then, from when it was asked until now, so more
	// than it took to be answered; 0: none was.
	Answered bool
	Waited   time.Duration
}

// askedTick is the unit, as a shift of the loop's clock, in which a session notes when it
// has asked: some 134 ms, in 16 bits that go round in two hours and a half. Only for a first
// side that goes on sending without an answer for longer is Asked too short then.
const askedTick = 27

// Look returns how the session stands, and is the look before for the next one. Whoever
// looks is the only one who does. It costs the bytes nothing: what it needs is a bit of each
// side, set where a move notes the time.
func (s *Driven) Look() Turn {
	if s.drv == nil || s.over {
		return Turn{}
	}
	now := s.drv.loop.Now()
	t := Turn{Quiet: time.Duration(now - s.active), Spoke: s.b.is(answered), Last: s.saidLast(), Ended: s.ab.ended}
	wasAsked, saidA, saidB := s.a.is(asking), s.a.is(said), s.b.is(said)
	if t.Answered = saidB && (wasAsked || saidA); t.Answered && wasAsked {
		t.Waited = s.sinceAsked(now)
	}
	s.a.set(said, false)
	s.b.set(said, false)
	s.b.set(answered, s.ba.moves != 0)
	s.a.set(asking, t.Last == SideA)
	switch {
	case s.ab.moves == 0 && s.ba.moves == 0 && !s.ba.ended:
		t.Asked = t.Quiet
		return t
	case t.Last != SideA:
		return t
	}
	if !wasAsked || saidB {
		s.a.asked = uint16(s.active >> askedTick)
	}
	t.Asked = max(t.Quiet, s.sinceAsked(now))
	return t
}

// sinceAsked is how long ago the side a has asked, to a tick.
func (s *Driven) sinceAsked(now int64) time.Duration {
	return time.Duration(uint16(now>>askedTick)-s.a.asked) << askedTick
}

// saidLast is the side that has said something last, as [Turn.Last] says.
func (s *Driven) saidLast() Side {
	switch {
	case s.ba.ended, s.ab.pace == resting, s.ba.pace == resting:
		return SideNone
	case s.b.is(saidLast):
		return SideB
	case s.ab.moves != 0:
		return SideA
	}
	return SideNone
}

// moved notes that a direction has moved bytes; first, that those are its first ones.
func (s *Driven) moved(d *direction, first bool) {
	now := s.drv.loop.Now()
	if d == &s.ab {
		s.a.state |= said
		s.b.state &^= saidLast
	} else {
		if told := s.limits.FirstByteCame; first && told != nil {
			told(time.Duration(now-s.active), s.ab.moves != 0)
		}
		s.b.state |= said | saidLast
	}
	s.active = now
}

// A look is what a session was like when it was looked at.
type look struct {
	toB, toA int64 // bytes
	asked    int64 // clock, since when the second side has been asked; 0: it has not
}

// Look is [Driven.Look] of a session on goroutines, by what has moved from look to look: if
// both sides have sent something since the one before, the second one counts as the last. It
// may be called at any time by any goroutine.
func (s *Session) Look() Turn {
	if s.started.Load() == 0 || s.finished.Load() != 0 {
		return Turn{}
	}
	now := s.r.clock.now()
	toB, toA := s.ab.spliced.Load()+s.ab.copied.Load(), s.ba.spliced.Load()+s.ba.copied.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.looked
	saidA, saidB := toB != before.toB, toA != before.toA
	t := Turn{
		Quiet: time.Duration(now - s.active.Load()), Spoke: before.toA != 0,
		Ended: Reason(s.ab.reason.Load()) != ReasonNone,
	}
	if t.Answered = saidB && (before.asked != 0 || saidA); t.Answered && before.asked != 0 {
		t.Waited = time.Duration(now - before.asked)
	}
	s.looked = look{toB: toB, toA: toA}
	switch {
	case Reason(s.ba.reason.Load()) != ReasonNone || s.ab.resting() || s.ba.resting():
	case toB == 0 && toA == 0:
		t.Asked = time.Duration(now - s.started.Load())
	case saidB, !saidA && before.asked == 0:
		if toA != 0 {
			t.Last = SideB
		}
	default:
		t.Last = SideA
		if s.looked.asked = before.asked; before.asked == 0 {
			s.looked.asked = now
			if s.hasQuietTimeout() { // else nobody notes when bytes move
				s.looked.asked = max(now-int64(t.Quiet), 1)
			}
		}
		t.Asked = time.Duration(now - s.looked.asked)
	}
	return t
}
