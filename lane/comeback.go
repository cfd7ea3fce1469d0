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

// gapPeriod is how often stop looks for a gap.
const gapPeriod = 500 * time.Microsecond

// ComeBack takes the session back to user space, where it goes on and stays until [Session.MayLeave]. It waits
// for a gap, which is a moment at which everything that was sent is acknowledged. If there is no gap within
// patience, it makes one: packets are dropped for some tens of milliseconds, and the endpoints send them again.
// A session that is already in user space only stays there.
//
// The error wraps os.ErrInvalid for a session of an [Owner], which needs [Session.TakeBack] instead, and while
// [Config.Restored] runs for the session. It wraps net.ErrClosed if the session has ended.
//
// The sockets are made again with TCP_REPAIR, see [Config.Restored]. If that fails, both connections are reset,
// in sequence. The error then wraps a [Reason] and its cause, the [Result] has the same error, and
// Stats.Unrestored counts it. Without descriptors for the resets, the lane tries again for as long as
// [Config.Linger]. Until then the kernel resets an endpoint that sends something.
func (s *Session) ComeBack(patience time.Duration) error {
	if s.owner() != nil {
		return fmt.Errorf("lane: come back: the session has an owner, use TakeBack: %w", os.ErrInvalid)
	}
	stopped, err := s.stop(patience)
	if err != nil || !stopped {
		return err
	}
	return s.goOn()
}

// stop keeps the session in user space. It reports whether the session was in the lane; its phase is then
// returning.
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
		case p == restoring: // the caller may be Restored, which would wait for itself
			return false, fmt.Errorf("lane: come back: already in progress, Config.Restored has not returned: %w", os.ErrInvalid)
		case owed:
			return false, fmt.Errorf("lane: come back: the owner has not called Leave in time: %w", os.ErrDeadlineExceeded)
		}
		s.noteLeft()
	}
}

// MayLeave lets a session that was kept in user space leave it again. It also does so if the lane has kept the
// session because of packets that it does not translate, such as fragments, or that the sockets refused, such
// as forged packets outside their windows. An [Owner] still has to arm its session.
func (s *Session) MayLeave() {
	s.mu.Lock()
	s.set(kept, false)
	if s.owner() == nil && s.phase == relaying {
		s.disarm() // otherwise packets would try to take the session meanwhile
	}
	s.set(again, !s.is(graced))
	anew := s.phase == relaying && s.facts&(graced|armed) == graced && s.stays() == None && s.record().ForgetNotes()
	if anew {
		s.set(graced, false) // as after Join: after a grace period, earlier packets have reached their sockets
	}
	if s.owner() == nil { // an owner arms it by itself
		s.arm()
	}
	s.mu.Unlock()
	if anew {
		s.lane().waits(s)
	}
}

// quiet reports whether the session is in a gap. It needs the lock.
func (s *Session) quiet() bool {
	f := s.flows()
	return translate.Quiet(&f[0], &f[1])
}

// goOn makes new sockets for a session that is returning, and relays it.
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
				_ = c.Close() // silently, because it is in repair
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

// anew makes new sockets for a session that is returning. They are in repair, and the caller owns them. After
// an error the session has ended.
func (s *Session) anew() (fds [2]int, err error) {
	err = sys.GracePeriod() // until then, a program that has begun earlier still carries its packet
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
			_ = syscall.Close(fds[0]) // silently
		}
	}
	if err != nil {
		return fds, s.unrestored(err)
	}
	return fds, nil
}

// unrestored resets a session that is stopped, and returns the error that says why it could not come back.
func (s *Session) unrestored(err error) error {
	why := reasonOf(err)
	s.lane().counts.unrestored[why].Add(1)
	err = &unrestored{why, err}
	s.resetHeld(err)
	return err
}

// An unrestored is the error of a session that could not come back.
type unrestored struct {
	why   Reason
	cause error
}

func (e *unrestored) Error() string {
	return fmt.Sprintf("lane: come back: %v, so it is reset: %v", e.why, e.cause)
}

func (e *unrestored) Unwrap() []error { return []error{e.why, e.cause} }

// back gives the session to user space while its sockets are still in repair. It returns which directions have
// ended, and whether the session was reset or forgotten meanwhile.
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
	_, s.tries = s.record().Refusal() // the last attempt took the session
	s.setSockets(conn)
	s.phase = relaying
	s.set(armed|idleA|idleB|handed, false)
	s.lane().counts.returned.Add(1)
	return ended, s.is(toReset | forgotten)
}

// room is a window, in bytes, that every new socket can accept.
const room = 1<<16 - 1

// announce gives the endpoint a window of at least room, if the other endpoint's window was smaller. No option
// makes a socket send an acknowledgement, but a window probe does the same. It has the number before the
// socket's next one. So announce makes a socket that is one number ahead, and the probe has the right number.
func announce(c *sys.Connection) error {
	if c.ReceiveWindow >= room {
		return nil
	}
	c.ReceiveWindow = room
	before := *c
	before.Send++ // a window probe has the number before this one
	fd, err := sys.Restore(before)
	if err != nil {
		return err
	}
	err = errors.Join(sys.Resume(fd), sys.Repair(fd, true), syscall.Close(fd))
	c.Timestamp += 16 // the probe was sent some ms later
	return err
}

// remade makes a socket for a connection. The socket is in repair.
func remade(c sys.Connection) (fd int, err error) {
	if err := announce(&c); err != nil {
		return -1, err
	}
	return sys.Restore(c)
}

// connection turns a descriptor into a connection, and takes the descriptor.
func connection(fd int) (*net.TCPConn, error) {
	f := os.NewFile(uintptr(fd), "session")
	defer f.Close()
	conn, err := net.FileConn(f) // a duplicate
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// resume ends the repair of a session's socket. Repair removes SO_REUSEADDR, so resume sets it again. Without
// it no listener could be bound to the address while the session lasts.
func resume(fd int) error {
	if err := sys.Resume(fd); err != nil {
		return err
	}
	return sys.SetsockoptInt(fd, sys.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
}

// control calls do with the descriptor of a connection.
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

// reasonOf returns the Reason for an error of making a socket.
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

// TakeBack is [Session.ComeBack] for a session of [Lane.Register], which its owner relays from then on. It
// returns new sockets a and b, which the owner closes; the old ones were given away by [Session.Leave]. The new
// sockets do not block. They have TCP's own options and SO_REUSEADDR of the old sockets, and none of the other
// options. ended says which directions, from a and from b, have ended in the lane: the owner reads nothing more
// from such a side, and writes nothing more to the other. The session stays in user space until MayLeave, and
// can then leave as before. TakeBack waits, so the owner's loop must not call it.
//
// TakeBack can return an error together with both sockets, if one of them could not be set up. The owner then
// owns them too, and closes them. Owner.Ended may be called before TakeBack has returned; even then the sockets
// belong to the owner.
//
// If the sockets are -1 and there is no error, the session was in user space. The error wraps
// os.ErrDeadlineExceeded if the owner has not called Leave in time: the session has left, and can be taken back
// later. The error wraps os.ErrInvalid for a session without an owner.
func (s *Session) TakeBack(patience time.Duration) (a, b int, ended [2]bool, err error) {
	switch {
	case s.lane() == nil:
		return -1, -1, ended, fmt.Errorf("lane: take back: a zero Session: %w", net.ErrClosed)
	case s.owner() == nil:
		return -1, -1, ended, fmt.Errorf("lane: take back: the session has no owner, use ComeBack: %w", os.ErrInvalid)
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
	if reset { // Reset or Lane.Leave was called meanwhile
		s.Reset()
	}
	return fds[0], fds[1], ended, err
}
