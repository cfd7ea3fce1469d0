package relay

import "time"

// Idle returns for how long no byte has moved; after one direction has ended, since then
// if that was later. After the session's end it means nothing.
func (s *Driven) Idle() time.Duration {
	if s.drv == nil {
		return 0
	}
	if s.is(carried) {
		s.refresh()
	}
	return time.Duration(s.drv.loop.Now() - s.active)
}

// Descriptors returns the session's sockets, which stay its own, for getpeername(2) and the
// like. They mean nothing before Start and after the end, and are -1 while a [Carrier] has the session.
func (s *Driven) Descriptors() (a, b int) { return int(s.a.fd), int(s.b.fd) }

// Idle returns for how long no byte has moved, as far as that is known: without
// [Config.IdleTimeout], [Config.HalfCloseTimeout] and [Config.LegsAfter] the time is not recorded, as a rule. It
// may be called at any time by any goroutine; before Run and after its end it means nothing.
func (s *Session) Idle() (d time.Duration, known bool) {
	if s.started.Load() == 0 || !s.hasQuietTimeout() && s.waits == nil {
		return 0, false
	}
	return time.Duration(s.r.clock.now() - s.active.Load()), true
}
