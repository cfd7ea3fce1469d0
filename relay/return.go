package relay

// Return has a session that a [Carrier] has had go on here, with other sockets, which are s's from now on: they are on the
// loop, and have no Mirror, Rewriter, Gate or Layer. ended are the directions, from a and from b, that have ended meanwhile, one at
// most: nothing is read from there any more, and nothing written to the other side. last is the side from which the Carrier
// has had bytes last, SideNone if from neither. The session is not offered any more; [Driven.Offer] does that anew. Return
// reports false, and the sockets are the caller's still, if no Carrier has the session, or if it is being reset. It is called
// on the loop's goroutine, and not within a callback of a session's.
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

// returned has a direction go on that has had so many bytes carried, with another socket to read from.
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

// HalfEnded notes that a direction of a session has ended that a [Carrier] has: its timeout is that of [Limits.HalfCloseTimeout]
// from now on. It is called on the loop's goroutine, and does nothing if a direction has ended before, or no Carrier has the session.
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
	d := &s.ab
	if source == SideB {
		d = &s.ba
	}
	s.state |= half
	s.socketOf(d).set(lastWay, true)
	if o, ok := s.owner.(Observer); ok {
		o.HalfClosed(s, source)
	}
}
