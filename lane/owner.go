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

// An Owner relays sessions in user space by itself, such as an event loop. Its methods are called
// by goroutines of the lane, which hold no lock, for any of its sessions. They may call methods of the session, but none that waits: ComeBack, TakeBack, Wait,
// or Close of the lane.
//
// One Owner for many sessions, such as for all of a loop, takes less memory than one Owner for each: its sessions share the lane's part of
// it.
type Owner interface {
	// Ready is called once, maybe before Register returns. After it, [Session.Arm] arms the session. It is not called
	// if the session has ended before.
	Ready(s *Session)
	// Left is called when the lane has the session, unless [Session.Disarm] has reported that before.
	Left(s *Session)
	// Ended is called once, when the session has ended other than by [Session.Release], wherever it was: by its
	// endpoints, by a timeout, by [Session.Reset] or [Lane.Close]. Sockets that were not given to Leave still belong to
	// the owner.
	Ended(s *Session, r Result)
}

// An Observer is an Owner that is notified of the first end of file of a session in the lane as well.
type Observer interface {
	Owner
	// HalfClosed is called once, within a quarter of a second after the other endpoint has acknowledged the end of file: from is 0
	// for a's, and 1 for b's. It is not called once both have ended.
	HalfClosed(s *Session, from int)
}

// A Returner is an Owner that takes a session back when the lane cannot carry its packets.
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
	owner    Owner // nil: of sessions of Join, and of adopted sessions
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

// Register makes s, a zero Session, the session of two connected TCP sockets. The owner goes on relaying them, and
// calls [Session.Arm] and [Session.Disarm] until the latter reports that the session has left, and then
// [Session.Leave], or [Session.Release] when it has ended before. The sockets belong to the owner until Leave. The
// owner has to call Leave soon: before that the session can neither come back nor end. s may be a field of a larger
// struct. The lane keeps s after the session's end, for Config.Linger and more: do not copy it, nor use it for another
// session. Methods of s have no effect before Register has returned.
//
// The error wraps a [Reason]; or os.ErrInvalid if s is not a zero Session, the owner is missing or not comparable (pointers are), or a
// and b are one descriptor; or EBADF for an invalid descriptor; or net.ErrClosed after Close. s is unchanged then. No call waits for a
// grace period.
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
// owner holds no byte of it, and touches neither socket before Disarm. For a session of [Lane.Join],
// which has no owner, it does nothing: the lane relays it.
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

// Disarm takes the session back, and reports whether the owner may touch the sockets. If not, the
// lane has the session, or it has ended, and the owner has to call Leave. For a session of
// [Lane.Join] it does nothing, and reports false.
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

// Leave gives the sockets of a session that has left to the lane, which closes them in silence. The owner takes both off its poller before
// the call (epoll_ctl(2), EPOLL_CTL_DEL): the lane closes them at a time of its own, and the kernel then gives their numbers to other
// files. If the session has ended after Disarm said that the lane has it, such as by [Lane.Close], Leave closes the sockets before it
// returns, and resets both sides if that has not been done. The error wraps os.ErrInvalid, and the sockets remain the caller's, if there is
// nothing to give away: for a session in user space or of Join, and after Leave or Release.
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

// Release ends a session that has ended in user space, or is to stay there. True: the lane does not
// call the owner any more, and the sockets belong to the owner. False: the session has left, and
// the owner has to call Leave; or it has ended otherwise, as by a timeout, and Ended is called or
// was called: then Leave takes no sockets any more, so the owner may close them, and the kernel use
// their numbers again.
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

// keepSockets makes Leave take no sockets of a session that has ended.
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

// fit returns why sessions with those legs can never leave user space.
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

// transportOf is transport of a connection.
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

// transport returns why sessions of a descriptor can never leave user space, or an error if it cannot be found out.
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

// register gives a session a slot with a mark, and returns why it cannot have one. It needs the lock.
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
		return Full // of the table of connections
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

// release gives back the slot of an ended session, once its tuples lead nowhere and no CPU looks at
// it any more.
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

// knocked wakes the goroutine of grace periods. It needs the lock.
func (l *Lane) knocked() {
	select {
	case l.knock <- struct{}{}:
	default:
	}
}

// A batch is work for the goroutine of grace periods.
type batch struct {
	departing []departure // sockets to be closed
	waiting   []*Session  // to be armed after a grace period
	resetting []*Session  // held, to be reset after one
	ended     []uint32    // slots that a CPU may still look at: free after one
}

// wait waits for grace periods: one for all that ask for it meanwhile.
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
		err := sys.GracePeriod() // it worked in Probe: without it nothing leaves user space
		for _, s := range b.resetting {
			s.resetHeld(nil) // a program that has begun before goes on; one packet more changes nothing here
		}
		if err != nil { // the next period is for these too
			l.mu.Lock()
			l.batch.waiting, l.batch.ended = append(l.batch.waiting, b.waiting...), append(l.batch.ended, b.ended...)
			l.mu.Unlock()
			continue
		}
		for _, s := range b.waiting {
			s.grace()
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

// A Tagged is an [Owner] with a tag by which a process that adopts its session knows it again.
type Tagged interface {
	Owner
	// Tag returns bytes of the owner's choice, and when the session began by the monotonic clock
	// (CLOCK_MONOTONIC); [Session.Age] counts from there; 0: now. It is called once, by
	// [Lane.Register]. Both are kept in the kernel, beside the session's account, and the lane does
	// not look at the tag.
	Tag(s *Session) (tag [TagSize]byte, begun time.Duration)
}

// A mark is the part of a session's record that its owner decides.
type mark struct {
	tag     [TagSize]byte
	begun   int64
	timeout time.Duration
	bounded bool
	probes  time.Duration
	probed  bool
}

// askOwner returns the mark of a session that is about to be registered, at a time of the monotonic clock.
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

// askTimes asks the owner for the session's own times.
func (m *mark) askTimes(owner Owner, s *Session) {
	if o, ok := owner.(Bounded); ok {
		m.timeout, m.bounded = o.UserTimeout(s), true
	}
	if o, ok := owner.(Probed); ok {
		m.probes, m.probed = o.KeepAlive(s), true
	}
}

// mark writes it to the session's record, before a packet can take the session: a process that adopts it finds all of it.
func (s *Session) mark(m *mark) {
	s.record().Mark(m.tag, time.Duration(m.begun))
	s.markTimes(m)
}

// markTimes writes the session's own times to its record.
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

// Tag returns the tag that the session's [Tagged] owner has given, maybe in an earlier process;
// zero if it has none. False: the session has no place in the lane.
func (s *Session) Tag() (tag [TagSize]byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stays() != None || s.phase == over { // another session may have its place
		return tag, false
	}
	return s.record().Tag, true
}

// Retag changes the session's tag. A process that adopts the session finds the new tag, the old one
// or, if this process died during the call, a zero tag. It does nothing without a place in the
// lane.
func (s *Session) Retag(tag [TagSize]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of != nil && s.stays() == None && s.phase != over {
		s.record().Retag(&tag)
	}
}

// Age returns the session's age: since Join or Register, maybe in an earlier process, or since the
// time that a [Tagged] owner has given.
func (s *Session) Age() time.Duration {
	if s.lane() == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(now() - s.began())
}
