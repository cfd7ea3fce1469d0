package relay

import (
	"fmt"
	"os"
	"time"
)

// A session has one timer for all of its timeouts. It is not touched when bytes
// move: a move stores the time, and the timer, when it fires, looks at how long
// ago that was and either cuts the session or sleeps for the rest.

// startTimer arms the timer for the first time, if there is any timeout.
func (s *Session) startTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.untilTimeout(); ok {
		s.timer = s.r.clock.afterFunc(d, s.onTimer)
	}
}

// untoldTimeout is the half-close timeout of a session without one, if an end of
// file could not be passed on: the other side does not know, and may wait for ever.
const untoldTimeout = time.Minute

// directionEnded starts the half-close timeout when the first direction, d, ends.
func (s *Session) directionEnded(d *direction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halfClose = s.r.cfg.HalfCloseTimeout
	if s.halfClose == 0 && d.hasFallen(FallbackHalfClose) {
		s.halfClose = untoldTimeout
	}
	if s.halfClose == 0 || s.halfOpen.Swap(true) || s.reason != ReasonNone {
		return
	}
	s.active.Store(s.r.clock.now())
	if s.timer == nil {
		s.timer = s.r.clock.afterFunc(s.halfClose, s.onTimer)
		return
	}
	if d, ok := s.untilTimeout(); ok {
		s.timer.Reset(d)
	}
}

func (s *Session) onTimer() {
	s.mu.Lock()
	if s.timer == nil || s.reason != ReasonNone {
		s.mu.Unlock()
		return
	}
	d, _ := s.untilTimeout()
	if d > 0 {
		s.timer.Reset(d)
		s.mu.Unlock()
		return
	}
	reason := s.overdue()
	s.mu.Unlock()
	_ = s.cut(reason, fmt.Errorf("penstock: relay: %v: %w", reason, os.ErrDeadlineExceeded))
}

// untilTimeout returns the time until the next timeout, if there is any.
func (s *Session) untilTimeout() (d time.Duration, ok bool) {
	now := s.r.clock.now()
	if quiet := s.quietTimeout(); quiet > 0 {
		d, ok = quiet-time.Duration(now-s.active.Load()), true
	}
	if life := s.r.cfg.MaxLifetime; life > 0 {
		left := life - time.Duration(now-s.started.Load())
		if !ok || left < d {
			d, ok = left, true
		}
	}
	return d, ok
}

// hasQuietTimeout reports whether it may ever matter when bytes last moved.
func (s *Session) hasQuietTimeout() bool {
	_, a := s.a.dst.(closeWriter)
	_, b := s.b.dst.(closeWriter)
	return s.r.cfg.IdleTimeout > 0 || s.r.cfg.HalfCloseTimeout > 0 || !a || !b
}

// quietTimeout is how long no byte may move, in the state the session is in.
func (s *Session) quietTimeout() time.Duration {
	if s.halfOpen.Load() {
		return s.halfClose
	}
	return s.r.cfg.IdleTimeout
}

// overdue names the timeout that has passed.
func (s *Session) overdue() Reason {
	life := s.r.cfg.MaxLifetime
	switch {
	case life > 0 && s.r.clock.now()-s.started.Load() >= int64(life):
		return ReasonLifetime
	case s.halfOpen.Load():
		return ReasonHalfClose
	}
	return ReasonIdle
}
