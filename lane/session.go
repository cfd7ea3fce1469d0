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

// A phase is where a session is, as user space sees it.
type phase uint8

const (
	over      phase = iota // also the phase of a zero Session
	relaying               // user space relays it
	leaving                // the program has taken it, and user space is giving up the sockets
	away                   // the program has it, and the sockets are closed or in repair
	returning              // the lane has stopped it, and its sockets are being made again
	restoring              // returning, while Config.Restored runs
)

// A Result says how a session ended.
type Result struct {
	// Bytes are the bytes delivered from a to b, and from b to a, in user space and in the lane. The lane
	// counts acknowledged bytes. After a reset it counts all bytes that it has carried, even if some have not
	// arrived, just as user space counts all bytes that it has written.
	Bytes [2]uint64
	// Left reports whether the session has ever left user space.
	Left bool
	// Reset reports whether the session ended by a reset, and not by an end of file from each side.
	Reset bool
	// Err is the error that ended the session, or nil.
	Err error
	// View is what the lane has observed until the end, if the session has ever left user space.
	View View
}

// A Session is two joined connections. Its methods may be called concurrently. The zero Session has ended: its
// methods return errors that wrap net.ErrClosed.
//
// A process can have a million sessions at rest, so a Session is small (TestThousandsIdle). State that few
// sessions have is in further and in Lane.ends.
type Session struct {
	of   *ownership // nil: a zero Session
	more *further   // nil: all its fields are zero

	mu    sync.Mutex
	slot  uint32
	hold  int32  // owned; the socket in repair that holds the local port to b, or -1
	tries uint32 // the attempts that are already counted
	facts facts
	phase phase
	dead  uint8 // 1 + the endpoint that has not acknowledged or answered for too long, so that the session is reset; 0: none
}

// A further is state that few sessions have. A session of an owner has none until it has come back or ended.
type further struct {
	conn  *[2]*net.TCPConn // owned; nil once the session is away
	moved [2]uint64        // bytes relayed in user space
	ended chan struct{}    // closed when the session is done; nil: nobody waits
	began int64            // see Session.began; 0: the record has it
	since int64            // see Session.since; 0: the same as began
	never Reason           // see Session.stays
}

// began returns when the session was joined, possibly by an earlier process, in ns of the monotonic clock. It
// needs the lock.
func (s *Session) began() int64 {
	if s.more != nil && s.more.began != 0 {
		return s.more.began
	}
	return int64(s.record().Began())
}

// since returns the latest of four times: when the session was joined, when the lane last moved bytes in user
// space, when the session came back, and when it ended. It needs the lock.
func (s *Session) since() int64 {
	if s.more != nil && s.more.since != 0 {
		return s.more.since
	}
	return s.began()
}

// stays returns why the session can never leave user space, and so has no place in the lane. It returns None
// if the session can leave. It needs the lock.
func (s *Session) stays() Reason {
	if s.more == nil {
		return None
	}
	return s.more.never
}

// end ends the session at a given time. It copies what it needs from the record, because another session may
// get the place then. It needs the lock.
func (s *Session) end(since int64) {
	m := s.further()
	m.began, m.since = max(s.began(), 1), since
	s.phase = over
}

// facts are bits that say something about a session.
type facts uint16

const (
	idleA     facts = 1 << iota // the pump from a waits for bytes and holds none
	idleB                       // the pump from b waits for bytes and holds none
	armed                       // it is armed, as far as user space knows
	graced                      // a grace period has passed since the session was registered
	again                       // MayLeave was called in the grace period: packets that came before it do not count
	readied                     // Owner.Ready was called
	halved                      // Observer.HalfClosed was called, or is being called
	toReset                     // Reset was called, and the reset must be carried out
	forgotten                   // Lane.Leave was called: it goes on without this process
	kept                        // ComeBack or TakeBack was called: it must not leave
	flew                        // it has left user space at least once
	inherited                   // it was adopted from an earlier process
	handed                      // the owner has given its sockets away, or has released the session
	done                        // it has ended, and its end was reported
	unseen                      // it ended while no process had the lane
)

// is reports whether at least one of the facts f holds. It needs the lock.
func (s *Session) is(f facts) bool { return s.facts&f != 0 }

// set sets or clears facts. It needs the lock.
func (s *Session) set(f facts, on bool) {
	if s.facts &^= f; on {
		s.facts |= f
	}
}

// further returns the rare state, and makes it if necessary. It needs the lock.
func (s *Session) further() *further {
	if s.more == nil {
		s.more = new(further)
	}
	return s.more
}

// sockets returns the connections of a session of Join that is in user space, or nil if it has none. It needs
// the lock.
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

// Join joins two connections, takes both, and relays between them until the session ends. It relays in user
// space at first. The lane takes over as soon as a packet arrives while neither user space nor the sockets hold
// bytes of the session. If you have read bytes from one connection, write them to the other before you call
// Join. Join clears the deadlines of both connections; from then on the timeouts of [Config] apply.
//
// If end is not nil, a goroutine of the lane calls it once. end must not wait for the session, neither by Wait
// nor by Close.
//
// The error wraps os.ErrInvalid if a connection is missing or both are the same, [JoinedAlready] if a session
// of this lane relays one of them in user space, and net.ErrClosed if one is closed, and after Close. After an
// error the connections still belong to the caller.
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
		_ = c.SetDeadline(time.Time{}) // an old deadline, such as of a handshake, would end the session in user space, but not in the lane
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

// joinable returns an error if the two connections can have no session. It needs the lock.
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

// relay notes that a session relays these connections in user space. It needs the lock.
func (l *Lane) relay(conn *[2]*net.TCPConn) {
	for _, c := range conn {
		l.relayed[c] = struct{}{}
	}
}

// unrelay notes that a session no longer relays these connections. It does nothing for nil.
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

// transports returns the reason why a session of these connections can never leave user space, or None. It
// returns an error if they can have no session.
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

// record returns the session's record. The caller must know that the session has a slot.
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

// Refused returns why the session is in user space: why it stays there, or why the last packet did not take it.
// None means that it has left, or that no packet has tried.
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

// Bytes returns how many bytes were delivered from a to b and from b to a. For an adopted session it counts
// from the moment at which the session last left user space.
func (s *Session) Bytes() [2]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes()
}

// bytes returns the bytes that were delivered. Once the session is over, further.moved has all of them. It
// needs the lock.
func (s *Session) bytes() (n [2]uint64) {
	return s.count(translate.Delivered)
}

// carried returns the delivered bytes plus the bytes that are not acknowledged yet. It needs the lock.
func (s *Session) carried() (n [2]uint64) {
	return s.count(translate.Carried)
}

// count returns the bytes of user space plus the bytes of the lane. lane computes the bytes of one direction
// from the accounts of that direction and of the opposite one.
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

// Addresses returns the addresses of the connections to a and to b: of each connection first the remote address
// and then the local one. ok is false for a session that has no place in the lane.
func (s *Session) Addresses() (a, b [2]netip.AddrPort, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stays() != None || s.phase == over { // another session may have its place
		return a, b, false
	}
	x, y := s.record().Leg(0), s.record().Leg(1)
	return [2]netip.AddrPort{x.Remote, x.Local}, [2]netip.AddrPort{y.Remote, y.Local}, true
}

// Wait waits until the session has ended and Join's function end has returned. That function must not call
// Wait.
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

// finish does what finished does, for a caller that holds the lock.
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

// disarm takes the session back, and reports whether user space has it. It needs the lock.
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
	if why, tries := r.Refusal(); tries != s.tries && why != uint32(None) { // an attempt that was not counted yet
		s.tries = tries
		if Reason(why) != Device || s.strange(tries) {
			s.lane().counts.refused[min(why, uint32(reasons-1))].Add(1)
		}
	}
	return true
}

// The first packet from a side since the session was joined shows the side's device. After one side has made an
// attempt, the first packet from the other side is an acknowledgement or an answer.
const (
	firstTries   = 2
	acknowledged = time.Second // by then an acknowledgement has arrived, even if it is delayed and the path is long
)

// strange reports whether a device that is unknown after that many tries is an obstacle. Otherwise the side's
// first packet may still come. It needs the lock.
func (s *Session) strange(tries uint32) bool {
	return tries > firstTries && now()-s.began() >= int64(acknowledged)
}

// rest is called by the pump of direction d when it holds no bytes and is about to wait for some.
func (s *Session) rest(d int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(idleA<<d, true)
	s.arm()
}

// arm lets the lane take the session, if user space holds nothing of it. It needs the lock.
func (s *Session) arm() {
	const rests, stays = idleA | idleB | graced, armed | toReset | kept
	if s.facts&(rests|stays) == rests && s.stays() == None && s.phase == relaying {
		s.set(armed, s.record().Change(state.Armed, state.User))
	}
}

// grace notes that a grace period has passed, and reports whether the session needs another one. It arms a session
// that has no owner; an owner arms its sessions itself.
func (s *Session) grace() (another bool) {
	s.mu.Lock()
	repeated := s.is(again)
	s.set(again, false)
	if repeated && s.phase == relaying && s.stays() == None && s.record().ForgetNotes() {
		s.mu.Unlock()
		return true
	}
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
	return false
}

// chunk is how many bytes a pump moves at once.
const chunk = 64 << 10

// chunks are buffers for pumps. A pump holds one while it has bytes, and none while it waits.
var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// errLeft ends a pump when its session has left user space.
var errLeft = errors.New("lane: the session has left user space")

// run relays the session in user space, until it ends there or leaves. It does not touch directions that have
// ended in the lane.
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
	// The sockets must be closed before the session is over: their RSTs need the session's record, which has
	// their numbers. No other goroutine closes them.
	for _, c := range conn {
		if err != nil {
			_ = c.SetLinger(0)
		}
		_ = c.Close()
	}
	s.over(err != nil, err)
}

// firstOf returns the error that ended a session. The pump that meets it interrupts the other pump, so a
// deadline is never the cause. If both pumps were interrupted, the session was reset, and the error is
// net.ErrClosed.
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

// pump moves the bytes of one direction until its end of file.
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

// fill waits for bytes and reads some into a chunk. The caller puts the chunk back, unless there is an error.
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

// noteLeft checks whether the program has taken the session, and then ends the pumps. It reads the record,
// because the session may have come back since the program reported that it had left.
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

// A View is what the lane has observed of a session, so that a caller can judge it. The counts cover all the
// time that the session has spent in the lane, and none in user space.
type View struct {
	// Ends are the endpoints of a and of b.
	Ends [2]End
	// InLane reports whether the session is in the lane now.
	InLane bool
	// LastPacket is the time of the last packet carried, by CLOCK_MONOTONIC; 0 before the first packet.
	LastPacket time.Duration
	// Time is how long the session has been in the lane.
	Time time.Duration
	// EndedBy is the endpoint that has sent an RST since the session last left user space, or else the endpoint
	// that has sent the first FIN: 0 is a, and 1 is b. -1 means that neither an RST nor a FIN has come.
	EndedBy int
}

// An End is one of the two endpoints of a session. A stray or forged packet that fits no window counts only in
// Packets.
type End struct {
	Packets uint64 // carried packets that came from this endpoint
	// Outstanding is how many bytes this endpoint has sent and the other has not acknowledged. It is 0 while
	// the session is in user space.
	Outstanding uint64
	// Window is the last window that this endpoint has advertised, in bytes.
	Window uint32
	// WidestWindow is the largest window that it has advertised.
	WidestWindow uint32
	// ZeroWindows counts how often its window became 0, because the endpoint reads more slowly than bytes come.
	ZeroWindows uint32
	// Repeated counts segments with data that this endpoint had sent before: they were lost behind the lane, or
	// not acknowledged in time. Probes of a zero window that carry a byte count too.
	Repeated uint32
	// Ended reports whether the lane has carried its end of file.
	Ended bool
	// Last reports whether the last new bytes that the lane has carried came from this endpoint.
	Last bool
	// RoundTrip is how long the last packets took from here to the endpoint and back, measured by the echo of
	// their timestamps. It includes the time until the endpoint acknowledges. It is a mean in which the last
	// measurement has half of the weight. Measurements do not overlap. LeastRoundTrip is the shortest one.
	// DataRoundTrip is the time from a packet without data to the endpoint until the endpoint sends data, so it
	// includes the endpoint's own pauses. 0 means that there was no measurement, for example because the
	// connection has no timestamps.
	RoundTrip, LeastRoundTrip, DataRoundTrip time.Duration
	// Payload is how many bytes of data came, including repeated bytes. Segments are packets with data.
	// BehindGap are segments that came while an earlier segment was missing. Lost are segments that came again
	// although no segment was missing here: the path behind the lane has lost them, or was slow.
	Payload                   uint64
	Segments, BehindGap, Lost uint32
	// Waits is how long the session has waited for this endpoint.
	Waits Waits
}

// OnlyEnd returns the endpoint that has sent an end of file if the other one has sent none: it has ended first,
// even if a reset came afterwards. -1 means that it is not known which endpoint ended first.
func (v *View) OnlyEnd() int {
	for i := range v.Ends {
		if v.Ends[i].Ended && !v.Ends[1-i].Ended {
			return i
		}
	}
	return -1
}

// Look returns what the lane has observed of the session. ok is false if the session has no place in the lane.
func (s *Session) Look() (v View, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stays() != None || s.phase == over { // another session may have its place
		return View{EndedBy: -1}, false
	}
	return s.view(), true
}

// view is Look for a caller that holds the lock, and for a session with a place in the lane.
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

// halfEnded returns, once, the direction of a session in the lane that has ended first. It returns -1 if none has
// ended, or if it was returned before.
func (s *Session) halfEnded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != away || s.is(halved) {
		return -1
	}
	f := s.flows()
	for i := range f {
		if f[i].Fin != 0 { // acknowledged or not: the other endpoint may never acknowledge it
			s.set(halved, true)
			return i
		}
	}
	return -1
}

// Waits is how long a session in the lane has waited for one of its endpoints, or for the path to it. Each
// moment counts once, for one endpoint, in steps of 131 µs without a bias. The rest of [View.Time] is time
// without a known wait: for two seconds or more no data came, and a was not waiting for an answer.
//
// A wait for data counts when the data comes, for the endpoint that sends it. If a has sent the last data, a
// wait that still goes on counts for b. While repeated bytes are not acknowledged, the time counts as Again for
// the endpoint that must acknowledge them. If two CPUs carry packets of one session at the same moment, a step
// can get lost.
type Waits struct {
	Answer time.Duration // for data of this endpoint, after data of the other one
	More   time.Duration // for data of this endpoint, after earlier data of its own
	Window time.Duration // for its window, which had room for less than a segment
	Ack    time.Duration // for its acknowledgement, after which the other endpoint went on at once
	Flight time.Duration // for data of the other endpoint, while more than a segment was on the way to this one
	Gap    time.Duration // for data of this endpoint that is missing here and at the other endpoint
	Again  time.Duration // for the other endpoint to send again although nothing was missing here, and then for the acknowledgement of this one
	// Answers and Pauses count the waits in Answer and More. Waits shorter than a step are not counted.
	Answers, Pauses uint32
	// Narrow is how long its window had room for less than two segments, or had less than a third of its
	// largest size left, whatever the session was waiting for.
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
