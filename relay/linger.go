package relay

import (
	"errors"
	"math"
	"os"
	"time"
)

// A connection that was reset can still be read: the kernel keeps what had come before (net/ipv4/tcp.c,
// tcp_reset leaves the receive queue). So the session goes on until the other side has acknowledged all of it,
// and only then resets that side: a reset drops bytes that have not reached the other side's kernel
// (tcp_disconnect, of a socket that lingers for 0 s). This happens when an endpoint answers and closes while
// its client still sends: the endpoint's kernel sends a reset behind the answer.
//
// With [Config.CloseOnEOF] the end of one side ends the session, and both sides may be reset by that: a side that
// lacks bytes of the other is reset, and so is a side that still sends, if close(2) finds its bytes unread
// (net/ipv4/tcp.c, __tcp_close). So a session waits for both, after its last move.

const (
	// lingerMost is how long a session with one failed side goes on while the other side takes nothing. The
	// other side learns of the reset only afterwards, so this time is short.
	lingerMost = 5 * time.Second
	// Acknowledgements raise no event, so the driver looks for them: first after lingerLeast, then after twice
	// the time at each look.
	lingerLeast   = time.Millisecond
	lingerLongest = 50 * time.Millisecond
)

// A lingering is a session on a loop that has ended before its sides have acknowledged all bytes.
type lingering struct {
	reason Reason // of its end
	cause  error
	last   *lastStep // nil unless CloseOnEOF has ended the session, which then moves nothing more
	left   int       // bytes not acknowledged at the last look
	since  int64     // loop clock when left last became less
	pause  time.Duration
}

// outlived reports whether the session lingers.
func (s *Driven) outlived() bool { return len(s.drv.lingering) > 0 && s.drv.lingering[s] != nil }

// survivor returns, for a session with one failed side, the direction that reads from that side, that side, and
// the other side; or nil if there is nothing to deliver.
func (s *Driven) survivor() (from *direction, dead, to *loopSocket) {
	from, dead, to = &s.ba, &s.b, &s.a
	switch culprit(&s.ab, &s.ba) {
	case SideNone:
		return nil, nil, nil
	case SideA:
		from, dead, to = &s.ab, &s.a, &s.b
	}
	if to.is(gone) || from.mode == rewriting {
		return nil, nil, nil
	}
	return from, dead, to
}

// lingers begins or continues the end of a session after one side has failed. It reports whether the other side
// still lacks bytes.
func (s *Driven) lingers(reason Reason, cause error) bool {
	from, dead, to := s.survivor()
	if from == nil {
		return false
	}
	drv := s.drv
	l := drv.lingering[s]
	if l == nil {
		s.a.untold()
		s.b.untold()
	}
	dead.state |= readable
	left := drv.deliver(from) + s.layerAt(to).unwritten() + to.unacknowledged()
	if from.shut() { // what is behind the gate will not be delivered
		left -= from.readAhead()
	} else {
		left += from.link.queued()
	}
	if left == 0 || to.is(gone) {
		return false
	}
	if l == nil {
		l = drv.beginLingering(s, lingering{reason: reason, cause: cause})
		if s.is(toEnd) {
			drv.forgetEnd(s)
		}
		s.state &^= moving | toEnd
		s.reason = reason
	}
	return s.waitsFor(l, left)
}

func (d *Driver) beginLingering(s *Driven, l lingering) *lingering {
	l.left, l.pause = math.MaxInt, lingerLeast
	if d.lingering == nil {
		d.lingering = make(map[*Driven]*lingering)
	}
	d.lingering[s] = &l
	return &l
}

// waitsFor reports whether bytes are left, and some were acknowledged lately; then it arms the timer for the next
// look.
func (s *Driven) waitsFor(l *lingering, left int) bool {
	now := s.drv.loop.Now()
	if left < l.left {
		l.left, l.since = left, now
	}
	if left == 0 || now-l.since >= int64(s.drv.relay.linger) {
		return false
	}
	s.drv.loop.Arm(&s.timer, s, l.pause)
	l.pause = min(2*l.pause, lingerLongest)
	return true
}

// linger continues the end, and reports whether it is over.
func (s *Driven) linger() (ended bool) {
	l := s.drv.lingering[s]
	if l.last == nil && s.lingers(l.reason, l.cause) || l.last != nil && s.waitsFor(l, s.undelivered()) {
		return false
	}
	s.settle(l.reason, l.cause)
	return true
}

// A lastStep is the rest of the end of a session that has moved its last byte.
type lastStep struct {
	resetA, resetB bool
	cause          error
	legs           *Legs
}

// lingersLast begins the wait for the sides of a session that CloseOnEOF has ended, and reports whether there
// is anything to wait for. It closes a side that has ended and lacks nothing.
func (s *Driven) lingersLast(e lastStep) bool {
	if s.undelivered() == 0 {
		return false
	}
	x, y := s.layers()
	if !e.resetA && s.ab.is(eofSeen) && x.written() {
		s.closeSide(&s.ba, &s.ab, &s.a, x, false)
	}
	if !e.resetB && s.ba.is(eofSeen) && y.written() {
		s.closeSide(&s.ab, &s.ba, &s.b, y, false)
	}
	l := s.drv.beginLingering(s, lingering{reason: s.reason, last: &e})
	if s.waitsFor(l, s.undelivered()) {
		s.state &^= over
		return true
	}
	delete(s.drv.lingering, s)
	return false
}

// undelivered returns how many bytes the open sides have not acknowledged.
func (s *Driven) undelivered() (n int) {
	x, y := s.layers()
	if !s.a.closed() && !s.a.is(gone) {
		n += x.unwritten() + s.a.unacknowledged()
	}
	if !s.b.closed() && !s.b.is(gone) {
		n += y.unwritten() + s.b.unacknowledged()
	}
	return n
}

// deliver tries again to deliver the bytes that a direction's source has left behind, and returns how many the
// direction still holds.
func (d *Driver) deliver(dir *direction) (held int) {
	if dir.held == nil {
		dir.held = &d.work
	}
	d.stepping = true
	dir.flush(true)
	held = dir.residue()
	d.letGo(dir)
	d.stepping = false
	return held
}

// layerAt returns the layer of a side, or nil.
func (s *Driven) layerAt(p *loopSocket) *layered {
	x, y := s.layers()
	if p == &s.a {
		return x
	}
	return y
}

// A survival is a session on goroutines with one failed side, while the other side gets what had arrived.
type survival struct {
	dead, to *leg
	reset    bool  // the TCP connection beneath dead was reset: nothing more arrives there
	most     int64 // how many bytes are moved once everything that had arrived is moved
	progress int64 // bytes moved, plus bytes acknowledged by to, at the last look
	since    int64 // clock time when progress last grew
}

// outlive keeps the session alive after one side has failed, instead of interrupting both directions, and
// reports whether it could. The direction that reads from the failed side goes on without a rate until it ends
// by itself, unless the other side takes nothing for too long. The caller holds cutting.
func (s *Session) outlive(side Side) bool {
	l := &survival{dead: &s.b, to: &s.a, since: s.r.clock.now(), most: math.MaxInt64}
	switch side {
	case SideNone:
		return false
	case SideA:
		l.dead, l.to = l.to, l.dead
	}
	if !s.guarded(l.to.stopReads) || !s.guarded(l.dead.stopWrites) { // they have panicked
		return false
	}
	if w := s.ab.pacer(); w != nil {
		w.of.stop()
	}
	s.guarded(func() {
		if l.reset = isReset(l.dead.transport()); !l.reset {
			l.most = s.ab.moved() + s.ba.moved() + int64(unreadBy(l.dead.transport())+s.r.cfg.MaxPipeSize+bufferSize)
		}
	})
	s.outlived = true
	s.lookLater(l)
	return true
}

func (s *Session) lookLater(l *survival) {
	s.stuck = s.r.clock.afterFunc(min(closeGrace, s.r.linger), func() { s.lookAtSurvivor(l) })
}

// lookAtSurvivor ends the wait for a side that has taken nothing for too long. A side that failed without a
// reset may have nothing more to read and no end of file, or may go on sending; both end the wait as well.
func (s *Session) lookAtSurvivor(l *survival) {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	if s.settled || !s.outlived {
		return
	}
	moved, now := s.ab.moved()+s.ba.moved(), s.r.clock.now()
	var acked acks
	known := false
	s.guarded(func() { acked, known = acksBy(l.to.transport()) })
	if p := moved + acked.bytes; p != l.progress {
		l.progress, l.since = p, now
	}
	quiet := now - l.since
	if moved > l.most || quiet >= int64(s.r.linger) || !l.reset && known && acked.left == 0 && quiet >= int64(closeGrace) {
		s.interruptBoth()
		return
	}
	s.lookLater(l)
}

// servedSurvivor is called when a direction has stopped. If the other side then has everything, it ends the
// wrapper's calls in which the other direction waits, even if deadlines do not end them.
func (s *Session) servedSurvivor(d *direction) {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	s.mu.Lock()
	dead := s.culprit
	s.mu.Unlock()
	if !s.outlived || dead == SideNone || (dead == SideA) != (d == &s.ab) || !s.a.waitsInside() && !s.b.waitsInside() {
		return
	}
	if s.unwait != nil {
		s.unwait(nil)
	}
	s.stuck.Stop()
	to, grace := &s.a, closeGrace
	if dead == SideA {
		to = &s.b
	}
	s.guarded(func() {
		if errors.Is(to.conn.SetReadDeadline(longAgo), os.ErrNoDeadline) { // only its close ends a Read
			grace = 0
		}
	})
	s.stuck = s.r.clock.afterFunc(grace, s.closeStuck)
}

// awaitSides waits, once both directions have stopped in a session that has outlived a side, until the
// remaining sides have acknowledged everything. It closes a side at once that has ended and lacks nothing.
func (s *Session) awaitSides(resetA, resetB bool) {
	waits := func() bool {
		s.cutting.Lock()
		defer s.cutting.Unlock()
		return s.outlived
	}
	if !waits() {
		return
	}
	var sides []any
	dead := s.Result().Culprit
	for _, l := range []struct {
		*leg
		side         Side
		reset, ended bool
	}{{&s.a, SideA, resetA, s.ab.is(eofSeen)}, {&s.b, SideB, resetB, s.ba.is(eofSeen)}} {
		switch {
		case l.side == dead:
		case l.ended && !l.reset:
			s.guarded(l.close)
		default:
			sides = append(sides, l.transport())
		}
	}
	last, since := math.MaxInt, s.r.clock.now()
	for pause := lingerLeast; waits(); pause = min(2*pause, lingerLongest) {
		left := 0
		for _, c := range sides {
			left += unacknowledgedBy(c)
		}
		if left < last {
			last, since = left, s.r.clock.now()
		}
		if left == 0 || s.r.clock.now()-since >= int64(s.r.linger) {
			return
		}
		over := make(chan struct{})
		s.r.clock.afterFunc(pause, func() { close(over) })
		<-over
	}
}

// cutOff counts bytes that are lost when the destination of a direction is closed without a reset.
func (d *direction) cutOff(n int) {
	if n > 0 {
		d.countLost(int64(n))
		d.reason.Store(uint32(ReasonTruncated))
	}
}
