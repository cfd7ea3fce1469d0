package lane

import "errors"

// ProbeBoth sends a keepalive probe to both endpoints of a session in the lane.
func ProbeBoth(s *Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.probe(0), s.probe(1))
}
