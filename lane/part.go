package lane

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// A parting is how to close the sockets of a session that has ended before its owner has given them away.
type parting struct {
	left  bool // the lane has carried it, so that its sockets are closed in silence
	reset bool // then both sides are reset at these numbers
	sides [2]sys.Connection
}

// cut ends a session for Close. One whose sockets its owner has not given away yet cannot be reset between their
// addresses: it ends here, and is reset by Leave.
func (s *Session) cut() {
	s.Reset()
	s.mu.Lock()
	owed := s.owner() != nil && s.phase == leaving && !s.is(handed)
	if owed {
		s.phase = returning
		s.set(flew, true)
		s.record().Stop(true)
	}
	s.mu.Unlock()
	if !owed {
		return
	}
	_ = sys.GracePeriod() // it worked in Probe; a packet more has the endpoint challenge the reset
	r, f := s.record(), s.flows()
	p := parting{left: true, reset: !translate.Ended(&f[0], &f[1]), sides: [2]sys.Connection{r.Connection(0), r.Connection(1)}}
	r.Change(state.Reset, state.Held)
	s.lane().counts.departed.Add(1)
	if !s.lane().owes(s, p) {
		s.lane().counts.failed.Add(p.send())
	}
	s.over(p.reset, nil)
}

// owes notes how the sockets are to be closed of a session whose owner has not called Leave, or returns false.
func (l *Lane) owes(s *Session, p parting) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.is(handed) {
		return false
	}
	l.parting[s] = p
	return true
}

// send resets both sides, and returns how many could not be.
func (p *parting) send() (failed uint64) {
	for i := range p.sides {
		if p.reset && sendReset(p.sides[i]) != nil {
			failed++
		}
	}
	return failed
}

// part closes the sockets of a session that has ended.
func (l *Lane) part(s *Session, sockets [2]int) error {
	l.mu.Lock()
	p := l.parting[s]
	delete(l.parting, s)
	l.mu.Unlock()
	if p.left {
		l.counts.failed.Add(closeSilently(sockets) + p.send())
		return nil
	}
	var errs []error
	for _, fd := range sockets { // it has ended in user space
		errs = append(errs, sys.AbortOnClose(fd), syscall.Close(fd))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("lane: leave: %w", err)
	}
	return nil
}

// closeSilently closes sockets in repair, so that they send nothing, and returns how many could not be put in repair.
func closeSilently(sockets [2]int) (failed uint64) {
	for _, fd := range sockets {
		if sys.Repair(fd, true) != nil {
			failed++
		}
		_ = syscall.Close(fd)
	}
	return failed
}
