package lane

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// gapPeriod is how often a session that is to come back is looked at.
const gapPeriod = 500 * time.Microsecond

// ComeBack takes the session back to user space, where it goes on, and stays until [Session.MayLeave].
// It waits for a gap, at which all that was sent is acknowledged, for as long as patience; then it
// makes one: packets are dropped for some tens of milliseconds, and the endpoints send them again. A session in user space
// only stays there from now on.
//
// A session of an [Owner] is refused with an error that wraps os.ErrInvalid: it is for [Session.TakeBack]. So is a call
// while [Config.Restored] runs for the session.
//
// Sockets are made again for it by TCP_REPAIR, see [Config.Restored]. Where that fails both connections are reset, in
// sequence: the error wraps a [Reason] and its cause, and the [Result] has the same error; Stats.Unrestored counts
// it. If there are no descriptors for the resets they are tried again for as long as [Config.Linger]; meanwhile the
// kernel resets an endpoint that sends something. The error wraps net.ErrClosed if the session has ended.
func (s *Session) ComeBack(patience time.Duration) error {
	if s.owner() != nil {
		return fmt.Errorf("lane: come back: the session has an owner: %w", os.ErrInvalid)
	}
	stopped, err := s.stop(patience)
	if err != nil || !stopped {
		return err
	}
	return s.goOn()
}

// stop keeps the session in user space, and reports whether it was in the lane: then it is returning.
func (s *Session) stop(patience time.Duration) (stopped bool, err error) {
	s.mu.Lock()
	s.set(kept, true)
	s.mu.Unlock()
	for deadline := time.Now().Add(patience); ; time.Sleep(gapPeriod) {
		s.mu.Lock()
		p, mine := s.phase, s.disarm()
		if p == away && (s.quiet() || !time.Now().Before(deadline)) {
			if stopped = s.record().Stop(false); stopped {
				s.phase = returning
			}
		}
		owed := p == leaving && s.owner() != nil && !s.is(handed) && !time.Now().Before(deadline)
		s.mu.Unlock()
		switch {
		case mine || stopped:
			return stopped, nil
		case p == over:
			return false, fmt.Errorf("lane: come back: %w", net.ErrClosed)
		case p == restoring: // it may be Restored that waits here for itself
			return false, fmt.Errorf("lane: come back: already in progress, Config.Restored has not returned: %w", os.ErrInvalid)
		case owed:
			return false, fmt.Errorf("lane: come back: the owner has not called Leave: %w", os.ErrDeadlineExceeded)
		}
		s.noteLeft()
	}
}

// MayLeave lets a session that was kept in user space leave it again. The session is prepared again if the lane kept it
// there for packets that it does not translate, such as fragments, or that the sockets have refused, such as forged
// packets out of their windows. A session of an [Owner] is not armed then.
func (s *Session) MayLeave() {
	s.mu.Lock()
	s.set(kept, false)
	if s.owner() == nil && s.phase == relaying {
		s.disarm() // or packets would try meanwhile
	}
	anew := s.phase == relaying && s.facts&(graced|armed) == graced && s.stays() == None && s.record().ForgetNotes()
	if anew {
		s.set(graced, false) // as at the begin: earlier packets have reached their socket after a grace period
	}
	if s.owner() == nil { // an owner arms it by itself
		s.arm()
	}
	s.mu.Unlock()
	if anew {
		s.lane().mu.Lock()
		s.lane().batch.waiting = append(s.lane().batch.waiting, s)
		s.lane().knocked()
		s.lane().mu.Unlock()
	}
}

// quiet reports whether there is a gap. It needs the lock.
func (s *Session) quiet() bool {
	f := s.flows()
	return translate.Quiet(&f[0], &f[1])
}

// goOn relays a session that is returning, with sockets that are made again.
func (s *Session) goOn() error {
	fds, err := s.anew()
	if err != nil {
		return err
	}
	var conn [2]*net.TCPConn
	for i := range conn {
		c, e := connection(fds[i])
		conn[i], err = c, errors.Join(err, e)
	}
	if err != nil {
		for _, c := range conn {
			if c != nil {
				_ = c.Close() // in silence, as sockets in repair do
			}
		}
		return s.unrestored(err)
	}
	s.lane().mu.Lock()
	s.lane().relay(&conn)
	s.lane().mu.Unlock()
	s.restored(&conn)
	ended, reset := s.back(&conn)
	for _, c := range conn {
		if err := control(c, resume); err != nil {
			reset = true
		}
	}
	go s.run(ended)
	if reset {
		s.Reset()
	}
	return nil
}

// restored calls Config.Restored.
func (s *Session) restored(conn *[2]*net.TCPConn) {
	if s.lane().cfg.Restored == nil {
		return
	}
	s.mu.Lock()
	s.phase = restoring
	s.mu.Unlock()
	s.lane().cfg.Restored(s, conn[0], conn[1])
}

// anew makes the sockets of a session that is returning, in repair. The caller owns them. After an error the
// session has ended.
func (s *Session) anew() (fds [2]int, err error) {
	err = sys.GracePeriod() // a program that has begun before goes on in the lane
	if f := s.flows(); translate.Ended(&f[0], &f[1]) || s.record().WasReset() {
		s.mu.Lock()
		s.record().Change(state.Done, state.Held)
		s.phase = away
		s.mu.Unlock()
		s.settle()
		return fds, fmt.Errorf("lane: come back: %w", net.ErrClosed)
	}
	s.letGo()
	for i := 0; i < 2 && err == nil; i++ {
		if fds[i], err = remade(s.record().Connection(i)); err != nil && i == 1 {
			_ = syscall.Close(fds[0]) // in silence
		}
	}
	if err != nil {
		return fds, s.unrestored(err)
	}
	return fds, nil
}

// unrestored resets a session that is held, and returns why it could not come back.
func (s *Session) unrestored(err error) error {
	why := reasonOf(err)
	s.lane().counts.unrestored[why].Add(1)
	err = &unrestored{why, err}
	s.resetHeld(err)
	return err
}

// An unrestored is why a session could not come back.
type unrestored struct {
	why   Reason
	cause error
}

func (e *unrestored) Error() string {
	return fmt.Sprintf("lane: come back: %v, so it is reset: %v", e.why, e.cause)
}

func (e *unrestored) Unwrap() []error { return []error{e.why, e.cause} }

// back gives the session to user space, with its sockets still in repair, and returns which
// directions have ended, and whether it was to end meanwhile.
func (s *Session) back(conn *[2]*net.TCPConn) (ended [2]bool, reset bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flows()
	for i := range ended {
		ended[i] = f[i].Fin != 0 && f[1-i].Acked >= f[i].Fin
	}
	s.setMoved(s.bytes())
	s.further().since = now()
	s.record().Restored()
	_, s.tries = s.record().Refusal() // the last has taken it
	s.setSockets(conn)
	s.phase = relaying
	s.set(armed|idleA|idleB|handed, false)
	s.lane().counts.returned.Add(1)
	return ended, s.is(toReset | forgotten)
}

// room is a window that a new socket has room for.
const room = 1<<16 - 1

// announce gives the endpoint a window of at least room, if the other endpoint's was smaller. A
// socket that is restored one number ahead sends a window probe, which has the number before and so
// is in sequence. No option makes a socket at the number itself send an acknowledgement.
func announce(c *sys.Connection) error {
	if c.ReceiveWindow >= room {
		return nil
	}
	c.ReceiveWindow = room
	before := *c
	before.Send++ // a window probe is of the number before
	fd, err := sys.Restore(before)
	if err != nil {
		return err
	}
	err = errors.Join(sys.Resume(fd), sys.Repair(fd, true), syscall.Close(fd))
	c.Timestamp += 16 // the acknowledgement went out some ms later
	return err
}

// remade makes a socket in repair.
func remade(c sys.Connection) (fd int, err error) {
	if err := announce(&c); err != nil {
		return -1, err
	}
	return sys.Restore(c)
}

// connection takes a descriptor.
func connection(fd int) (*net.TCPConn, error) {
	f := os.NewFile(uintptr(fd), "session")
	defer f.Close()
	conn, err := net.FileConn(f) // has a descriptor of its own
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// resume ends the repair of a session's socket. Repair removes SO_REUSEADDR, so it is set again:
// without it no listener could be bound to the address while the session lasts.
func resume(fd int) error {
	if err := sys.Resume(fd); err != nil {
		return err
	}
	return sys.SetsockoptInt(fd, sys.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
}

// control calls a function with the descriptor of a connection.
func control(c *net.TCPConn, do func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if e := raw.Control(func(fd uintptr) { err = do(int(fd)) }); e != nil {
		return e
	}
	return err
}

// reasonOf returns the reason of an error.
func reasonOf(err error) Reason {
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EADDRINUSE):
		return AddressTaken
	case errors.Is(err, syscall.EPERM):
		return NotPermitted
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return Route
	}
	return Unrestorable
}

// TakeBack is [Session.ComeBack] for a session of [Lane.Register], for its owner to relay it further. It returns new sockets a
// and b, which the owner closes; the old ones were given away by [Session.Leave]. The new ones do not block, and of the old
// options they have only TCP's own and SO_REUSEADDR. ended are the directions, from a and from b, that have ended in the lane: nothing is read from there any more, and nothing
// written to the other side. The session stays in user space until MayLeave, and then leaves as before. It must not
// be called by the owner's loop: it waits.
//
// An error may come with both sockets, if one of them could not be set up: the owner owns them then as well, and closes them. Ended may be
// called before TakeBack has returned; the sockets are the owner's nevertheless.
//
// If the sockets are -1 and there is no error, the session was in user space. The error wraps os.ErrDeadlineExceeded if
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
