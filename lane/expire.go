package lane

import (
	"errors"
	"time"
)

// Errors of a [Result], for sessions that a timeout of the [Config] has ended.
var (
	ErrIdle     = errors.New("lane: the session was idle for too long")
	ErrLifetime = errors.New("lane: the session has reached its lifetime")
)

// Idle returns for how long no bytes were moved in user space, and no packet was carried in the lane. The former
// are known only for a session of Join, and if the lane has an IdleTimeout: else it counts from the join, or from the last return.
func (s *Session) Idle() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.since
	if s.gone() {
		last = max(last, int64(s.record().LastPacket()))
	}
	return time.Duration(now() - last)
}

// expire resets the session if one of its timeouts has passed.
func (s *Session) expire() {
	c := &s.lane.cfg
	if c.IdleTimeout <= 0 && c.Lifetime <= 0 {
		return
	}
	var why error
	switch idle := s.Idle(); {
	case c.Lifetime > 0 && now()-s.begun > int64(c.Lifetime):
		why = ErrLifetime
	case c.IdleTimeout > 0 && idle > c.IdleTimeout && (s.owner == nil || s.left()): // bytes that an owner moves are not seen
		why = ErrIdle
	}
	s.mu.Lock()
	again := why == nil || s.phase == over || s.why != nil
	if !again {
		s.why = why
	}
	s.mu.Unlock()
	if !again {
		s.lane.running.Go(s.Reset) // which waits for a grace period
	}
}
