package relay

import (
	"math"
	"time"
)

// A connection that was reset can still be read: the kernel keeps what had come before (net/ipv4/tcp.c, tcp_reset leaves the
// receive queue). So the session goes on until the other side has acknowledged all of it, and only then resets that side: a
// reset throws away what the other side's kernel has not got (tcp_disconnect, of a socket that lingers for 0 s). An endpoint
// that answers and closes while its client still sends is such a case: its kernel sends a reset behind the answer.

const (
	// lingerMost is how long a session with a side that was reset goes on while the other side takes nothing. It is not told of the
	// reset until then, so that is not long.
	lingerMost = 5 * time.Second
	// Acknowledgements raise no event, so they are looked for, at first after lingerLeast, and then half as often each time.
	lingerLeast   = time.Millisecond
	lingerLongest = 50 * time.Millisecond
)

// A lingering is a session on a loop of which one side was reset.
type lingering struct {
	reason Reason // of its end
	cause  error
	left   int   // bytes that the other side had not acknowledged at the last look
	since  int64 // loop clock of when that became less last
	pause  time.Duration
}

// outlived reports whether one side has failed, and the other one is getting the rest.
func (s *Driven) outlived() bool { return len(s.drv.lingering) > 0 && s.drv.lingering[s] != nil }

// survivor returns the direction of a session with one failed side that reads there, and the other side; nil: there is none.
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

// lingers begins or goes on with the end of a session of which one side has failed, and reports whether there are bytes yet
// that the other side has not got.
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
	if from.shut() { // what is behind its gate is not going to be delivered
		left -= from.readAhead()
	} else {
		left += from.link.queued()
	}
	if left == 0 || to.is(gone) {
		return false
	}
	now := drv.loop.Now()
	if l == nil {
		l = &lingering{reason: reason, cause: cause, left: left + 1, pause: lingerLeast}
		if drv.lingering == nil {
			drv.lingering = make(map[*Driven]*lingering)
		}
		drv.lingering[s] = l
		if s.is(toEnd) {
			drv.forgetEnd(s)
		}
		s.state &^= moving | toEnd
		s.reason = reason
	}
	if left < l.left {
		l.left, l.since = left, now
	}
	if now-l.since >= int64(drv.relay.linger) {
		return false
	}
	drv.loop.Arm(&s.timer, s, l.pause)
	l.pause = min(2*l.pause, lingerLongest)
	return true
}

// linger goes on with the end, and reports whether that is over.
func (s *Driven) linger() (ended bool) {
	l := s.drv.lingering[s]
	if s.lingers(l.reason, l.cause) {
		return false
	}
	s.settle(l.reason, l.cause)
	return true
}

// deliver makes the next attempt at delivering what the source of a direction has left, and returns how many bytes the
// direction holds after it.
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

// layerAt returns the layer of a side; nil: it has none.
func (s *Driven) layerAt(p *loopSocket) *layered {
	x, y := s.layers()
	if p == &s.a {
		return x
	}
	return y
}

// outlive is what a failed side has in place of an interruption of both: the direction that reads there goes on until it ends by itself, as it does
// unless the other side takes nothing for too long. It needs cutting, and reports whether that is so.
func (s *Session) outlive(side Side) bool {
	dead, to := &s.b, &s.a
	switch {
	case side == SideNone, s.a.waitsInside(), s.b.waitsInside(), s.ab.pacer() != nil:
		return false
	case side == SideA:
		dead, to = to, dead
	}
	if to.conn.SetReadDeadline(longAgo) != nil || dead.conn.SetWriteDeadline(longAgo) != nil {
		return false
	}
	s.outlived = true
	s.stuck = s.r.clock.afterFunc(s.r.linger, func() { s.lookAtSurvivor(-1) })
	return true
}

// lookAtSurvivor ends the wait for a side that has taken nothing since it had taken so many bytes.
func (s *Session) lookAtSurvivor(took int64) {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	if s.settled || !s.outlived {
		return
	}
	f, g := s.ab.flow(), s.ba.flow()
	if now := f.Bytes() + g.Bytes(); now != took {
		s.stuck = s.r.clock.afterFunc(s.r.linger, func() { s.lookAtSurvivor(now) })
		return
	}
	s.interruptBoth()
}

// awaitSurvivor waits, once both directions have stopped, until the side that has not failed has acknowledged all.
func (s *Session) awaitSurvivor() {
	to, last, since := &s.a, math.MaxInt, s.r.clock.now()
	if s.Result().Culprit == SideA {
		to = &s.b
	}
	for pause := lingerLeast; ; pause = min(2*pause, lingerLongest) {
		s.cutting.Lock()
		waits := s.outlived
		s.cutting.Unlock()
		left := 0
		if waits {
			left = unacknowledgedBy(to.conn)
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
