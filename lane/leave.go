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

// leave closes the sockets of a session that the program has taken, both in repair, so that they
// send nothing. A socket in repair that is made again holds the local port of the connection to b:
// no other connection of this host can be made to the same address from it. It has no timers, which
// the former socket could have.
func (s *Session) leave(conn [2]*net.TCPConn) {
	for _, c := range conn {
		if err := control(c, func(fd int) error { return sys.Repair(fd, true) }); err != nil {
			s.lane().counts.failed.Add(1) // the guard keeps in its FIN
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

// settle looks whether a session that is away has ended.
func (s *Session) settle() {
	s.mu.Lock()
	r := s.record()
	ended := s.phase == away && r.State() == state.Done
	s.mu.Unlock()
	if !ended {
		return
	}
	f := s.flows()
	reset := !translate.Ended(&f[0], &f[1])
	if reset {
		// The endpoint may not have taken the RST for its connection's (RFC 5961), or may have found it damaged, and wait for
		// the other endpoint, which has gone. A session that has ended carries nothing more.
		s.letGo()
		r.Change(state.Reset, state.Done)
		s.sendResets()
	}
	s.over(reset, nil)
}

// over ends the session, once, and reports its end.
func (s *Session) over(reset bool, err error) {
	r, first := s.conclude(reset, err)
	if !first {
		return
	}
	if end := s.lane().takeEnd(s); end != nil {
		end(r)
	}
	if s.owner() != nil {
		s.lane().running.Go(func() { s.owner().Ended(s, r) }) // not by the caller of Reset, which may hold a lock that the owner waits for
	}
	s.finished()
}

// takeEnd returns the function of Join that the end is reported to, once.
func (l *Lane) takeEnd(s *Session) func(Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.ends[s]
	delete(l.ends, s)
	return end
}

// conclude is over without its reports. The first caller calls finished.
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
	} // in the lane it lingers, and holds its port: a new connection from there would not be let out
	s.lane().counts.ended.Add(1)
	if reset {
		s.lane().counts.reset.Add(1)
	}
	return r, true
}

// Reset ends the session: both connections are reset, in the sequence that each endpoint expects. It
// returns when the resets are sent, or on their way. A session of an [Owner] that is in user space stays
// there, and never leaves.
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
	default: // it is leaving, or over
		s.noteLeft()
	}
}

// resetAway resets a session that the lane has. Packets are dropped meanwhile, so that the numbers
// stay; then the stack has the connections again, without sockets, and resets an endpoint that sends more.
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

// resetHeld is the second half, after a grace period. err is the result's error.
func (s *Session) resetHeld(err error) {
	r := s.record()
	s.letGo()
	r.Change(state.Reset, state.Held)
	s.sendResets()
	s.over(true, err)
}

// sendResets resets both sides of a session that the stack has again.
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

// An unsent is a reset to one side that could not be sent, such as without descriptors.
type unsent struct {
	session *Session
	side    int
}

// sendAgain tries the resets again of sessions that still have their place.
func (l *Lane) sendAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsent = slices.DeleteFunc(l.unsent, func(u unsent) bool {
		s := u.session
		return l.sessions[s.slot] != s || s.record().Resets(u.side, sendReset) == nil
	})
}

// sendReset sends an RST at the number that a connection sends next: of a socket that is made for that.
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

// A parting is how to close the sockets of a session that has ended before its owner has given them away.
type parting struct {
	left  bool // the lane has carried it, so that its sockets are closed in silence
	reset bool // then both sides are reset at these numbers
	sides [2]sys.Connection
}

// cut ends a session for Close. If its owner has not given the sockets away yet, it cannot be reset
// between their addresses: it ends here, and Leave resets it.
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

// owes notes how a session's sockets are to be closed when its owner calls Leave. It returns false
// if the owner already has.
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

// Shut begins to make a gap for a flow that has none. With one side, a or b, its endpoint sees a window of 0 from now
// on, and sends no more than it has begun to send. With both sides, the endpoints get no more window, and send what
// they were promised before. That may be some megabytes, so each waits for the slower one. The owner goes on relaying,
// and arms the session when it holds nothing. Once the peers have acknowledged all that its sockets have sent it calls
// Open. It reports false, and does nothing, if the session was made by Join, or has left or ended, and before a grace
// period has passed since Register, or since a MayLeave that prepares the session again.
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

// Open ends Shut: the owner's sockets a and b announce their windows to the endpoints. If the session is armed the next
// packet takes it. If the session has left it only ends Shut. The error says which socket's window was not sent: the
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
