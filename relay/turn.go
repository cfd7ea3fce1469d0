package relay

import "time"

// A Turn is the state of a session in which the first side asks and the second side answers, as [Driven.Look]
// finds it. Bytes count as questions and answers, ends of file do not.
type Turn struct {
	// Last is the side whose bytes moved last. It is SideNone if no byte has moved, if the second side has
	// ended, or while bytes wait for bandwidth.
	Last Side
	// Quiet is the time since those bytes moved, or since the first side's end of file if that came later.
	Quiet time.Duration
	// Ended says that the first side has ended, and sends nothing more.
	Ended bool
	// Spoke says that the second side had sent something by the previous look.
	Spoke bool
	// Asked is how long the second side has left the first side's question open, or 0 if there is none. More bytes
	// of the first side do not shorten it. If neither side has sent anything, it is the time since the session
	// began.
	Asked time.Duration
	// Answered says that the second side has answered a question since the previous look. Waited is the time since
	// that question if it was open at the previous look: the answer took no longer. Otherwise it is 0.
	Answered bool
	Waited   time.Duration
}

// askedTick is the unit of loopSocket.asked as a shift of the loop's clock: 134 ms. Its 16 bits wrap after two
// hours and a half; then Asked is too short if the first side goes on sending.
const askedTick = 27

// Look returns the changes of the session's state since the previous Look, and nothing while a driver.Carrier has
// the session. Only one caller may use Look of a session.
func (s *Driven) Look() Turn {
	if s.drv == nil || s.is(over|carried) {
		return Turn{}
	}
	now := s.drv.loop.Now()
	t := Turn{Quiet: time.Duration(now - s.active), Spoke: s.b.is(answered), Last: s.saidLast(), Ended: s.ab.is(ended)}
	wasAsked, saidA, saidB := s.a.is(asking), s.a.is(said), s.b.is(said)
	if t.Answered = saidB && (wasAsked || saidA); t.Answered && wasAsked {
		t.Waited = s.sinceAsked(now)
	}
	s.a.set(said, false)
	s.b.set(said, false)
	s.b.set(answered, s.ba.moves != 0)
	s.a.set(asking, t.Last == SideA)
	switch {
	case s.ab.moves == 0 && s.ba.moves == 0 && !s.ba.is(ended):
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

// sinceAsked returns the time since side a has asked, to a tick.
func (s *Driven) sinceAsked(now int64) time.Duration {
	return time.Duration(uint16(now>>askedTick)-s.a.asked) << askedTick
}

// saidLast returns [Turn.Last].
func (s *Driven) saidLast() Side {
	switch {
	case s.ba.is(ended), s.ab.pace == resting, s.ba.pace == resting:
		return SideNone
	case s.b.is(saidLast):
		return SideB
	case s.ab.moves != 0:
		return SideA
	}
	return SideNone
}

// moved notes that a direction has moved bytes. first says that these are its first bytes, and open is the wait
// that has ended.
func (s *Driven) moved(d *direction, first bool, open waiting) {
	now := s.drv.loop.Now()
	if first {
		if o, ok := s.owner.(Observer); ok {
			o.FirstByte(s, s.sideOf(d))
		}
	}
	w := s.ended(d, open, now)
	if d == &s.ab {
		s.a.state |= said
		s.b.state &^= saidLast
	} else {
		if told := s.limits.FirstByteCame; first && told != nil {
			told(time.Duration(now-s.active), s.ab.moves != 0)
		}
		s.b.state |= said | saidLast
	}
	s.pass(w, now)
}

// Quiet reports whether a session that ends now would lose no byte, as far as this machine knows: it holds
// none, none waits to be read, everything sent has been acknowledged, and the first side was not the last to
// send. A question may still not be answered in full: the second side may have sent something else (tickets of
// TLS, settings of HTTP/2), the first of several answers, or a part of one. Only a longer silence, by
// [Driven.Idle], makes that less likely. Quiet makes up to four system calls, and none if it already knows that
// the session is not quiet. Call it on the loop's goroutine; before Start and after the end it is false. While
// a driver.Carrier has the session, the Carrier answers.
func (s *Driven) Quiet() bool {
	switch {
	case s.drv == nil, s.is(over):
		return false
	case s.is(carried):
		return s.offer().carrier.Quiet()
	case s.is(recalled | due), s.unanswered():
		return false
	}
	return s.losesNothing()
}

// losesNothing reports whether nothing is held or unread, and everything sent has been acknowledged.
func (s *Driven) losesNothing() bool {
	switch {
	case s.ab.pace == resting, s.ba.pace == resting, s.ab.held != nil, s.ba.held != nil:
		return false
	case s.ab.readAhead() > 0, s.ba.readAhead() > 0, s.ab.heldBack() > 0, s.ba.heldBack() > 0:
		return false
	}
	if x, y := s.layers(); !x.written() || !y.written() {
		return false
	}
	return s.a.quiet() && s.b.quiet()
}

// unanswered reports whether the first side was the last to send and may get an answer. Unlike asked it
// includes a first side that only sends: it may have sent one long question.
func (s *Driven) unanswered() bool { return !s.ba.is(ended) && s.ab.moves != 0 && !s.b.is(saidLast) }

// written reports whether the socket has taken everything that the layer has written. y may be nil.
func (y *layered) written() bool { return y.unwritten() == 0 }

func (y *layered) unwritten() int {
	if y == nil {
		return 0
	}
	return len(y.out) - y.sent
}

// losesNothing is [Driven.losesNothing] for a session when both directions have stopped and no side has ended.
// It is false for ends that are moved by their own Read and Write.
func (s *Session) losesNothing() bool {
	if !s.spoke.Load() && s.ab.spoken() && (s.waits != nil || !s.ba.spoken()) { // an open question
		return false
	}
	if s.a.waitsInside() || s.b.waitsInside() || s.ab.atEOF() || s.ba.atEOF() || s.ab.residue()+s.ba.residue() > 0 {
		return false
	}
	return quiet(s.a.transport()) && quiet(s.b.transport())
}
