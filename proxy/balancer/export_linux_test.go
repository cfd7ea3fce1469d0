package balancer

import "time"

// SetAfter has another function than time.AfterFunc call what is to be done after a time.
func (s *Server) SetAfter(after func(time.Duration, func()) *time.Timer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = after
}
