package lane

import (
	"time"

	"github.com/penstock/penstock/lane/internal/program"
)

// TagSize is the size of a session's tag, in bytes.
const TagSize = program.TagSize

// A Tagged is an [Owner] whose session can be known again by a process that adopts it.
type Tagged interface {
	Owner
	// Tag returns bytes of the owner's choice, and when the session has begun, of the monotonic clock (CLOCK_MONOTONIC), from which
	// [Session.Age] counts; 0: now. It is called once, by [Lane.Register]. Both are kept in the kernel, beside the
	// session's account, and the lane does not look at the tag.
	Tag(s *Session) (tag [TagSize]byte, begun time.Duration)
}

// A mark is the part of a session's record that its owner decides.
type mark struct {
	tag     [TagSize]byte
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
	m.askTimes(owner, s)
	return m
}

// askTimes asks the owner for the session's own times.
func (m *mark) askTimes(owner Owner, s *Session) {
	if o, ok := owner.(Bounded); ok {
		m.timeout, m.bounded = o.UserTimeout(s), true
	}
	if o, ok := owner.(Probed); ok {
		m.probes, m.probed = o.KeepAlive(s), true
	}
}

// mark writes it to the session's record, before a packet can take the session: a process that adopts it finds all of it.
func (s *Session) mark(m *mark) {
	s.record().Mark(m.tag, time.Duration(m.begun))
	s.markTimes(m)
}

// markTimes writes the session's own times to its record.
func (s *Session) markTimes(m *mark) {
	r := s.record()
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
	return s.is(inherited) && s.phase != over
}

// Tag returns the tag of the session's [Tagged] owner, also of one in a process before this one; without one it is zero. False: the session has
// no place in the lane.
func (s *Session) Tag() (tag [TagSize]byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stays() != None || s.phase == over { // another session may have its place
		return tag, false
	}
	return s.record().Tag, true
}

// Retag changes the session's tag. A process that adopts it has this one, the one before or, if this process has died meanwhile, a zero one. It does
// nothing without a place in the lane.
func (s *Session) Retag(tag [TagSize]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of != nil && s.stays() == None && s.phase != over {
		s.record().Retag(&tag)
	}
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
