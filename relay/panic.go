package relay

import "errors"

// A wrapped connection may do other things than fail: any of its methods may panic,
// or end the goroutine that calls it. The session then ends, both connections are
// closed, nothing that is leased is kept, and a panic goes on in Run's caller, or
// on a goroutine of a session that was started.

// errPanicked cuts a session of which a wrapper panicked.
var errPanicked = errors.New("penstock: relay: a wrapped connection panicked")

// errLeft cuts a session of which a wrapper called runtime.Goexit, as t.FailNow of
// a test does.
var errLeft = errors.New("penstock: relay: a wrapped connection ended the goroutine that called it")

// notePanic notes a panic to go on with. The first one counts.
func (s *Session) notePanic(p any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.panicked == nil {
		s.panicked = p
	}
}

// guarded calls f, which may call a wrapper, and reports whether f returned.
func (s *Session) guarded(f func()) (returned bool) {
	defer func() {
		if p := recover(); p != nil {
			s.notePanic(p)
		}
	}()
	f()
	return true
}
