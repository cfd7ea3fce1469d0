package lane

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// leave closes the sockets of a session that the program has taken. Both are put in repair first, so that they
// send nothing. A new socket in repair then holds the local port of the connection to b: no other connection of
// this host can use that port for the same remote address. The new socket has no timers, which the former one
// may have had.
func (s *Session) leave(conn [2]*net.TCPConn) {
	for _, c := range conn {
		if err := control(c, func(fd int) error { return sys.Repair(fd, true) }); err != nil {
			s.lane().counts.failed.Add(1) // the guard drops its FIN
		}
		_ = c.Close()
	}
	s.departed()
}

// departed notes that the sockets are closed, and holds the port.
func (s *Session) departed() {
	l := s.record().Leg(1)
	hold, err := sys.Established(l.Local, l.Remote, 0, 0)
	if err != nil {
		s.lane().counts.failed.Add(1)
	}
	s.mu.Lock()
	conn := s.sockets()
	s.setSockets(nil)
	s.hold, s.phase = int32(hold), away
	s.set(flew, true)
	reset := s.is(toReset)
	if s.is(forgotten) && !reset {
		s.forget()
	}
	s.mu.Unlock()
	s.lane().unrelay(conn)
	s.lane().counts.departed.Add(1)
	if reset {
		s.resetAway()
	}
	s.settle()
}

// letGo closes the socket that holds the port.
func (s *Session) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold >= 0 {
		_ = syscall.Close(int(s.hold)) // in repair: nothing is sent
	}
	s.hold = -1
}

// awaitsOwner reports whether a session has ended while no process had the lane, and [Lane.Own] may still give it to an owner,
// to whom its end is reported then. It needs the lock.
func (s *Session) awaitsOwner() bool {
	return s.is(unseen) && s.owner() == nil && now()-s.lane().opened < int64(s.lane().cfg.Linger)
}

// settle checks whether a session in the lane has ended, and then ends it here too.
func (s *Session) settle() {
	s.mu.Lock()
	r := s.record()
	ended := s.phase == away && r.State() == state.Done && !s.awaitsOwner()
	s.mu.Unlock()
	if !ended {
		return
	}
	f := s.flows()
	reset := !translate.Ended(&f[0], &f[1])
	if reset {
		// The endpoint may have ignored the RST because it did not fit the connection (RFC 5961), or because it
		// was damaged. It would then wait for the other endpoint, which has gone. A session that has ended
		// carries nothing more.
		s.letGo()
		r.Change(state.Reset, state.Done)
		s.sendResets()
	}
	s.over(reset, nil)
}

// over ends the session and reports its end. Only the first call does anything.
func (s *Session) over(reset bool, err error) {
	r, first := s.conclude(reset, err)
	if !first {
		return
	}
	if end := s.lane().takeEnd(s); end != nil {
		end(r)
	}
	if s.owner() != nil {
		s.lane().running.Go(func() { s.owner().Ended(s, r) }) // on another goroutine: the caller of Reset may hold a lock that the owner waits for
	}
	s.finished()
}

// takeEnd returns the function of Join that is called with the result. Later calls return nil.
func (l *Lane) takeEnd(s *Session) func(Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.ends[s]
	delete(l.ends, s)
	return end
}

// conclude does what over does, but reports nothing. The caller must call finished if first is true.
func (s *Session) conclude(reset bool, err error) (r Result, first bool) {
	s.mu.Lock()
	if s.phase == over {
		s.mu.Unlock()
		return r, false
	}
	if s.dead != 0 {
		err = &TimedOut{By: int(s.dead) - 1}
	}
	gone, stays := s.gone(), s.stays()
	r = Result{Bytes: s.bytes(), Left: s.is(flew), Reset: reset, Err: err}
	if reset {
		r.Bytes = s.carried()
	}
	r.View.EndedBy = -1
	if s.is(flew) {
		r.View = s.view()
	}
	if gone {
		s.record().Report()
	}
	s.setMoved(r.Bytes)
	s.end(now())
	conn := s.sockets()
	s.setSockets(nil)
	if s.is(armed) {
		s.record().Change(state.User, state.Armed, state.Claimed)
	}
	s.mu.Unlock()
	s.lane().unrelay(conn)
	switch {
	case stays != None:
		s.lane().mu.Lock()
		delete(s.lane().staying, s)
		s.lane().mu.Unlock()
	case !gone:
		s.lane().release(s, state.User)
	} // otherwise it has ended in the lane: it lingers and still holds its port, from which the guard lets no new connection out
	s.lane().counts.ended.Add(1)
	if reset {
		s.lane().counts.reset.Add(1)
	}
	return r, true
}

// Reset ends the session and resets both connections, at the numbers that the endpoints expect. It returns when
// the RSTs are sent, or are about to be sent. If a session of an [Owner] is in user space, its sockets still
// belong to the owner and are not reset, and the session never leaves.
func (s *Session) Reset() {
	s.mu.Lock()
	s.set(toReset, true)
	conn, mine, isAway := s.sockets(), s.disarm(), s.phase == away
	s.mu.Unlock()
	switch {
	case mine && s.owner() != nil:
		s.over(true, nil)
	case mine && conn != nil:
		interrupt(*conn)
	case isAway:
		s.resetAway()
	default: // it is leaving or over
		s.noteLeft()
	}
}

// resetAway resets a session in the lane. It drops the session's packets first, so that the sequence numbers do
// not change any more. Afterwards the kernel's stack has the connections again, without sockets, and resets an
// endpoint that sends more.
func (s *Session) resetAway() {
	s.mu.Lock()
	stopped := s.record().Stop(true)
	s.mu.Unlock()
	if !stopped {
		return // it ends by itself
	}
	s.lane().mu.Lock()
	s.lane().batch.resetting = append(s.lane().batch.resetting, s)
	s.lane().knocked()
	s.lane().mu.Unlock()
}

// resetHeld is the second half of resetAway, after a grace period. err becomes the error of the result.
func (s *Session) resetHeld(err error) {
	r := s.record()
	s.letGo()
	r.Change(state.Reset, state.Held)
	s.sendResets()
	s.over(true, err)
}

// sendResets resets both sides of a session after its packets go to the kernel's stack again.
func (s *Session) sendResets() {
	for i := range 2 {
		if s.record().Resets(i, sendReset) != nil {
			s.lane().counts.failed.Add(1)
			s.lane().mu.Lock()
			s.lane().unsent = append(s.lane().unsent, unsent{s, i})
			s.lane().mu.Unlock()
		}
	}
}

// An unsent is a reset of one side that could not be sent, for example because there was no descriptor.
type unsent struct {
	session *Session
	side    int
}

// sendAgain tries unsent resets again if their sessions still have a place.
func (l *Lane) sendAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsent = slices.DeleteFunc(l.unsent, func(u unsent) bool {
		s := u.session
		return l.sessions[s.slot] != s || s.record().Resets(u.side, sendReset) == nil
	})
}

// sendReset makes a socket that sends an RST at the number that the connection sends next.
func sendReset(c sys.Connection) error {
	fd, err := sys.Established(c.Local, c.Remote, c.Send, c.Receive)
	if err != nil {
		return err
	}
	if err = sys.Repair(fd, false); err == nil {
		err = sys.AbortOnClose(fd)
	}
	if e := syscall.Close(fd); err == nil {
		err = e
	}
	return err
}

// A parting says how to close the sockets of a session that ended before its owner gave them away.
type parting struct {
	left  bool // the lane has carried the session, so its sockets are closed silently
	reset bool // both sides are reset then, at these numbers
	sides [2]sys.Connection
}

// cut ends a session for Close. While its owner has not given the sockets away, their addresses are in use and
// no RST can be sent from there. Such a session ends here, and Leave sends the RSTs.
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
	_ = sys.GracePeriod() // it worked in Probe; if one more packet passes, the endpoint only challenges the RST
	r, f := s.record(), s.flows()
	p := parting{left: true, reset: !translate.Ended(&f[0], &f[1]), sides: [2]sys.Connection{r.Connection(0), r.Connection(1)}}
	r.Change(state.Reset, state.Held)
	s.lane().counts.departed.Add(1)
	if !s.lane().owes(s, p) {
		s.lane().counts.failed.Add(p.send())
	}
	s.over(p.reset, nil)
}

// owes notes how a session's sockets must be closed when its owner calls Leave. It returns false if the owner
// has already called Leave.
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

// send resets both sides if necessary, and returns how many resets failed.
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

// closeSilently puts sockets in repair, so that they send nothing, and closes them. It returns how many could
// not be put in repair.
func closeSilently(sockets [2]int) (failed uint64) {
	for _, fd := range sockets {
		if sys.Repair(fd, true) != nil {
			failed++
		}
		_ = syscall.Close(fd)
	}
	return failed
}

// Shut begins to make a gap in a session that has none. With one side, a or b, the endpoint of that side sees a
// window of 0 from now on, and sends only the rest of what it has begun to send. With both sides, the endpoints
// get no more window, and send only what they were promised before. That can be some megabytes, and the gap
// comes only when the slower endpoint has sent its part. The owner goes on relaying, and arms the session when
// it holds no bytes of it. Once the peers have acknowledged everything that the owner's sockets have sent, the
// owner calls Open.
//
// Shut does nothing and returns false if Join made the session, or if the session has left or has ended. It
// also returns false until a grace period has passed since Register, or since a MayLeave that prepared the
// session again.
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

// Open ends Shut: the owner's sockets a and b announce their windows to the endpoints. If the session is armed,
// the next packet takes it. If the session has left, Open announces nothing. The error names each socket that
// could not announce its window. The endpoint of that socket learns the window from the next packet, or by a
// probe of its own.
func (s *Session) Open(a, b int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner() == nil || s.phase == over {
		return nil
	}
	r := s.record()
	defer r.ShutSides([2]bool{}) // only then do other packets show a window, so none can take the session at a socket that is still sending its probe
	var errs [2]error
	for i, fd := range [2]int{a, b} {
		if at := r.State(); !r.IsShut(i) || at == state.Lane || at == state.Done {
			continue // packets that the lane has carried show the other endpoint's window
		}
		if err := r.Announce(i, func() error { return sys.ProbeWindow(fd) }); err != nil {
			errs[i] = fmt.Errorf("lane: open: descriptor %d: %w", fd, os.NewSyscallError("setsockopt", err))
		}
	}
	return errors.Join(errs[:]...)
}
