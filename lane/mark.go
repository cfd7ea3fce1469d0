package lane

import (
	"fmt"
	"net"
	"os"
	"time"
)

// A Tagged is an [Owner] whose session can be known again by a process that adopts it.
type Tagged interface {
	Owner
	// Tag returns bytes of the owner's choice, and when the session has begun, of the monotonic clock (CLOCK_MONOTONIC), from which
	// Config.Lifetime and [Session.Age] count; 0: now. It is called once, by [Lane.Register]. Both are kept in the kernel, beside the
	// session's account, and the lane does not look at the tag.
	Tag(s *Session) (tag [16]byte, begun time.Duration)
}

// A mark is the part of a session's record that its owner decides.
type mark struct {
	tag     [16]byte
	begun   int64
	timeout time.Duration
	bounded bool
	probes  time.Duration
	probed  bool
}

// askOwner returns the mark of a session that is about to be registered, at a time of the monotonic clock.
func askOwner(owner Owner, s *Session, at int64) (m mark) {
	m.begun = at
	if o, ok := owner.(Tagged); ok {
		tag, begun := o.Tag(s)
		m.tag = tag
		if begun > 0 && int64(begun) < at {
			m.begun = int64(begun)
		}
	}
	if o, ok := owner.(Bounded); ok {
		m.timeout, m.bounded = o.UserTimeout(s), true
	}
	if o, ok := owner.(Probed); ok {
		m.probes, m.probed = o.KeepAlive(s), true
	}
	return m
}

// mark writes it to the session's record, before a packet can take the session: a process that adopts it finds all of it.
func (s *Session) mark(m *mark) {
	r := s.record()
	r.Mark(m.tag, time.Duration(m.begun))
	if m.bounded {
		r.Bound(m.timeout)
	}
	if m.probed {
		r.KeepAlive(m.probes)
	}
}

// Adopted reports whether the session is of a process before this one, and has not ended.
func (s *Session) Adopted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is(adopted) && s.phase != over
}

// Tag returns the tag of the session's [Tagged] owner, also of one in a process before this one; without one it is zero. False: the session has
// no place in the lane.
func (s *Session) Tag() (tag [16]byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stays() != None || s.phase == over { // another session may have its place
		return tag, false
	}
	return s.record().Tag, true
}

// Identity returns the session's number among all that the table has had, and when it has begun, of the monotonic clock. Together they are the same in each process that
// adopts the session, and never those of another session, also of a table that is made later. Both are 0 for one that has no place in the lane, or has ended.
func (s *Session) Identity() (number uint32, begun time.Duration) {
	if s.lane() == nil {
		return 0, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stays() != None || s.phase == over { // another session may have its place
		return 0, 0
	}
	return s.record().Generation, time.Duration(s.began())
}

// Age returns for how long there has been the session: since Join or Register, also if that was called by a process before this one,
// or since the begin that a [Tagged] has given.
func (s *Session) Age() time.Duration {
	if s.lane() == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(now() - s.began())
}

// SetUserTimeout gives the session another user timeout, in place of that of its [Bounded] owner and of [Config.UserTimeout]; 0: it has
// none. It is meant for sessions that were adopted. The error wraps net.ErrClosed for one that has no place in the lane, and os.ErrInvalid for a negative time.
func (s *Session) SetUserTimeout(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("lane: set user timeout: %v: %w", d, os.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stays() != None || s.phase == over {
		return fmt.Errorf("lane: set user timeout: the session has no place in the lane: %w", net.ErrClosed)
	}
	s.record().Bound(d)
	return nil
}

// AtEnd has end be called once when an adopted session has ended, as that of [Lane.Join] is, and reports whether it will be: not for
// one that has ended, goes on without this process after [Lane.Leave], or is of this process. A later call replaces the function.
func (s *Session) AtEnd(end func(Result)) bool {
	l := s.lane()
	if l == nil || end == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.Adopted() { // one that ends from here on takes its function under the lock of the lane
		return false
	}
	l.ends[s] = end
	return true
}
