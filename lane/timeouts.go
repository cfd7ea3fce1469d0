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

// A Probed is an [Owner] with a keepalive time of its own for its session.
type Probed interface {
	Owner
	// KeepAlive returns that time, in place of [Config.KeepAlive]; 0, or less: it has none. It is called once, by [Lane.Register]. A
	// process that adopts the session keeps to it.
	KeepAlive(s *Session) time.Duration
}

const (
	// probeInterval is the longest time between two probes that are not answered, and leastProbe the shortest between any two: an
	// endpoint answers one in half a second (net/ipv4/tcp_input.c, tcp_oow_rate_limited).
	probeInterval = 10 * time.Second
	leastProbe    = time.Second
	// mostUnanswered is how many unanswered probes end a session without a user timeout, as in the
	// kernel (tcp_keepalive_probes).
	mostUnanswered = 9
	// mostProbed is how many sessions are probed in one sweep, so that it lasts for a few milliseconds: some 1,000 in a second.
	mostProbed = 256
)

// keepAlive is how long the session may be silent before both endpoints are probed; 0: they are not. It needs the lock, and a place in the lane.
func (s *Session) keepAlive() time.Duration {
	if d, own := s.record().KeptAlive(); own {
		return d
	}
	return s.lane().cfg.KeepAlive
}

// A silence is a session in the lane that has been silent for its keepalive time.
type silence struct {
	flip    uint64    // when the session has left, see stall
	since   int64     // of its last packet, or the last bytes before the probes
	sent    [2]uint64 // by the endpoints: more ends the silence
	asked   int64     // when the first probe was sent that is not answered, or the last that was
	next    int64     // when another one is due
	packets [2]uint64 // that have come from the endpoints by then
	awaits  [2]bool   // the endpoints that have not answered
	round   uint32
}

// silences are the silent sessions that the sweep has found.
type silences struct {
	of     map[*Session]*silence
	round  uint32
	probed int // sessions, in this sweep
}

// next forgets what this round has not found any more, and begins another round.
func (l *silences) next() {
	for s, q := range l.of {
		if q.round != l.round {
			delete(l.of, s)
		}
	}
	l.round++
	l.probed = 0
}

// sent is how far the endpoints have sent. It needs the lock.
func (s *Session) sent() [2]uint64 {
	f := s.flows()
	return [2]uint64{f[0].Sent, f[1].Sent}
}

// look sends the probes that are due. It returns the endpoint that has not answered for too long, if any.
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

// ask is look of a session that is silent.
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

// probe sends a keepalive probe to an endpoint: a socket that is made for that sends an acknowledgement at the number
// before the next one, as the kernel's keepalive does (net/ipv4/tcp_output.c, tcp_xmit_probe_skb), which the endpoint
// answers. From then on the socket to b holds the port, in place of the socket that held it before. It needs the lock:
// neither can the session come back meanwhile.
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

// A TimedOut is the error of a [Result] of a session that its user timeout has ended, see [Config.UserTimeout] and [Config.KeepAlive]. It wraps
// syscall.ETIMEDOUT, which is the kernel's error of a socket then.
type TimedOut struct {
	By int // the endpoint that has not acknowledged, or answered: 0 is a's, and 1 b's
}

// Error names the endpoint.
func (e *TimedOut) Error() string {
	return fmt.Sprintf("lane: the endpoint of %c has not acknowledged bytes for too long, or answered no keepalive probe", 'a'+e.By)
}

// Unwrap returns syscall.ETIMEDOUT.
func (*TimedOut) Unwrap() error { return syscall.ETIMEDOUT }

// A Bounded is an [Owner] with a user timeout of its own for its session.
type Bounded interface {
	Owner
	// UserTimeout returns that timeout, in place of [Config.UserTimeout]; 0, or less: it has none. It is called once, by [Lane.Register]. A
	// process that adopts the session keeps to it, until [Session.SetUserTimeout].
	UserTimeout(s *Session) time.Duration
}

// userTimeout is the session's user timeout; 0: it has none. It needs the lock, and a place in the lane.
func (s *Session) userTimeout() time.Duration {
	if d, own := s.record().Bounded(); own {
		return d
	}
	return s.lane().cfg.UserTimeout
}

// A stall begins when bytes that one endpoint has sent stay unacknowledged, and begins again with each new acknowledgement.
type stall struct {
	flip    uint64 // when the session has left, which it may have done again between two looks
	acked   uint64 // all that the endpoint has acknowledged, a position
	since   int64  // when a look has found that first, in ns of the monotonic clock
	resent  uint32 // the sender's at that look, see translate.Flow,
	packets [2]uint64
	round   uint32 // of the last look
}

// over reports whether a stall of bytes of f has lasted for longer than a time, and the bytes are really on the way: the sender sends them again, as
// every sender does without an acknowledgement. Otherwise the number of a damaged segment, which no endpoint has taken, would end a session that
// rests. They must be the bytes that the endpoint is to acknowledge next: a sender that keeps those back, and repeats what is behind them, waits for
// itself alone. A FIN that comes again is no segment with data; its endpoint is silent.
func (st *stall) over(f, o *translate.Flow, packets [2]uint64, at int64, timeout time.Duration) bool {
	switch {
	case at-st.since <= int64(timeout):
		return false
	case f.Fin != 0 && f.Sent == f.Fin && o.Acked == f.Fin-1:
		return packets[0] != st.packets[0] && packets[1] == st.packets[1]
	}
	return f.Resent != st.resent
}

// awaited reports whether f has sent bytes that the other endpoint is to acknowledge. The byte with
// which some kernels probe a closed window does not count: it is behind the edge.
func awaited(f, o *translate.Flow) bool { return min(f.Sent, o.Edge) > o.Acked }

// A stalled is the sender's side of a session.
type stalled struct {
	session *Session
	from    uint8
}

// stalls are the stalls that the sweep has found: of few sessions, and none that rests.
type stalls struct {
	of    map[stalled]stall
	round uint32
}

// look returns the endpoint that has not acknowledged for longer than the session's user timeout, if any.
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

// next forgets stalls that this round has not found any more, and begins another round.
func (l *stalls) next() {
	maps.DeleteFunc(l.of, func(_ stalled, st stall) bool { return st.round != l.round })
	l.round++
}

// Idle returns how long no bytes were moved in user space, and no packet was carried in the lane. Bytes in user space
// are known where the lane itself relays: for sessions of Join and adopted sessions. For a session of an [Owner] in
// user space it counts from the begin, as [Session.Age] does, or from the last return. Call [Session.Reset] to end a
// session that has been idle for too long.
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

// expire resets the session if an endpoint has not acknowledged bytes, or answered probes, for too long. stalls and
// quiet belong to the sweep.
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
		s.lane().running.Go(s.Reset) // which waits for a grace period
	}
}
