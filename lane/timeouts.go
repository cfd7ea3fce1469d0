package lane

import (
	"errors"
	"fmt"
	"maps"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/program"
	"github.com/penstock/penstock/lane/internal/translate"
)

// A Probed is an [Owner] that sets the keepalive time of its sessions.
type Probed interface {
	Owner
	// KeepAlive returns the session's keepalive time, which replaces [Config.KeepAlive]. 0 or less sends no
	// probes. It is called once, by [Lane.Register] or [Lane.Own]. A process that adopts the session uses the
	// same time.
	KeepAlive(s *Session) time.Duration
}

const (
	// probeInterval is the longest time between two probes that are not answered, and leastProbe is the
	// shortest time between any two probes: an endpoint answers only one probe in half a second
	// (net/ipv4/tcp_input.c, tcp_oow_rate_limited).
	probeInterval = 10 * time.Second
	leastProbe    = time.Second
	// mostUnanswered is how many unanswered probes end a session without a user timeout, as in the
	// kernel (tcp_keepalive_probes).
	mostUnanswered = 9
	// mostProbed is how many sessions are probed in one sweep, about 1,000 in a second. It keeps a sweep at a
	// few milliseconds.
	mostProbed = 256
)

// keepAlive returns how long the session can be silent before both endpoints are probed, or 0 if they are not
// probed. It needs the lock, and a place in the lane.
func (s *Session) keepAlive() time.Duration {
	if d, own := s.record().KeptAlive(); own {
		return d
	}
	return s.lane().cfg.KeepAlive
}

// A silence belongs to a session in the lane that has been silent for its keepalive time.
type silence struct {
	flip    uint64    // when the session left user space, see stall
	since   int64     // time of the last packet, or of the last bytes before the probes
	sent    [2]uint64 // how far the endpoints had sent: if they send more, the silence ends
	asked   int64     // when the first unanswered probe was sent, or else the last probe
	next    int64     // when the next probe is due
	packets [2]uint64 // how many packets had come from the endpoints when asked was set
	awaits  [2]bool   // the endpoints that have not answered
	round   uint32
}

// silences are the silent sessions that the sweep has found.
type silences struct {
	of     map[*Session]*silence
	round  uint32
	probed int // sessions probed in this sweep
}

// next forgets the sessions that were not silent in this round, and begins another round.
func (l *silences) next() {
	for s, q := range l.of {
		if q.round != l.round {
			delete(l.of, s)
		}
	}
	l.round++
	l.probed = 0
}

// sent returns how far the endpoints have sent. It needs the lock.
func (s *Session) sent() [2]uint64 {
	f := s.flows()
	return [2]uint64{f[0].Sent, f[1].Sent}
}

// look sends the probes of a session that are due. If an endpoint has not answered for too long, look returns
// it.
func (l *silences) look(s *Session, at int64) (by int, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != away {
		return 0, false
	}
	wait := s.keepAlive()
	if wait <= 0 {
		return 0, false
	}
	wait = max(wait, leastProbe)
	r := s.record()
	q, packets := l.of[s], [2]uint64{r.Packets(0), r.Packets(1)}
	if q != nil && (q.flip != r.Begun || q.sent != s.sent()) {
		q = nil
	}
	if q == nil {
		last := max(s.since(), int64(r.LastPacket()))
		if at-last < int64(wait) {
			return 0, false
		}
		q = &silence{flip: r.Begun, since: last, sent: s.sent(), packets: packets}
		l.of[s] = q
	}
	q.round = l.round
	return l.ask(s, q, packets, at, wait)
}

// ask does the work of look for a session that is silent.
func (l *silences) ask(s *Session, q *silence, packets [2]uint64, at int64, wait time.Duration) (by int, found bool) {
	timeout, interval := s.userTimeout(), probeInterval
	if timeout > 0 {
		timeout = max(timeout, leastProbe)
		interval = min(interval, timeout)
	} else {
		timeout = mostUnanswered * interval
	}
	for i := range q.awaits {
		if q.awaits[i] && packets[i] != q.packets[i] {
			q.awaits[i] = false
		}
		if q.awaits[i] && at-q.asked >= int64(timeout) {
			return i, true
		}
	}
	answered := q.awaits == [2]bool{}
	if answered && q.asked != 0 {
		q.next = max(q.next, q.asked+int64(wait))
	}
	if at < q.next || l.probed >= mostProbed {
		return 0, false
	}
	l.probed++
	if answered {
		q.asked, q.packets, q.awaits = at, packets, [2]bool{true, true}
	}
	for i, awaits := range q.awaits {
		if awaits && s.probe(i) != nil {
			s.lane().counts.failed.Add(1)
		}
	}
	q.next = at + int64(interval)
	return 0, false
}

// probe sends a keepalive probe to an endpoint, which answers it. For that it makes a socket. The socket sends
// an acknowledgement at the number before the next one, as the kernel's keepalive does (net/ipv4/tcp_output.c,
// tcp_xmit_probe_skb). A new socket to b also holds the port from then on, instead of the socket that held it
// before. probe needs the lock, so the session cannot come back meanwhile.
func (s *Session) probe(side int) error {
	c := s.record().Connection(side)
	if side == 1 && s.hold >= 0 {
		_ = syscall.Close(int(s.hold)) // in repair: nothing is sent
		s.hold = -1
	}
	fd, err := sys.Restore(c)
	if err == nil {
		err = errors.Join(sys.SetsockoptInt(fd, sys.SOL_SOCKET, syscall.SO_PRIORITY, program.ProbePriority), sys.Resume(fd), sys.Repair(fd, true))
		if side == 0 || err != nil {
			err = errors.Join(err, syscall.Close(fd))
		}
	}
	if side == 1 {
		if err != nil {
			l := s.record().Leg(1)
			var e error
			fd, e = sys.Established(l.Local, l.Remote, 0, 0)
			err = errors.Join(err, e)
		}
		s.hold = int32(fd)
	}
	return err
}

// A TimedOut is the error of a [Result] if a timeout of the lane has ended the session, see
// [Config.UserTimeout] and [Config.KeepAlive]. It wraps syscall.ETIMEDOUT, as the kernel's error for such a
// socket.
type TimedOut struct {
	By int // the endpoint that has not acknowledged or answered: 0 is a's, and 1 is b's
}

// Error names the endpoint.
func (e *TimedOut) Error() string {
	return fmt.Sprintf("lane: the endpoint of %c has not acknowledged bytes for too long, or has not answered keepalive probes", 'a'+e.By)
}

// Unwrap returns syscall.ETIMEDOUT.
func (*TimedOut) Unwrap() error { return syscall.ETIMEDOUT }

// A Bounded is an [Owner] that sets the user timeout of its sessions.
type Bounded interface {
	Owner
	// UserTimeout returns the session's user timeout, which replaces [Config.UserTimeout]. 0 or less sets none.
	// It is called once, by [Lane.Register] or [Lane.Own]. A process that adopts the session uses the same
	// timeout.
	UserTimeout(s *Session) time.Duration
}

// userTimeout returns the session's user timeout, or 0 if it has none. It needs the lock, and a place in the
// lane.
func (s *Session) userTimeout() time.Duration {
	if d, own := s.record().Bounded(); own {
		return d
	}
	return s.lane().cfg.UserTimeout
}

// A stall begins when bytes from one endpoint stay unacknowledged. It begins again with each new
// acknowledgement.
type stall struct {
	flip    uint64 // when the session left user space; it can leave again between two sweeps
	acked   uint64 // the position up to which the endpoint has acknowledged
	since   int64  // when a sweep first found this position, in ns of the monotonic clock
	resent  uint32 // the sender's translate.Flow.Resent at that time
	packets [2]uint64
	round   uint32 // the last sweep that found it
}

// over reports whether a stall has lasted longer than timeout, although the sender sends the bytes again, as every
// sender does without an acknowledgement. If the sender does not, the session goes on: a damaged segment, which no
// endpoint has taken, may have raised the number of sent bytes in a session at rest. The sender must repeat the
// bytes that the endpoint has to acknowledge next: a sender that repeats only later bytes waits for itself. For a
// FIN without data it is enough that the sender has sent packets since, and the other endpoint none.
func (st *stall) over(f, o *translate.Flow, packets [2]uint64, at int64, timeout time.Duration) bool {
	switch {
	case at-st.since <= int64(timeout):
		return false
	case f.Fin != 0 && f.Sent == f.Fin && o.Acked == f.Fin-1:
		return packets[0] != st.packets[0] && packets[1] == st.packets[1]
	}
	return f.Resent != st.resent
}

// awaited reports whether f has sent bytes that the other endpoint must acknowledge. Some kernels probe a
// closed window with a byte. That byte is beyond the edge and does not count.
func awaited(f, o *translate.Flow) bool { return min(f.Sent, o.Edge) > o.Acked }

// A stalled is a session and the side that sends.
type stalled struct {
	session *Session
	from    uint8
}

// stalls are the stalls that the sweep has found. Few sessions have one, and no session at rest has one.
type stalls struct {
	of    map[stalled]stall
	round uint32
}

// look returns the endpoint that has not acknowledged bytes for longer than the session's user timeout, if
// there is one.
func (l *stalls) look(s *Session, at int64) (by int, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != away {
		return 0, false
	}
	timeout := s.userTimeout()
	if timeout <= 0 {
		return 0, false
	}
	r, f := s.record(), s.flows()
	for from := range 2 {
		o := &f[1-from]
		if !awaited(&f[from], o) {
			continue
		}
		key, packets := stalled{s, uint8(from)}, [2]uint64{r.Packets(from), r.Packets(1 - from)}
		st, known := l.of[key]
		if !known || st.acked != o.Acked || st.flip != r.Begun {
			st = stall{flip: r.Begun, acked: o.Acked, since: at, resent: f[from].Resent, packets: packets}
		}
		st.round = l.round
		l.of[key] = st
		if st.over(&f[from], o, packets, at, timeout) {
			return 1 - from, true
		}
	}
	return 0, false
}

// next forgets the stalls that were not found in this round, and begins another round.
func (l *stalls) next() {
	maps.DeleteFunc(l.of, func(_ stalled, st stall) bool { return st.round != l.round })
	l.round++
}

// Idle returns the time since bytes were last moved in user space, or since a packet was last carried in the lane.
// In user space the lane knows of bytes only if it relays them itself. For a session of an [Owner] in user space,
// Idle counts from the beginning, like [Session.Age], or from the last return to user space. To end a session that
// has been idle for too long, call [Session.Reset].
func (s *Session) Idle() time.Duration {
	if s.lane() == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.since()
	if s.gone() {
		last = max(last, int64(s.record().LastPacket()))
	}
	return time.Duration(max(0, now()-last)) // a packet may have been carried since
}

// expire resets the session if an endpoint has not acknowledged bytes, or has not answered probes, for too
// long. stalls and quiet belong to the sweep.
func (s *Session) expire(stalls *stalls, quiet *silences) {
	at := now()
	by, found := stalls.look(s, at)
	if from, silent := quiet.look(s, at); silent && !found {
		by, found = from, true
	}
	if !found {
		return
	}
	s.mu.Lock()
	again := s.phase == over || s.dead != 0
	if !again {
		s.dead = uint8(by) + 1
	}
	s.mu.Unlock()
	if !again {
		s.lane().running.Go(s.Reset) // not in the sweep: Reset calls the owner, or the function of Join
	}
}
