//go:build linux

package proxy

import "time"

// SetAfter replaces the clock of the drain timeout.
func (s *Server) SetAfter(f func(time.Duration) <-chan time.Time) { s.after = f }
