package relay

import (
	"time"
)

// A session has one timer for all of its timeouts. It is not touched when bytes
// move: a move stores the time, and the timer, when it fires, looks at how long
// ago that was and either cuts the session or sleeps for the rest.

// startTimer arms the timer for the first time, if there is any timeout.
func (s *Session) startTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left, what := s.nextTimeout(); what != ReasonNone {
		s.timer = s.r.clock.afterFunc(left, s.onTimer)
	}
}

// untoldTimeout is the half-close timeout of a session without one, if an end of
// file could not be passed on: the other side does not know, and may wait for ever.
const untoldTimeout = 5 * time.Second

// directionEnded ends the session if the first end counts.
// Otherwise it starts the half-close timeout if d is the first direction that ends.
func (s *Session) directionEnded(d *direction) {
	if s.r.cfg.CloseOnEOF {
		defer s.cut(ReasonEOF, nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == SideNone && s.reason == ReasonNone {
		s.first = SideA
		if d == &s.ba {
			s.first = SideB
		}
	}
	s.untold = s.limits.HalfCloseTimeout <= 0 && d.hasFallen(FallbackHalfClose)
	if s.limits.HalfCloseTimeout <= 0 && !s.untold || s.halfOpen.Swap(true) || s.reason != ReasonNone {
		return
	}
	s.active.Store(s.r.clock.now())
	left, _ := s.nextTimeout()
	if s.timer == nil {
		s.timer = s.r.clock.afterFunc(left, s.onTimer)
		return
	}
	s.timer.Reset(left)
}

func (s *Session) onTimer() {
	s.mu.Lock()
	if s.timer == nil || s.reason != ReasonNone {
		s.mu.Unlock()
		return
	}
	left, what := s.nextTimeout()
	if left > 0 {
		if what != ReasonNone {
			s.timer.Reset(left)
		}
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	_ = s.cut(what, timeoutError(what))
}

// nextTimeout returns the time until the next timeout, and which it is, ReasonNone if
// there is none. It is called with mu held.
func (s *Session) nextTimeout() (left time.Duration, what Reason) {
	limits := s.limits
	if s.untold {
		l := *limits
		l.HalfCloseTimeout = untoldTimeout
		limits = &l
	}
	now, started := s.r.clock.now(), s.started.Load()
	moved := s.ab.moved() + s.ba.moved()
	if s.ab.resting() || s.ba.resting() || s.untold && moved != s.moved {
		s.active.Store(now)
	}
	s.moved = moved
	s.heard = s.heard || s.ba.answered() || s.ba.resting()
	if told := limits.Answered; told != nil && s.ba.spoken() && now-started >= int64(limits.FirstByte) {
		told()
	}
	return limits.next(age{
		now: now, started: started, active: s.active.Load(), seed: started,
		half: s.halfOpen.Load(), answered: s.heard,
	})
}

// hasQuietTimeout reports whether each move is noted. Where an end could not be passed on, which is not known yet, the
// timer compares the bytes (Session.moved).
func (s *Session) hasQuietTimeout() bool {
	return s.limits.IdleTimeout > 0 || s.limits.HalfCloseTimeout > 0
}
