package relay

import (
	"time"

	"github.com/penstock/penstock/loop"
)

// Expired implements [loop.Expirer]: it cuts the session if a timeout has passed, and
// otherwise waits for the rest of it.
func (s *Driven) Expired(*loop.Timer) {
	if s.outlived() {
		s.move()
		return
	}
	if s.is(offered) && !s.regain() {
		s.refresh()
	}
	if !s.timeout() {
		s.lend()
	}
}

// timeout is Expired, and reports whether it has ended the session.
func (s *Driven) timeout() bool {
	if told := s.limits.Answered; told != nil && s.ba.spoken() && s.drv.loop.Now()-s.started >= int64(s.limits.FirstByte) {
		told()
		if s.is(over) { // that has cut it
			return true
		}
	}
	switch left, what := s.nextTimeout(); {
	case what == ReasonNone:
		s.drv.loop.Disarm(&s.timer)
	case left > 0:
		s.drv.loop.Arm(&s.timer, s, left)
	case what == ReasonIdle && s.is(carried) && !s.is(half) && s.offer().carrier.Return():
		s.drv.loop.Disarm(&s.timer) // and ends when it is back, see Driven.Return
	default:
		s.settle(what, timeoutError(what))
		return true
	}
	return false
}

// nextTimeout returns the time until the next timeout, and which it is, ReasonNone if
// there is none.
func (s *Driven) nextTimeout() (left time.Duration, what Reason) {
	now := s.drv.loop.Now()
	if s.ab.pace == resting || s.ba.pace == resting {
		s.pass(forBandwidth, now)
	}
	return s.limits.next(age{
		now: now, started: s.started, active: s.active, seed: s.seed(),
		half: s.is(half), answered: s.ba.answered() || s.ba.pace == resting,
	})
}

// seed is the session's own random number, which decides its lifetime: of a's first socket. One that has come back has it kept.
func (s *Driven) seed() int64 {
	if o := s.ab.rare.Load(); o != nil && o.seed != 0 {
		return o.seed
	}
	return s.started ^ int64(s.a.id)<<20
}
