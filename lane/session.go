package lane

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/penstock/penstock/lane/internal/program"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// A phase is where a session is, as its own goroutines see it.
type phase uint8

const (
	over      phase = iota // also of a zero Session
	relaying               // the two pumps have it
	leaving                // the program has it, and the pumps are ending
	away                   // the program has it, and the sockets are closed or in repair
	returning              // it is held, and the sockets are made anew
	restoring              // the same, and Config.Restored is running
)

// A Result is how a session ended.
type Result struct {
	// Bytes are those delivered from a to b, and from b to a, by user space and by the lane: the
	// latter are counted by acknowledgements. After a reset, before which some may not have come, those count that
	// the lane has carried, as bytes that user space has written do.
	Bytes [2]uint64
	// Left reports whether the session has ever left user space.
	Left bool
	// Reset reports whether it ended by a reset in place of an end of file of each side.
	Reset bool
	// Err is the error of user space that ended it, if one did.
	Err error
	// View has the lane's observations until the end of a session that has ever left.
	View View
}

// A Session is two joined connections. Its methods may be called concurrently. The zero Session is one that has ended:
// errors of its methods wrap net.ErrClosed.
//
// Every session that rests has one, so it is small (TestSessionSize); few sessions need more, or the functions of Lane.ends.
type Session struct {
	of   *ownership // nil: a zero Session
	more *further   // nil: all of it is zero

	mu    sync.Mutex
	slot  uint32
	hold  int32  // owned; -1, or the socket in repair that holds the local port to b
	tries uint32 // that were counted
	facts facts
	phase phase
	dead  uint8 // 1 and the endpoint that has not acknowledged or answered for too long, so that the session is reset; 0: there is none
}

// A further is rare state: sessions of an owner have none until they have come back, or have ended.
type further struct {
	conn  *[2]*net.TCPConn // owned; nil once the session is away
	moved [2]uint64        // bytes relayed in user space
	ended chan struct{}    // closed when it is done; nil: nothing waits for that
	began int64            // see Session.began; 0: its record has it
	since int64            // see Session.since; 0: it is began
	never Reason           // see Session.stays
}

// began returns when it was joined, also by a process before, in ns of the monotonic clock. It needs the lock.
func (s *Session) began() int64 {
	if s.more != nil && s.more.began != 0 {
		return s.more.began
	}
	return int64(s.record().Began())
}

// since returns when the lane moved bytes last in user space, when the session came back, or when it ended; when it was joined, if there was none of that. It needs the lock.
func (s *Session) since() int64 {
	if s.more != nil && s.more.since != 0 {
		return s.more.since
	}
	return s.began()
}

// stays returns why the session stays in user space, without a place in the lane; None if it may leave. It needs the lock.
func (s *Session) stays() Reason {
	if s.more == nil {
		return None
	}
	return s.more.never
}

// end has the session be over, since a time. Another one may have its place then. It needs the lock.
func (s *Session) end(since int64) {
	m := s.further()
	m.began, m.since = max(s.began(), 1), since
	s.phase = over
}

// facts are small facts about a session.
type facts uint16

const (
	idleA     facts = 1 << iota // the pump of bytes from a waits for some, and holds none
	idleB                       // the same from b
	armed                       // as far as user space knows
	graced                      // a grace period has passed since the session was registered
	readied                     // Owner.Ready was called
	halved                      // Observer.HalfClosed was called, or is being called
	toReset                     // by Reset, which is to be carried out
	forgotten                   // by Leave: it goes on without this process
	kept                        // by ComeBack: it does not leave
	flew                        // it has left user space once at least
	inherited                   // from a process before this one: it is adopted
	handed                      // the owner has given its sockets away, or has released the session
	done                        // it has ended, and that was reported
)

// is reports whether one of them holds. It needs the lock.
func (s *Session) is(f facts) bool { return s.facts&f != 0 }

// set needs the lock.
func (s *Session) set(f facts, on bool) {
	if s.facts &^= f; on {
		s.facts |= f
	}
}

// further returns the rare state, and makes it if there is none. It needs the lock.
func (s *Session) further() *further {
	if s.more == nil {
		s.more = new(further)
	}
	return s.more
}

// sockets returns the connections of a session of Join in user space; nil: it has none. It needs the lock.
func (s *Session) sockets() *[2]*net.TCPConn {
	if s.more == nil {
		return nil
	}
	return s.more.conn
}

// setSockets needs the lock.
func (s *Session) setSockets(conn *[2]*net.TCPConn) {
	if conn != nil || s.more != nil {
		s.further().conn = conn
	}
}

// setMoved needs the lock.
func (s *Session) setMoved(n [2]uint64) {
	if n != [2]uint64{} || s.more != nil {
		s.further().moved = n
	}
}

// Join joins two connections, takes both, and relays between them until it ends: in user space, and
// by the lane as soon as a packet finds nothing of the session in user space or in the sockets.
// Bytes that were read ahead of one have been written to the other. Deadlines of the two are taken off; timeouts are those of
// [Config]. end, unless it is nil, is
// called once, by a goroutine of the lane, and must not wait for the session: neither by Wait nor by Close. The error wraps
// os.ErrInvalid without two connections, [JoinedAlready] for one that a session of this lane relays in user space, and net.ErrClosed
// for one that is closed, and after Close. The connections are not taken then.
func (l *Lane) Join(a, b *net.TCPConn, end func(Result)) (*Session, error) {
	never, err := transports(a, b)
	if err != nil {
		return nil, fmt.Errorf("lane: join: %w", err)
	}
	conn := &[2]*net.TCPConn{a, b}
	at := now()
	more := &further{conn: conn, began: at, since: at, never: never}
	s := &Session{of: l.unowned, hold: -1, more: more, phase: relaying}
	l.mu.Lock()
	if err := l.joinable(conn); err != nil {
		l.mu.Unlock()
		return nil, fmt.Errorf("lane: join: %w", err)
	}
	l.relay(conn)
	for _, c := range conn {
		_ = c.SetDeadline(time.Time{}) // of the handshake before, say: it would end the session or not, as that is here or in the lane then
	}
	l.counts.joined.Add(1)
	if end != nil {
		l.ends[s] = end
	}
	if never == None {
		never = l.register(s, [2]program.Leg{legOf(a), legOf(b)}, &mark{begun: at})
		more.never = never
	}
	if never != None {
		l.counts.refused[never].Add(1)
		l.staying[s] = struct{}{}
	}
	l.mu.Unlock()
	go s.run([2]bool{})
	return s, nil
}

// joinable returns why two connections can have no session. It needs the lock.
func (l *Lane) joinable(conn *[2]*net.TCPConn) error {
	if !l.open {
		return net.ErrClosed
	}
	for i, c := range conn {
		if _, joined := l.relayed[c]; joined {
			return fmt.Errorf("connection %c: %w", 'a'+i, JoinedAlready)
		}
	}
	return nil
}

// relay notes connections that a session has in user space. It needs the lock.
func (l *Lane) relay(conn *[2]*net.TCPConn) {
	for _, c := range conn {
		l.relayed[c] = struct{}{}
	}
}

// unrelay notes that a session has these no more; nil: it had none.
func (l *Lane) unrelay(conn *[2]*net.TCPConn) {
	if conn == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conn {
		delete(l.relayed, c)
	}
}

// transports returns why sessions of these connections can never leave user space, or an error if one can have no session.
func transports(a, b *net.TCPConn) (never Reason, err error) {
	for i, c := range [2]*net.TCPConn{a, b} {
		if c == nil {
			return never, fmt.Errorf("no connection %c: %w", 'a'+i, os.ErrInvalid)
		}
		why, err := transportOf(c)
		if err != nil {
			return never, fmt.Errorf("connection %c: %w", 'a'+i, err)
		}
		never = cmp.Or(never, why)
	}
	if a == b {
		return never, fmt.Errorf("a and b are one connection: %w", os.ErrInvalid)
	}
	return never, nil
}

// record is the session's record. It is called only while the session has a slot.
func (s *Session) record() *program.Session { return s.lane().program.Session(s.slot) }

// flows returns the accounts of both sides.
func (s *Session) flows() [2]translate.Flow { return s.record().Flows() }

// left reports whether the session has left user space.
func (s *Session) left() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone()
}

// gone reports whether the sockets are not those of user space. It needs the lock.
func (s *Session) gone() bool { return leaving <= s.phase && s.phase <= restoring }

// Refused returns why the session is in user space: why it stays there, or why the last packet did
// not take it. None: it has left, or no packet has tried.
func (s *Session) Refused() Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stays() != None || s.phase != relaying:
		return s.stays()
	case s.is(kept):
		return Kept
	}
	why, _ := s.record().Refusal()
	return Reason(min(why, uint32(reasons)))
}

// Left reports whether the session is in the lane now.
func (s *Session) Left() bool { return s.left() }

// Bytes returns how many bytes were delivered from a to b and from b to a; of an adopted session, since it left user space last.
func (s *Session) Bytes() [2]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes()
}

// bytes needs the lock. Once the session is over, moved has all.
func (s *Session) bytes() (n [2]uint64) {
	return s.count(translate.Delivered)
}

// carried is bytes with those that are not acknowledged.
func (s *Session) carried() (n [2]uint64) {
	return s.count(translate.Carried)
}

// count adds those of the lane, by its account of each direction and of the opposite one, to those of user space.
func (s *Session) count(lane func(f, o *translate.Flow) uint64) (n [2]uint64) {
	if s.more != nil {
		n = s.more.moved
	}
	if !s.gone() {
		return n
	}
	f := s.flows()
	for i := range n {
		n[i] += lane(&f[i], &f[1-i])
	}
	return n
}

// Addresses returns those of the connections to a and to b, each the remote and the local one, or
// false for a session that has no place in the lane.
func (s *Session) Addresses() (a, b [2]netip.AddrPort, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stays() != None || s.phase == over { // another session may have its place
		return a, b, false
	}
	x, y := s.record().Leg(0), s.record().Leg(1)
	return [2]netip.AddrPort{x.Remote, x.Local}, [2]netip.AddrPort{y.Remote, y.Local}, true
}

// Wait returns when the session has ended, and end of [Lane.Join] has returned, which must not call it.
func (s *Session) Wait() {
	s.mu.Lock()
	if s.is(done) || s.lane() == nil {
		s.mu.Unlock()
		return
	}
	more := s.further()
	if more.ended == nil {
		more.ended = make(chan struct{})
	}
	ended := more.ended
	s.mu.Unlock()
	<-ended
}

// finished notes that the end was reported. It is called once.
func (s *Session) finished() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish()
}

// finish is finished with the lock held.
func (s *Session) finish() {
	s.set(done, true)
	if s.more != nil && s.more.ended != nil {
		close(s.more.ended)
	}
}

// wake takes the session back for the pump of a direction, and reports whether it may touch the
// sockets: not if the lane has the session.
func (s *Session) wake(d int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.disarm() {
		return false
	}
	s.set(idleA<<d, false)
	return true
}

// disarm needs the lock, and reports whether user space has the session.
func (s *Session) disarm() bool {
	if s.phase != relaying {
		return false
	}
	if !s.is(armed) {
		return true
	}
	r := s.record()
	if !r.Change(state.User, state.Armed, state.Claimed) && r.State() != state.User {
		s.phase = leaving
		return false
	}
	s.set(armed, false)
	if why, tries := r.Refusal(); tries != s.tries && why != uint32(None) { // or one that is still tried
		s.tries = tries
		if Reason(why) != Device || s.strange(tries) {
			s.lane().counts.refused[min(why, uint32(reasons-1))].Add(1)
		}
	}
	return true
}

// Each side's first packet since the session was joined shows the device that it arrives at: that of the side which has not tried is its
// acknowledgement, or its answer.
const (
	firstTries   = 2
	acknowledged = time.Second // by then, also over a long way, and though acknowledgements are delayed
)

// strange reports whether a device that is not known after that many tries is an obstacle, and not one that is not known yet. It needs the lock.
func (s *Session) strange(tries uint32) bool {
	return tries > firstTries && now()-s.began() >= int64(acknowledged)
}

// rest is called by a pump that is about to wait for bytes, and that holds none.
func (s *Session) rest(d int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(idleA<<d, true)
	s.arm()
}

// arm lets the lane have the session, if user space has nothing of it. It needs the lock.
func (s *Session) arm() {
	const rests, stays = idleA | idleB | graced, armed | toReset | kept
	if s.facts&(rests|stays) == rests && s.stays() == None && s.phase == relaying {
		s.set(armed, s.record().Change(state.Armed, state.User))
	}
}

// grace notes that a grace period has passed. An owner arms the session by itself.
func (s *Session) grace() {
	s.mu.Lock()
	s.set(graced, true)
	ready := s.owner() != nil && s.phase == relaying && !s.is(readied)
	if ready {
		s.set(readied, true)
	}
	if s.owner() == nil {
		s.arm()
	}
	s.mu.Unlock()
	if ready {
		s.owner().Ready(s) // may call Arm
	}
}
