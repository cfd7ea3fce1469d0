package relay

import "time"

// Quiet reports whether a session that ends now would lose no byte, as far as this machine knows:
// it holds none, none has come that was not read, and all that was sent has been acknowledged. Nor
// was the first side the last to send. That is not to say that its question is answered in whole: the
// second side may have sent something else (tickets of TLS, settings of HTTP/2), the first of several
// answers, or a part of one. Only a longer silence, by [Driven.Idle], makes that less likely. It makes up to four system calls, and none if less already shows that the session is not quiet.
// It may be called on the loop's goroutine; before Start and after the end it is false. Of a session that a [Carrier] has
// that knows.
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

// losesNothing reports whether nothing is held or unread, and all that was sent has been acknowledged.
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

// unanswered reports whether the first side was the last to send, and may get an answer. Unlike asked it takes
// one that only sends for one that asks: what it has sent may be one long question.
func (s *Driven) unanswered() bool { return !s.ba.is(ended) && s.ab.moves != 0 && !s.b.is(saidLast) }

// written reports whether the socket has taken all that the layer has written. There may be no layer.
func (y *layered) written() bool { return y.unwritten() == 0 }

func (y *layered) unwritten() int {
	if y == nil {
		return 0
	}
	return len(y.out) - y.sent
}

// Quiet is [Driven.Quiet] of a session on goroutines, whose moves it cannot see: no byte has moved
// for least, which must be known, see [Session.Idle] and [Config.LegsAfter]. It may be called at any
// time by any goroutine.
func (s *Session) Quiet(least time.Duration) bool {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	switch {
	case s.settled, s.started.Load() == 0, s.waits == nil:
		return false
	case s.r.clock.now()-s.active.Load() < int64(least), s.ab.resting(), s.ba.resting():
		return false
	case !s.spoke.Load() && s.ab.spoken(): // an open question
		return false
	}
	return quiet(s.a.conn) && quiet(s.b.conn)
}

// losesNothing is [Driven.losesNothing] of a session whose directions have both stopped, and of which no side has ended. It is
// not known of ends that are moved by their own Read and Write.
func (s *Session) losesNothing() bool {
	if !s.spoke.Load() && s.ab.spoken() && (s.waits != nil || !s.ba.spoken()) { // an open question
		return false
	}
	if s.a.waitsInside() || s.b.waitsInside() || s.ab.atEOF() || s.ba.atEOF() || s.ab.residue()+s.ba.residue() > 0 {
		return false
	}
	return quiet(s.a.conn) && quiet(s.b.conn)
}
