package program

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/lane/internal/state"
)

// A table that was pinned is of another process, and may be damaged. So all that is read of a record is bounded before it is an index, and
// a session whose record no program can have written is not adopted.

// sideOf returns 1 and a side, or 0: there is none, as for a number that is no side's.
func sideOf(n uint8) uint8 {
	if n > 2 {
		return 0
	}
	return n
}

const (
	mostScale    = 14      // TCP_MAX_WSCALE (include/net/tcp.h, RFC 7323, 2.3)
	mostPosition = 1 << 62 // bytes that no session carries
)

// IsSound reports whether the record of a slot may be that of a session in the lane, or of one that was there. Members that are for
// observations alone do not count: they are bounded as they are read.
func (p *Program) IsSound(slot uint32) bool {
	s, at := p.Session(slot), p.Session(slot).State()
	switch {
	case p.strangers[slot]:
		return false
	case at != state.Lane && at != state.Done && at != state.Held && at != state.Reset:
		return false
	case s.IsReported() && at != state.Done && at != state.Reset: // one that goes on has no end
		return false
	case s.Half[0].V6 != s.Half[1].V6:
		return false
	}
	return s.Half[0].isSound() && s.Half[1].isSound()
}

func (h *laneHalf) isSound() bool {
	in := &h.In
	remote, local := address(in.Remote, in.RemotePort), address(in.Local, in.LocalPort)
	for _, at := range []*uint64{&h.Sent, &h.Acked, &h.Edge, &h.Fin, &h.Hole} {
		if atomic.LoadUint64(at) > mostPosition {
			return false
		}
	}
	for _, a := range []struct {
		unspecified, is6 bool
		port             uint16
	}{{remote.Addr().IsUnspecified(), remote.Addr().Is6(), remote.Port()}, {local.Addr().IsUnspecified(), local.Addr().Is6(), local.Port()}} {
		if a.unspecified || a.port == 0 || h.V6 > 1 || a.is6 != (h.V6 == 1) {
			return false
		}
	}
	return h.Scale <= mostScale && h.Unit <= mostScale
}

// Discard removes the tuples of a slot whose record is not sound, and has it be free, whatever its state. The slot is used again after a grace
// period.
func (p *Program) Discard(slot uint32) {
	p.Forget(slot)
	s := p.Session(slot)
	for {
		w := state.Word(atomic.LoadUint64(&s.Word))
		if atomic.CompareAndSwapUint64(&s.Word, uint64(w), uint64(w.Next(state.Free))) {
			return
		}
	}
}

// leads reports whether a tuple leads to the record that has it. If it leads to another one the session there is noted as none of ours.
func (p *Program) leads(key *laneTuple, at *lanePlace) bool {
	if at.Slot >= p.size || at.Side > 1 {
		return false
	}
	s := p.Session(at.Slot)
	if s.Generation != at.Generation || s.State() == state.Free {
		return false
	}
	if s.Half[at.Side].In != *key {
		p.strangers[at.Slot] = true
		return false
	}
	return true
}

// NotAfter has the time of the last packet, and that of the begin, be no later than now, of the monotonic clock.
func (s *Session) NotAfter(now time.Duration) {
	for _, at := range []*uint64{&s.Last, &s.Joined} {
		if n := atomic.LoadUint64(at); n > uint64(now) {
			atomic.CompareAndSwapUint64(at, n, uint64(now))
		}
	}
}
