package lane

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// TakeBack is [Session.ComeBack] for a session of [Lane.Register] whose owner relays it further: a and b are its new
// sockets, in place of those that it has given away by [Session.Leave], and the owner's now. They do not block, and have no options of those of before
// but TCP's own, and SO_REUSEADDR. ended are
// the directions, from a and from b, that have ended in the lane: nothing is read from there any more, and nothing
// written to the other side. The session stays in user space until MayLeave, and then leaves as before. It must not
// be called by the owner's loop: it waits.
//
// An error may come with both sockets, which are the owner's then as well: it closes them, for one of them could not be set up. Ended may be called
// before TakeBack has returned; the sockets are the owner's nevertheless.
//
// Without sockets, -1, and without an error the session was in user space. The error wraps os.ErrDeadlineExceeded if
// the owner has not called Leave in time: the session has left, and may be taken back later. It wraps os.ErrInvalid for a
// session without an owner.
func (s *Session) TakeBack(patience time.Duration) (a, b int, ended [2]bool, err error) {
	switch {
	case s.lane() == nil:
		return -1, -1, ended, fmt.Errorf("lane: take back: a zero Session: %w", net.ErrClosed)
	case s.owner() == nil:
		return -1, -1, ended, fmt.Errorf("lane: take back: the session has no owner: %w", os.ErrInvalid)
	}
	stopped, err := s.stop(patience)
	if err != nil || !stopped {
		return -1, -1, ended, err
	}
	fds, err := s.anew()
	if err != nil {
		return -1, -1, ended, err
	}
	ended, reset := s.back(nil)
	for _, fd := range fds {
		err = errors.Join(err, resume(fd))
	}
	if reset { // meanwhile
		s.Reset()
	}
	return fds[0], fds[1], ended, err
}
