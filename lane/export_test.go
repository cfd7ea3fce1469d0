package lane

import (
	"errors"
	"time"
)

// DueIn returns the timeout of a session that will have passed so long from now; nil: none will, if the session stays as it
// is.
func DueIn(s *Session, d time.Duration) error { return s.due(now()+int64(d), new(silences)).err() }

// Now is the lane's time, in ns.
var Now = now

// ProbeBoth sends a keepalive probe to both endpoints of a session in the lane.
func ProbeBoth(s *Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.probe(0), s.probe(1))
}
