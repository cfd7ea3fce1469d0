package lane

import "errors"

// ProbeBoth sends a keepalive probe to both endpoints of a session in the lane.
func ProbeBoth(s *Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.probe(0), s.probe(1))
}

// Regrace puts a session in user space into a grace period that does not end by itself.
func Regrace(s *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disarm()
	s.set(graced, false)
}

// EndGrace ends the session's grace period, and reports whether the session needs another one.
func EndGrace(s *Session) (another bool) { return s.grace() }
