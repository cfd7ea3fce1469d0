package lane

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"syscall"
	"time"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/program"
	"github.com/penstock/penstock/lane/internal/state"
)

// An Owner relays sessions in user space by itself, for example in an event loop. The lane calls its methods on
// goroutines of the lane, which hold no lock, and at the same time for different sessions. The methods can call
// methods of the session, but not ComeBack, TakeBack and Wait, which wait. They must not call Close of the
// lane.
//
// One Owner for many sessions, such as for all sessions of a loop, takes less memory than one Owner for each:
// these sessions share what the lane keeps for their owner.
type Owner interface {
	// Ready is called once, possibly before Register returns. From then on [Session.Arm] arms the session.
	// Ready is not called if the session ends before.
	Ready(s *Session)
	// Left is called when the session has left user space, unless [Session.Disarm] has reported that before.
	Left(s *Session)
	// Ended is called once when the session has ended, in user space or in the lane: by its endpoints, by a
	// timeout, by [Session.Reset] or by [Lane.Close]. It is not called if [Session.Release] has ended the
	// session. Sockets that were not given to Leave still belong to the owner.
	Ended(s *Session, r Result)
}

// An Observer is an Owner that is also notified of the first end of file of a session in the lane.
type Observer interface {
	Owner
	// HalfClosed is called once, within a quarter of a second after the lane has carried an end of file. from
	// is 0 if a's endpoint has sent it, and 1 if b's has. HalfClosed is not called if the session has ended by
	// then.
	HalfClosed(s *Session, from int)
}

// A Returner is an Owner that takes a session back if the lane cannot carry its packets.
type Returner interface {
	Owner
	// Return is called for a session in the lane that gets packets above 64 KiB. An endpoint with big TCP sends
	// such packets (ip-link(8), gso_max_size). They are lost, and sent again in parts, at a hundredth of the
	// speed. Return is called four times a second until the owner calls [Session.TakeBack], or until the
	// session has ended. After TakeBack the session stays in user space, with the reason [BigTCP].
	Return(s *Session)
}

// An ownership is what all sessions with the same owner share.
type ownership struct {
	lane     *Lane
	owner    Owner // nil for sessions of Join, and for adopted sessions
	sessions int   // number of the owner's sessions that have a place; guarded by the lane's lock
}

// ownershipOf returns the ownership of an owner, or a new one. It needs the lock.
func (l *Lane) ownershipOf(owner Owner) *ownership {
	if of := l.owned[owner]; of != nil {
		return of
	}
	return &ownership{lane: l, owner: owner}
}

// count adds n to the number of sessions that have a place. It needs the lane's lock.
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

// owner returns the owner of a session, or nil for a session of Join, an adopted session and a zero Session.
func (s *Session) owner() Owner {
	if s.of == nil {
		return nil
	}
	return s.of.owner
}

// Register makes s, which must be a zero Session, the session of two connected TCP sockets. The owner goes on
// relaying between them. It calls [Session.Arm] and [Session.Disarm] until Disarm reports that the session has
// left. Then it calls [Session.Leave]. If the session ends before it has left, the owner calls
// [Session.Release] instead. The sockets belong to the owner until Leave. The owner must call Leave soon: until
// then the session can neither come back nor end.
//
// s may be a field of a larger struct. The lane keeps s after the session's end, for Config.Linger and longer,
// so do not copy s, and do not use it for another session. Methods of s have no effect before Register has
// returned.
//
// The error wraps a [Reason] if the session can never leave. It wraps os.ErrInvalid if s is not a zero Session,
// if the owner is missing or not comparable (pointers are comparable), or if a and b are the same descriptor.
// It wraps EBADF for an invalid descriptor, and net.ErrClosed after Close. After an error s is unchanged.
// Register does not wait for a grace period.
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
	m := askOwner(owner, s, now()) // without the lock, like all calls of an owner's methods
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

// Arm lets the lane take the session with the next packet that fits, and reports whether the lane can take it.
// From then on until Disarm, the owner must hold no byte of the session and must not touch the sockets. For a
// session of [Lane.Join] Arm does nothing and returns false, because the lane relays it.
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

// Disarm takes the session back, and reports whether the owner may touch the sockets. If it returns false, the
// session has left or has ended, and the owner must call Leave. For a session of [Lane.Join] Disarm does
// nothing and returns false.
func (s *Session) Disarm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner() != nil && s.disarm()
}

// Tries returns how many packets have tried to take the session and failed.
func (s *Session) Tries() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stays() != None || s.phase == over { // another session may have its place
		return 0
	}
	_, tries := s.record().Refusal()
	return tries
}

// A departure is a session that has left, with its sockets.
type departure struct {
	session *Session
	sockets [2]int // owned
}

// Leave gives the sockets of a session that has left to the lane, which closes them silently. Before the call,
// the owner must remove both sockets from its poller (epoll_ctl(2), EPOLL_CTL_DEL): the lane closes them later,
// and the kernel then gives their numbers to other files. The session may have ended since Disarm returned
// false, for example by [Lane.Close]. Then Leave closes the sockets before it returns, and resets both sides
// unless that was done already.
//
// The error wraps os.ErrInvalid if there are no sockets to give away: for a session in user space, for a
// session of Join, and after Leave or Release. The sockets then still belong to the caller.
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
		return fmt.Errorf("lane: leave: the session has no sockets to give away: %w", os.ErrInvalid)
	}
	s.set(handed, true)
	if s.phase == returning { // cut is ending the session without its sockets
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

// leaveSockets puts the sockets of a session that has left in repair, so that they send nothing, and closes
// them.
func (s *Session) leaveSockets(sockets [2]int) {
	s.lane().counts.failed.Add(closeSilently(sockets)) // the guard drops their FINs
	s.departed()
}

// Release gives up a session that has ended in user space, or is to stay there. If it returns true, the lane does
// not call the owner any more, and the sockets belong to the owner.
//
// If it returns false, either the session has left, and the owner must call Leave, or it has ended in another
// way, for example by a timeout. In the second case Ended has been called or will be called, and Leave takes no
// sockets any more: the owner can close them, and the kernel can use their numbers again.
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

// keepSockets makes Leave refuse the sockets of a session that has ended.
func (s *Session) keepSockets() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner() != nil && s.phase == over {
		s.set(handed, true)
	}
}

// legOf returns the addresses of a connection.
func legOf(c *net.TCPConn) program.Leg {
	at := func(a net.Addr) netip.AddrPort {
		p := a.(*net.TCPAddr).AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return program.Leg{Remote: at(c.RemoteAddr()), Local: at(c.LocalAddr())}
}

// fit returns the reason why a session with these legs can never leave user space, or None.
func fit(legs [2]program.Leg) Reason {
	if legs[0].Remote.Addr().Is4() != legs[1].Remote.Addr().Is4() {
		return MixedFamilies
	}
	for _, l := range legs {
		if a := l.Remote.Addr(); a.Zone() != "" || a.IsLinkLocalUnicast() && a.Is6() {
			return LinkLocal
		}
	}
	if legs[0] == (program.Leg{Remote: legs[1].Local, Local: legs[1].Remote}) {
		return SharedConnection
	}
	return None
}

// transportOf does what transport does, for a connection.
func transportOf(c *net.TCPConn) (why Reason, err error) {
	raw, err := c.SyscallConn()
	if err != nil { // a zero connection
		return None, os.ErrInvalid
	}
	if e := raw.Control(func(fd uintptr) { why, err = transport(int(fd)) }); e != nil {
		return None, e
	}
	return why, err
}

// transport returns the reason why a session of this descriptor can never leave user space, or None. It returns
// an error if that cannot be found out.
func transport(fd int) (Reason, error) {
	protocol, err := sys.GetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_PROTOCOL)
	switch {
	case errors.Is(err, syscall.ENOTSOCK):
		return NotTCP, nil
	case err != nil:
		return None, os.NewSyscallError("getsockopt SO_PROTOCOL", err)
	case protocol == multipathTCP:
		return Multipath, nil
	case protocol != sys.IPPROTO_TCP:
		return NotTCP, nil
	}
	return None, nil
}

// multipathTCP is IPPROTO_MPTCP (include/uapi/linux/in.h).
const multipathTCP = 262

// register gives a session a slot, and writes the mark to the slot's record. It returns the reason if the
// session can have no slot. It needs the lock.
func (l *Lane) register(s *Session, legs [2]program.Leg, m *mark) Reason {
	if r := fit(legs); r != None {
		return r
	}
	slot, ok := l.free.next()
	if !ok {
		return Full
	}
	l.generation++
	switch err := l.program.Register(slot, l.generation, legs); {
	case errors.Is(err, program.ErrBothEnds):
		return SharedConnection
	case errors.Is(err, ebpf.ErrKeyExist):
		return JoinedAlready
	case err != nil:
		return Full // the table of connections is full
	}
	l.free.take(slot)
	s.slot = slot
	l.sessions[slot] = s
	s.of.count(1)
	s.mark(m)
	l.batch.waiting = append(l.batch.waiting, s)
	l.knocked()
	return None
}

// waits arms a session after another grace period.
func (l *Lane) waits(s *Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batch.waiting = append(l.batch.waiting, s)
	l.knocked()
}

// release gives back the slot of an ended session. The slot becomes free once its tuples are removed and no CPU
// can use the slot any more.
func (l *Lane) release(s *Session, from state.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions[s.slot] != s {
		return
	}
	s.letGo()
	l.program.Forget(s.slot)
	l.program.Session(s.slot).Change(state.Free, from)
	l.sessions[s.slot] = nil
	s.of.count(-1)
	l.batch.ended = append(l.batch.ended, s.slot)
	l.knocked()
}

// knocked wakes the goroutine that waits for grace periods. It needs the lock.
func (l *Lane) knocked() {
	select {
	case l.knock <- struct{}{}:
	default:
	}
}

// A batch is the work for the goroutine that waits for grace periods.
type batch struct {
	departing []departure // their sockets are to be closed
	waiting   []*Session  // to be armed after a grace period
	resetting []*Session  // stopped, to be reset after a grace period
	ended     []uint32    // slots that a CPU may still use; free after a grace period
}

// wait waits for grace periods. One period serves all that was asked for during the previous one.
func (l *Lane) wait() {
	for {
		select {
		case <-l.knock:
		case <-l.stop:
			return
		}
		l.mu.Lock()
		b := l.batch
		l.batch = batch{}
		l.mu.Unlock()
		for _, d := range b.departing {
			d.session.leaveSockets(d.sockets)
		}
		if len(b.waiting)+len(b.resetting)+len(b.ended) == 0 {
			continue
		}
		err := sys.GracePeriod() // it worked in Probe; if it fails, no session leaves user space
		for _, s := range b.resetting {
			s.resetHeld(nil) // even if the grace period failed: one more packet of a running program changes nothing here
		}
		if err != nil { // the next period serves these too
			l.mu.Lock()
			l.batch.waiting, l.batch.ended = append(l.batch.waiting, b.waiting...), append(l.batch.ended, b.ended...)
			l.mu.Unlock()
			continue
		}
		for _, s := range b.waiting {
			if s.grace() {
				l.waits(s)
			}
		}
		l.mu.Lock()
		for _, slot := range b.ended {
			l.free.give(slot)
		}
		l.mu.Unlock()
	}
}

// TagSize is the size of a session's tag, in bytes.
const TagSize = program.TagSize

// A Tagged is an [Owner] that gives its sessions a tag. A process that adopts a session recognizes it by the
// tag.
type Tagged interface {
	Owner
	// Tag returns any bytes as the tag, and the time at which the session began by the monotonic clock
	// (CLOCK_MONOTONIC), or 0 for now. [Session.Age] counts from that time. Tag is called once, by
	// [Lane.Register]. The kernel keeps both in the session's record. The lane does not interpret the tag.
	Tag(s *Session) (tag [TagSize]byte, begun time.Duration)
}

// A mark is the part of a session's record that the owner chooses.
type mark struct {
	tag     [TagSize]byte
	begun   int64
	timeout time.Duration
	bounded bool
	probes  time.Duration
	probed  bool
}

// askOwner asks the owner for the mark of a session that is about to be registered. at is the time by the
// monotonic clock.
func askOwner(owner Owner, s *Session, at int64) (m mark) {
	m.begun = at
	if o, ok := owner.(Tagged); ok {
		tag, begun := o.Tag(s)
		m.tag = tag
		if begun > 0 && int64(begun) < at {
			m.begun = int64(begun)
		}
	}
	m.askTimes(owner, s)
	return m
}

// askTimes asks the owner for the session's user timeout and keepalive time.
func (m *mark) askTimes(owner Owner, s *Session) {
	if o, ok := owner.(Bounded); ok {
		m.timeout, m.bounded = o.UserTimeout(s), true
	}
	if o, ok := owner.(Probed); ok {
		m.probes, m.probed = o.KeepAlive(s), true
	}
}

// mark writes m to the session's record before a packet can take the session. So a process that adopts the
// session finds a complete mark.
func (s *Session) mark(m *mark) {
	s.record().Mark(m.tag, time.Duration(m.begun))
	s.markTimes(m)
}

// markTimes writes the session's user timeout and keepalive time to its record.
func (s *Session) markTimes(m *mark) {
	r := s.record()
	if m.bounded {
		r.Bound(m.timeout)
	}
	if m.probed {
		r.KeepAlive(m.probes)
	}
}

// Adopted reports whether the session comes from an earlier process, and has not ended.
func (s *Session) Adopted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is(inherited) && s.phase != over
}

// Tag returns the tag that a [Tagged] owner has given the session, possibly in an earlier process. The tag is
// zero if there is none. ok is false if the session has no place in the lane.
func (s *Session) Tag() (tag [TagSize]byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stays() != None || s.phase == over { // another session may have its place
		return tag, false
	}
	return s.record().Tag, true
}

// Retag changes the session's tag. A process that adopts the session finds the old tag or the new one, or a
// zero tag if this process died during the call. Retag does nothing if the session has no place in the lane.
func (s *Session) Retag(tag [TagSize]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of != nil && s.stays() == None && s.phase != over {
		s.record().Retag(&tag)
	}
}

// Age returns how long ago the session began: by Join or Register, possibly in an earlier process, or at the
// time that a [Tagged] owner has given.
func (s *Session) Age() time.Duration {
	if s.lane() == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(now() - s.began())
}
