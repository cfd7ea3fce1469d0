package program

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"time"
	"unsafe"
)

// Mark notes whose session it is, and when it has begun, of the monotonic clock. The programs neither read nor write that: it is for
// user space, also of the process after this one.
func (s *Session) Mark(tag [TagSize]byte, begun time.Duration) { s.Tag, s.Joined = tag, uint64(begun) }

// TagSize is the size of a tag.
const TagSize = len(laneSession{}.Tag)

// Retag changes the tag: the first eight bytes, which are aligned, are zero until the others are written, and then written at once.
func (s *Session) Retag(tag *[TagSize]byte) {
	first := (*uint64)(unsafe.Pointer(&s.Tag))
	atomic.StoreUint64(first, 0)
	copy(s.Tag[8:], tag[8:])
	atomic.StoreUint64(first, binary.NativeEndian.Uint64(tag[:]))
}

// Began returns when the session has begun.
func (s *Session) Began() time.Duration { return time.Duration(s.Joined) }

// Report notes that the session's end is reported, so that no process after this one reports it.
func (s *Session) Report() { s.Reported = 1 }

// IsReported reports whether the end was reported.
func (s *Session) IsReported() bool { return s.Reported != 0 }

// ProbePriority is the SO_PRIORITY of a socket whose acknowledgements the guard lets out while the lane has its session: PROBE of the programs.
const ProbePriority = 0x6c616e65

// Bound gives the session a user timeout of its own, rounded up to milliseconds; 0: it has none, and no other one binds it.
func (s *Session) Bound(timeout time.Duration) { s.UserTimeout = own(timeout) }

// Bounded returns the session's own user timeout, or false if it has none of its own.
func (s *Session) Bounded() (timeout time.Duration, own bool) { return ownOf(s.UserTimeout) }

// KeepAlive gives the session a keepalive time of its own, as Bound does.
func (s *Session) KeepAlive(after time.Duration) { s.Keepalive = own(after) }

// KeptAlive returns the session's own keepalive time, or false if it has none of its own.
func (s *Session) KeptAlive() (after time.Duration, own bool) { return ownOf(s.Keepalive) }

// own is a time of a session's own in its record: in ms and 1 more; 0: it has none.
func own(d time.Duration) uint32 {
	ms := (max(d, 0) + time.Millisecond - 1) / time.Millisecond
	return uint32(min(ms, math.MaxUint32-1)) + 1
}

func ownOf(word uint32) (d time.Duration, own bool) {
	if word == 0 {
		return 0, false
	}
	return time.Duration(word-1) * time.Millisecond, true
}
