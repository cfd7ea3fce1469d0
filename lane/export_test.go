package lane

import "time"

// DueIn returns the timeout of a session that will have passed so long from now; nil: none will, if the session stays as it
// is.
func DueIn(s *Session, d time.Duration) error { return s.due(now() + int64(d)).err() }

// Now is the lane's time, in ns.
var Now = now
