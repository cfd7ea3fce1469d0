package lane

import "time"

// Idle returns for how long no bytes were moved in user space, and no packet was carried in the lane. The former are known where the
// lane itself relays, for a session of Join and for one that was adopted. Of a session of an [Owner] in user space it counts from its begin, as [Session.Age]
// does, or from the last return. A session that is idle for too long is ended by [Session.Reset].
func (s *Session) Idle() time.Duration {
	if s.lane() == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.since()
	if s.gone() {
		last = max(last, int64(s.record().LastPacket()))
	}
	return time.Duration(max(0, now()-last)) // a packet may have been carried since
}

// expire resets the session if an endpoint has not acknowledged bytes, or answered probes, for too long. stalls and quiet are the sweep's.
func (s *Session) expire(stalls *stalls, quiet *silences) {
	at := now()
	by, found := stalls.look(s, at)
	if from, silent := quiet.look(s, at); silent && !found {
		by, found = from, true
	}
	if !found {
		return
	}
	s.mu.Lock()
	again := s.phase == over || s.dead != 0
	if !again {
		s.dead = uint8(by) + 1
	}
	s.mu.Unlock()
	if !again {
		s.lane().running.Go(s.Reset) // which waits for a grace period
	}
}
