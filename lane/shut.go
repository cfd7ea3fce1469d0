package lane

import (
	"errors"
	"fmt"
	"os"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/state"
)

// Shut begins to make a gap for a flow that has none: the endpoint of that side, a or b, sees a window of 0 from now on, and sends
// what it has begun to send and no more. Those of both are promised nothing more, and send what they were promised before: a window, which may be some megabytes, so that
// each waits for the slower one. The owner goes on relaying, and arms the session when it holds nothing. Once
// the peers have acknowledged all that its sockets have sent it calls Open. It reports false, and does nothing, for a session of
// Join, one that has left or has ended, and before a grace period has passed since Register, or since a MayLeave that has the session prepared anew.
func (s *Session) Shut(a, b bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner() == nil || s.phase != relaying || !s.is(graced) {
		return false
	}
	s.record().ShutSides([2]bool{a, b})
	s.lane().counts.gaps.Add(1)
	return true
}

// Open ends Shut: the sockets a and b, which are the owner's, send their endpoints their windows. If the session is armed the
// next packet takes it. It does nothing more than to end Shut for one that has left. An error is that of a socket whose window was not sent: its
// endpoint sees it with the next packet, or by a probe of its own.
func (s *Session) Open(a, b int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner() == nil || s.phase == over {
		return nil
	}
	r := s.record()
	defer r.ShutSides([2]bool{}) // until then only the probes show a window: the socket that sends one takes no session meanwhile
	var errs [2]error
	for i, fd := range [2]int{a, b} {
		if at := r.State(); !r.IsShut(i) || at == state.Lane || at == state.Done {
			continue // a packet that the lane has carried has the window of the other endpoint
		}
		if err := r.Announce(i, func() error { return sys.ProbeWindow(fd) }); err != nil {
			errs[i] = fmt.Errorf("lane: open: descriptor %d: %w", fd, os.NewSyscallError("setsockopt", err))
		}
	}
	return errors.Join(errs[:]...)
}
