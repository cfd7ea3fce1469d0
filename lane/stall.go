package lane

import (
	"fmt"
	"maps"
	"syscall"
	"time"

	"github.com/penstock/penstock/lane/internal/translate"
)

// A TimedOut is the error of a [Result] of a session that its user timeout has ended, see [Config.UserTimeout] and [Config.KeepAlive]. It wraps
// syscall.ETIMEDOUT, which is the kernel's error of a socket then.
type TimedOut struct {
	By int // the endpoint that has not acknowledged, or answered: 0 is that of a, and 1 that of b
}

// Error names the endpoint.
func (e *TimedOut) Error() string {
	return fmt.Sprintf("lane: the endpoint of %c has not acknowledged bytes for too long, or answered no keepalive probe", 'a'+e.By)
}

// Unwrap returns syscall.ETIMEDOUT.
func (*TimedOut) Unwrap() error { return syscall.ETIMEDOUT }

// A Bounded is an [Owner] whose session has a user timeout of its own.
type Bounded interface {
	Owner
	// UserTimeout returns that timeout, in place of [Config.UserTimeout]; 0, or less: it has none. It is called once, by [Lane.Register]. A
	// process that adopts the session keeps to it, until [Session.SetUserTimeout].
	UserTimeout(s *Session) time.Duration
}

// userTimeout is that of the session; 0: it has none. It needs the lock, and a place in the lane.
func (s *Session) userTimeout() time.Duration {
	if d, own := s.record().Bounded(); own {
		return d
	}
	return s.lane().cfg.UserTimeout
}

// A stall is that one endpoint has sent bytes that the other one has not acknowledged. It begins anew with each acknowledgement of
// more.
type stall struct {
	flip    uint64 // when the session has left, which it may have done again between two looks
	acked   uint64 // all that the endpoint has acknowledged, a position
	since   int64  // when a look has found that first, in ns of the monotonic clock
	resent  uint32 // the sender's at that look, see translate.Flow,
	packets [2]uint64
	round   uint32 // of the last look
}

// over reports whether a stall of bytes of f has lasted for longer than a time, and they are really on the way. That is shown by a sender that sends
// them again, as each does that has no acknowledgement: else the number of a damaged segment, which no endpoint has taken, would
// end a session that rests. They are those that the endpoint is to acknowledge next: a sender that keeps them back, and repeats what is behind them, has
// none but itself to wait for. A FIN that comes again is no segment with data; its endpoint is silent.
func (st *stall) over(f, o *translate.Flow, packets [2]uint64, at int64, timeout time.Duration) bool {
	switch {
	case at-st.since <= int64(timeout):
		return false
	case f.Fin != 0 && f.Sent == f.Fin && o.Acked == f.Fin-1:
		return packets[0] != st.packets[0] && packets[1] == st.packets[1]
	}
	return f.Resent != st.resent
}

// awaited reports whether f has sent bytes that the other endpoint is to acknowledge. The byte with which some kernels probe a closed
// window is none: it is behind the edge.
func awaited(f, o *translate.Flow) bool { return min(f.Sent, o.Edge) > o.Acked }

// A stalled is the sender's side of a session.
type stalled struct {
	session *Session
	from    uint8
}

// stalls are those that the sweep has found: of few sessions, and none that rests.
type stalls struct {
	of    map[stalled]stall
	round uint32
}

// look returns the endpoint that has not acknowledged for longer than the session's user timeout, and whether there is one.
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

// next forgets stalls that this round has not found any more, and begins another one.
func (l *stalls) next() {
	maps.DeleteFunc(l.of, func(_ stalled, st stall) bool { return st.round != l.round })
	l.round++
}
