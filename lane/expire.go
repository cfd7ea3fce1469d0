package lane

import (
	"errors"
	"time"
)

// Errors of a [Result], for sessions that a timeout of the [Config] has ended. That of Config.UserTimeout is a [TimedOut].
var (
	ErrIdle     = errors.New("lane: the session was idle for too long")
	ErrLifetime = errors.New("lane: the session has reached its lifetime")
)

// A timeout is the one that has a session end.
type timeout uint8

const (
	noTimeout timeout = iota
	idleTooLong
	lifetimeOver
	unacknowledged // by the endpoint of a; the next is that of b
	_
)

func (t timeout) err() error {
	return [...]error{
		idleTooLong: ErrIdle, lifetimeOver: ErrLifetime, unacknowledged: &TimedOut{By: 0}, unacknowledged + 1: &TimedOut{By: 1},
	}[t]
}

// Idle returns for how long no bytes were moved in user space, and no packet was carried in the lane. The former are known where the
// lane itself relays, for a session of Join and for one that was adopted. Of a session of an [Owner] in user space it counts from its begin, as [Session.Age]
// does, or from the last return.
func (s *Session) Idle() time.Duration {
	if s.lane() == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle(now())
}

// idle needs the lock.
func (s *Session) idle(at int64) time.Duration {
	last := s.since()
	if s.gone() {
		last = max(last, int64(s.record().LastPacket()))
	}
	return time.Duration(max(0, at-last)) // a packet may have been carried since
}

// due returns the timeout of the session that has passed at a time of the monotonic clock, in ns.
func (s *Session) due(at int64, quiet *silences) timeout {
	c := &s.lane().cfg
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.Lifetime > 0 && at-s.began() > int64(c.Lifetime):
		return lifetimeOver
	case c.IdleTimeout > 0 && quiet.idle(s, at) > c.IdleTimeout && (s.owner() == nil || s.gone()): // bytes that an owner moves are not seen
		return idleTooLong
	}
	return noTimeout
}

// expire resets the session if one of its timeouts has passed. stalls and quiet are the sweep's.
func (s *Session) expire(stalls *stalls, quiet *silences) {
	at := now()
	why := s.due(at, quiet)
	if by, found := stalls.look(s, at); found && why == noTimeout {
		why = unacknowledged + timeout(by)
	}
	if by, found := quiet.look(s, at); found && why == noTimeout {
		why = unacknowledged + timeout(by)
	}
	if why == noTimeout {
		return
	}
	s.mu.Lock()
	again := s.phase == over || s.why != noTimeout
	if !again {
		s.why = why
	}
	s.mu.Unlock()
	if !again {
		s.lane().running.Go(s.Reset) // which waits for a grace period
	}
}
