package lane

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/program"
)

// An Owner relays sessions in user space by itself, such as an event loop. Its methods are called
// by goroutines of the lane, which hold no lock, for any of its sessions. They may call methods of the session, but none that waits: ComeBack, TakeBack, Wait,
// or Close of the lane.
//
// One for many sessions, as for all of a loop, takes less memory than one for each: its sessions share the lane's part of it.
type Owner interface {
	// Ready is called once, maybe before Register returns: [Session.Arm] arms the session from then on. It is not called
	// for one that has ended before.
	Ready(s *Session)
	// Left is called when the lane has the session, unless [Session.Disarm] has reported that before.
	Left(s *Session)
	// Ended is called once, when the session has ended other than by [Session.Release], wherever it was: by its
	// endpoints, by a timeout, by [Session.Reset] or [Lane.Close]. Sockets that were not given to Leave are still the owner's.
	Ended(s *Session, r Result)
}

// An Observer is an Owner that is notified of the first end of file of a session in the lane as well.
type Observer interface {
	Owner
	// HalfClosed is called once, within a quarter of a second after the other endpoint has acknowledged the end of file: from is 0
	// for that of a, and 1 for that of b. It is not called once both have ended.
	HalfClosed(s *Session, from int)
}

// A Returner is an Owner that takes sessions back whose packets the lane cannot carry.
type Returner interface {
	Owner
	// Return is called for a session in the lane with packets above 64 KiB, as an endpoint sends that has big TCP (ip-link(8), gso_max_size): they are lost, and sent again in
	// parts, at a hundredth of the speed. It is called four times a second until the owner has called [Session.TakeBack], from then on the session stays in user
	// space, with the reason [BigTCP], or until the session has ended.
	Return(s *Session)
}

// An ownership is all that sessions with one owner share.
type ownership struct {
	lane     *Lane
	owner    Owner // nil: of sessions of Join, and of those that were adopted
	sessions int   // that have a place, if there is an owner; the lane's lock
}

// ownershipOf needs the lock.
func (l *Lane) ownershipOf(owner Owner) *ownership {
	if of := l.owned[owner]; of != nil {
		return of
	}
	return &ownership{lane: l, owner: owner}
}

// count notes that one session more, or less, has a place. It needs the lane's lock.
func (of *ownership) count(n int) {
	if of.owner == nil {
		return
	}
	if of.sessions += n; of.sessions > 0 {
		of.lane.owned[of.owner] = of
	} else {
		delete(of.lane.owned, of.owner)
	}
}

// lane returns the session's lane, or nil for a zero Session.
func (s *Session) lane() *Lane {
	if s.of == nil {
		return nil
	}
	return s.of.lane
}

// owner returns the owner of a session of Register, or nil for a session of Join, an adopted one and a zero Session.
func (s *Session) owner() Owner {
	if s.of == nil {
		return nil
	}
	return s.of.owner
}

// Register has s, a zero Session, be that of two connected TCP sockets, which the owner goes on relaying: it calls
// [Session.Arm] and [Session.Disarm] until the latter reports that the session has left, and then
// [Session.Leave], or [Session.Release] when it has ended before. The sockets are the owner's until Leave, which it owes
// soon: until then the session can neither come back nor end. s may be a field of a larger struct. The lane has it after its end as well, for Config.Linger and more: it
// is neither copied nor used for another session, and no method of it is called before Register or beside it: none has an effect then.
//
// The error wraps a [Reason], or os.ErrInvalid without a zero Session, without an owner that is comparable, as pointers are, and for one descriptor twice, EBADF of a descriptor that is
// none, and net.ErrClosed after Close. s is as before then. No call waits for a grace period.
func (l *Lane) Register(s *Session, a, b int, owner Owner) error {
	switch {
	case s == nil:
		return fmt.Errorf("lane: register: no Session: %w", os.ErrInvalid)
	case owner == nil:
		return fmt.Errorf("lane: register: no owner: %w", os.ErrInvalid)
	case a == b:
		return fmt.Errorf("lane: register: a and b are one descriptor, %d: %w", a, os.ErrInvalid)
	case !reflect.ValueOf(owner).Comparable():
		return fmt.Errorf("lane: register: an owner that is not comparable, a %T: %w", owner, os.ErrInvalid)
	}
	m := askOwner(owner, s, now()) // without the lock, as all calls of an owner
	legs, why := [2]program.Leg{}, None
	for i, fd := range [2]int{a, b} {
		r, err := transport(fd)
		if err != nil {
			return fmt.Errorf("lane: register: descriptor %d: %w", fd, err)
		}
		if legs[i], err = legOfSocket(fd); err != nil && r == None {
			r = NotEstablished // the peer has gone
		}
		why = cmp.Or(why, r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return fmt.Errorf("lane: register: %w", net.ErrClosed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of != nil {
		return fmt.Errorf("lane: register: the Session was used before: %w", os.ErrInvalid)
	}
	l.counts.joined.Add(1)
	s.of, s.facts = l.ownershipOf(owner), 0
	if why == None {
		why = l.register(s, legs, &m)
	}
	if why != None {
		s.of = nil
		l.counts.refused[why].Add(1)
		return fmt.Errorf("lane: register: not eligible: %w", why)
	}
	s.hold, s.phase = -1, relaying
	return nil
}

// legOfSocket returns the addresses of a socket.
func legOfSocket(fd int) (leg program.Leg, err error) {
	unmapped := func(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
	peer, err := sys.PeerName(fd)
	if err != nil {
		return leg, err
	}
	local, err := sys.LocalName(fd)
	if err == nil && !(peer.AddrPort.IsValid() && local.AddrPort.IsValid()) {
		err = syscall.EAFNOSUPPORT
	}
	return program.Leg{Remote: unmapped(peer.AddrPort), Local: unmapped(local.AddrPort)}, err
}

// Arm lets the lane take the session with the next packet that fits, and reports whether it may. The
// owner holds no byte of it, and touches neither socket before Disarm. Without an owner, for a session of [Lane.Join], it
// does nothing, as the lane itself relays that.
func (s *Session) Arm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner() == nil {
		return false
	}
	s.set(idleA|idleB, true)
	s.arm()
	return s.is(armed) && s.phase == relaying
}

// Disarm takes the session back, and reports whether the owner may touch the sockets: if not, the lane
// has the session, or it has ended, and Leave is to be called. For a session of [Lane.Join] it does nothing, and reports
// false.
func (s *Session) Disarm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner() != nil && s.disarm()
}

// Tries returns how often a packet could not take the session.
func (s *Session) Tries() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == over {
		return 0
	}
	_, tries := s.record().Refusal()
	return tries
}

// A departure is the sockets of a session that has left.
type departure struct {
	session *Session
	sockets [2]int // owned
}

// Leave gives the sockets of a session that has left to the lane, which closes them in silence. The owner has taken both off its
// poller before (epoll_ctl(2), EPOLL_CTL_DEL): the lane closes them at a time of its own, and their numbers are given to other files then. After the end of a
// session of which Disarm has said that the lane has it, such as by [Lane.Close], it closes them before it returns, and resets both
// sides if they were not. The error wraps os.ErrInvalid, and the sockets are the caller's still, where there is nothing to
// be given away: for a session in user space, one of Join, and after Leave or Release.
func (s *Session) Leave(a, b int) error {
	l, sockets := s.lane(), [2]int{a, b}
	switch {
	case l == nil:
		return fmt.Errorf("lane: leave: a zero Session: %w", net.ErrClosed)
	case a < 0 || b < 0:
		return fmt.Errorf("lane: leave: descriptors %d and %d: %w", a, b, syscall.EBADF)
	}
	s.mu.Lock()
	mine := s.disarm()
	if s.owner() == nil || s.is(handed) || mine {
		s.mu.Unlock()
		return fmt.Errorf("lane: leave: no sockets of the session are to be given away: %w", os.ErrInvalid)
	}
	s.set(handed, true)
	if s.phase == returning { // without its sockets: it is being cut
		closeSilently(sockets)
	}
	at := s.phase
	s.mu.Unlock()
	switch at {
	case leaving:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.batch.departing = append(l.batch.departing, departure{s, sockets})
		l.knocked()
	case over:
		return l.part(s, sockets)
	}
	return nil
}

// leaveSockets closes the sockets, both in repair, so that they send nothing.
func (s *Session) leaveSockets(sockets [2]int) {
	s.lane().counts.failed.Add(closeSilently(sockets)) // the guard keeps in their FIN
	s.departed()
}

// Release ends a session that has ended in user space, or shall stay there. True: no call of the owner comes any more, and the sockets are the
// owner's. False: it has left, and Leave is owed; or it has ended otherwise, as by a timeout, and Ended comes, or has come: then Leave takes
// no sockets any more, so that the owner may close them, and their numbers be used again.
func (s *Session) Release() bool {
	if !s.Disarm() {
		s.keepSockets()
		return false
	}
	_, first := s.conclude(false, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(handed, true)
	if first {
		s.finish()
	}
	return first
}

// keepSockets has Leave take no sockets of a session that has ended.
func (s *Session) keepSockets() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner() != nil && s.phase == over {
		s.set(handed, true)
	}
}
