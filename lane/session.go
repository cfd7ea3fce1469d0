package lane

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
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
	returning              // it is held, and the sockets are made again
	restoring              // the same, and Config.Restored is running
)

// A Result is how a session ended.
type Result struct {
	// Bytes are the bytes delivered from a to b, and from b to a, by user space and by the lane, which
	// counts them by acknowledgements. After a reset it counts all bytes that the lane has carried,
	// although some may not have arrived, as it counts all bytes that user space has written.
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

// A Session is two joined connections. Its methods may be called concurrently. The zero Session has ended:
// errors of its methods wrap net.ErrClosed.
//
// Every session that rests has one, so it is small (TestMillionSessions); few sessions need more, or the functions of Lane.ends.
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

// began returns when it was joined, or when an earlier process joined it, in ns of the monotonic clock. It
// needs the lock.
func (s *Session) began() int64 {
	if s.more != nil && s.more.began != 0 {
		return s.more.began
	}
	return int64(s.record().Began())
}

// since returns when the lane last moved bytes in user space, when the session came back, or when
// it ended; if none of these happened, when it was joined. It needs the lock.
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

// end ends the session, with the time of its end. Another session may have its place then. It needs
// the lock.
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
// Write bytes that you have read from one to the other before. Deadlines of both are cleared; the timeouts of [Config] hold.
// end, unless it is nil, is called once, by a goroutine of the lane, and must not wait for the session: neither by Wait nor by
// Close. The error wraps os.ErrInvalid if a connection is missing, [JoinedAlready] if a session of this lane relays one of them in
// user space, and net.ErrClosed if one is closed, and after Close. The connections are not taken then.
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

// unrelay notes that a session no longer has these; nil: it had none.
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

// gone reports whether user space has no sockets of the session. It needs the lock.
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

// carried is bytes, and what is not acknowledged yet.
func (s *Session) carried() (n [2]uint64) {
	return s.count(translate.Carried)
}

// count adds the bytes of the lane, by its account of each direction and of the opposite one, to the bytes of user space.
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

// Addresses returns the addresses of the connections to a and to b, each the remote and the local one, or
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

// Wait returns when the session has ended and Join's function end has returned. That function must
// not call Wait.
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

// wake takes the session back for the pump of a direction, and reports whether the pump may touch
// the sockets. It may not if the lane has the session.
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
	if why, tries := r.Refusal(); tries != s.tries && why != uint32(None) { // else there is no refusal, or none since the last
		s.tries = tries
		if Reason(why) != Device || s.strange(tries) {
			s.lane().counts.refused[min(why, uint32(reasons-1))].Add(1)
		}
	}
	return true
}

// Each side's first packet since the session was joined shows the device that it arrives at. From the side that has not tried it is
// an acknowledgement, or an answer.
const (
	firstTries   = 2
	acknowledged = time.Second // by then, also over a long way, and though acknowledgements are delayed
)

// strange reports whether a device that is still unknown after that many tries is an obstacle. It needs the lock.
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

// chunk is how many bytes a pump moves at once.
const chunk = 64 << 10

// chunks are held by pumps that have bytes, not by pumps that wait.
var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// errLeft ends a pump when its session has left user space.
var errLeft = errors.New("lane: the session has left user space")

// run relays the session in user space, until it ends there or leaves. Directions that have ended in
// the lane are left alone.
func (s *Session) run(ended [2]bool) {
	s.mu.Lock()
	conn := *s.sockets()
	s.mu.Unlock()
	var pumps sync.WaitGroup
	var errs [2]error
	for d := range 2 {
		if ended[d] {
			continue
		}
		pumps.Go(func() {
			errs[d] = s.pump(d, conn[d], conn[1-d])
			if errs[d] != nil && !s.left() {
				interrupt(conn)
			}
		})
	}
	pumps.Wait()
	if s.left() {
		s.leave(conn)
		return
	}
	err := firstOf(errs)
	// No other goroutine closes them, so they are closed when this is over: their resets find the session's record, which has their numbers.
	for _, c := range conn {
		if err != nil {
			_ = c.SetLinger(0)
		}
		_ = c.Close()
	}
	s.over(err != nil, err)
}

// firstOf returns the cause of the end of a session, which interrupts the pump that has not met it; net.ErrClosed if the session was reset.
func firstOf(errs [2]error) (err error) {
	for _, e := range errs {
		if err == nil || err == net.ErrClosed {
			err = e
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = net.ErrClosed
		}
	}
	return err
}

// interrupt ends the pumps of a session that is in user space.
func interrupt(conn [2]*net.TCPConn) {
	for _, c := range conn {
		_ = c.SetDeadline(past)
	}
}

// pump moves one direction until its end of file.
func (s *Session) pump(d int, from, to *net.TCPConn) error {
	raw, err := from.SyscallConn()
	if err != nil {
		return err
	}
	for {
		b, n, err := s.fill(d, raw)
		if err == io.EOF {
			return to.CloseWrite()
		}
		if err != nil {
			return err
		}
		_, err = to.Write(b[:n])
		chunks.Put(b)
		if err != nil {
			return err
		}
		s.mu.Lock()
		more := s.further()
		more.moved[d] += uint64(n)
		more.since = now()
		s.mu.Unlock()
	}
}

// fill waits for bytes and reads some. The caller gives the chunk back, unless there is an error.
func (s *Session) fill(d int, raw syscall.RawConn) (b *[chunk]byte, n int, err error) {
	waited := raw.Read(func(fd uintptr) bool {
		if !s.wake(d) {
			err = errLeft
			return true
		}
		b = chunks.Get().(*[chunk]byte)
		n, err = sys.Recv(int(fd), b[:], sys.MSG_DONTWAIT)
		if err == nil && n > 0 {
			return true
		}
		chunks.Put(b)
		if err == syscall.EAGAIN {
			s.rest(d)
			return false
		}
		if err == nil {
			err = io.EOF
		}
		return true
	})
	if s.left() {
		return nil, 0, errLeft
	}
	if waited != nil {
		err = waited
	}
	return b, n, err
}

// past is a deadline that ends every wait.
var past = time.Unix(1, 0)

// noteLeft ends the pumps if the program has taken the session. It may have come back since that was reported.
func (s *Session) noteLeft() {
	s.mu.Lock()
	first := false
	if s.phase == relaying && s.stays() == None {
		if at := s.record().State(); at == state.Lane || at == state.Done {
			s.phase, first = leaving, true
		}
	}
	conn, leaves := s.sockets(), s.phase == leaving
	s.mu.Unlock()
	if first && s.owner() != nil {
		s.owner().Left(s)
	}
	if conn != nil && leaves {
		for _, c := range conn {
			_ = c.SetReadDeadline(past)
		}
	}
}

// A View has the lane's observations of a session, for verdicts on it. Counts cover all its time in
// the lane, and none in user space.
type View struct {
	// Ends are the endpoints of a and of b.
	Ends [2]End
	// InLane reports whether the session is in the lane now.
	InLane bool
	// LastPacket is the time of the last packet carried, by CLOCK_MONOTONIC; 0 before the first packet.
	LastPacket time.Duration
	// Time is how long it has been in the lane.
	Time time.Duration
	// EndedBy is the endpoint that has sent an RST since the session last left, or else the first FIN:
	// 0 is a, 1 is b, and -1 means that neither has come.
	EndedBy int
}

// An End is one of the two endpoints of a session. A stray or forged packet, which fits no window, counts in
// Packets alone.
type End struct {
	Packets uint64 // packets that have come from it and were carried
	// Outstanding is the number of bytes sent by this endpoint and not acknowledged by the other
	// one. It is 0 while the session is in user space.
	Outstanding uint64
	// Window is the last window that it has advertised, in bytes.
	Window uint32
	// WidestWindow is the largest that it has advertised.
	WidestWindow uint32
	// ZeroWindows counts how often its window became 0, because it reads more slowly than
	// bytes come.
	ZeroWindows uint32
	// Repeated counts segments whose data it had already sent: they were lost behind the lane, or not acknowledged in
	// time. Probes of a zero window that carry a byte count too.
	Repeated uint32
	// Ended reports whether its end of file was carried.
	Ended bool
	// Last reports whether the last bytes that the lane has carried for the first time have come from it.
	Last bool
	// RoundTrip is how long the last packets took from here to the endpoint and back to here, by the
	// echo of their timestamps, with the time until the endpoint acknowledges; the last one has half
	// of the weight. Measurements do not overlap; LeastRoundTrip is the shortest. DataRoundTrip is
	// from a packet without data to the first with data, with the endpoint's own pauses. 0: there was
	// no measurement, as for connections without timestamps.
	RoundTrip, LeastRoundTrip, DataRoundTrip time.Duration
	// Payload is bytes of data, repeated bytes included. Segments are packets with data. BehindGap are segments that came while an earlier one was missing. Lost are segments
	// that came again though none was missing: the path behind the lane has lost them, or was slow.
	Payload                   uint64
	Segments, BehindGap, Lost uint32
	// Waits is how long the session has waited for this endpoint.
	Waits Waits
}

// OnlyEnd returns the endpoint that has sent an end of file while the other has sent none. It has
// ended first, even if a reset came afterwards. -1: that is not known.
func (v *View) OnlyEnd() int {
	for i := range v.Ends {
		if v.Ends[i].Ended && !v.Ends[1-i].Ended {
			return i
		}
	}
	return -1
}

// Look returns the lane's observations of the session, or false if it has no place in the lane.
func (s *Session) Look() (v View, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stays() != None || s.phase == over { // another session may have its place
		return View{EndedBy: -1}, false
	}
	return s.view(), true
}

// view needs the lock, and a place in the lane.
func (s *Session) view() (v View) {
	r, f := s.record(), s.flows()
	clock := r.Clock()
	v.InLane, v.LastPacket, v.Time = s.gone(), time.Duration(r.LastPacket()), r.Spent()
	v.EndedBy = r.By()
	if v.InLane {
		open := max(0, now()-int64(r.LastPacket()))
		v.Time += time.Duration(open)
		clock = clock.Now(&f, uint32(open>>translate.Tick))
	}
	for i := range v.Ends {
		e := &v.Ends[i]
		*e = End{
			Packets: r.Packets(i), Window: f[i].Window, WidestWindow: f[i].Widest, ZeroWindows: f[i].Zeros, Repeated: f[i].Repeats,
			Payload: f[i].Payload, Segments: f[i].Segments, BehindGap: f[i].BehindGap, Lost: f[i].Lost, Ended: f[i].Fin != 0, Last: r.LastNew() == i, Waits: waitsOf(&clock, i),
		}
		e.RoundTrip, e.LeastRoundTrip, e.DataRoundTrip = r.RoundTrip(i)
		if v.InLane {
			e.Outstanding = f[i].Sent - min(f[i].Sent, f[1-i].Acked)
		}
	}
	return v
}

// halfEnded returns, once, the direction that has ended of a session in the lane while the other
// goes on; -1 if none has.
func (s *Session) halfEnded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != away || s.is(halved) {
		return -1
	}
	f := s.flows()
	for i := range f {
		if f[i].Fin != 0 { // acknowledged or not: the endpoint that goes on may do without
			s.set(halved, true)
			return i
		}
	}
	return -1
}

// Waits is how long a session in the lane has waited for one of its endpoints, or for the path to it: each moment
// counts once, for one endpoint, in steps of 131 µs without a bias. The rest of [View.Time] is the time without any
// known wait: for two seconds or more no data came, and no question of a was open.
//
// A wait for data counts when the data comes, for the endpoint that sends it. A wait that goes on counts for b, if a has sent the last data. While bytes that were
// sent again are not acknowledged, it counts as Again for the endpoint that is to acknowledge them.
// Two CPUs that carry packets of one session at the same moment may lose a step.
type Waits struct {
	Answer time.Duration // for its data, after data of the other one
	More   time.Duration // for its data, after data of its own
	Window time.Duration // for its window, which held less than a segment
	Ack    time.Duration // for its acknowledgement, after which the other one went on at once
	Flight time.Duration // for data of the other one, while more than a segment was on the way to this one
	Gap    time.Duration // for data of its own that is missing here, and that the other one lacks
	Again  time.Duration // for the other one to send again, though nothing was missing here, and then for its acknowledgement
	// Answers and Pauses count the waits of Answer and More, except for waits that were too short for a
	// step.
	Answers, Pauses uint32
	// Narrow is how long its window held less than two segments, or had less than a third of the largest one left,
	// whatever was waited for.
	Narrow time.Duration
}

func waitsOf(c *translate.Clock, side int) Waits {
	of := func(w translate.Wait) time.Duration {
		return time.Duration(c.Waits[side][w]) << translate.Tick
	}
	return Waits{
		Answer: of(translate.WaitAnswer), More: of(translate.WaitMore), Window: of(translate.WaitWindow), Ack: of(translate.WaitAck),
		Flight: of(translate.WaitFlight), Gap: of(translate.WaitGap), Again: of(translate.WaitAgain),
		Answers: c.Answers[side], Pauses: c.Pauses[side],
		Narrow: time.Duration(c.Narrow[side]) << translate.Tick,
	}
}
