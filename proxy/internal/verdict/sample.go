package verdict

import (
	"time"

	"github.com/penstock/penstock/relay"
)

// A Sample is the figures of a session over some time. Side A is the client, side B the endpoint.
type Sample struct {
	Duration time.Duration
	Waits    relay.Waits
	A, B     Peer
	// Starved is how long one thread of this process has waited for a CPU in all: the thread that waited longest.
	// Negative: unknown.
	Starved time.Duration
	// Late is the mean time that an event, which may come at any moment, has waited for this process; negative:
	// unknown.
	Late time.Duration
	// Lane is the session's time outside user space, see [OfLane]; nil: the session has never left user space. If
	// it is set, A and B are as the lane has seen them.
	Lane *Lane
}

// A Peer is one of the sides.
type Peer struct {
	relay.Leg
	// Local says that the peer is a unix socket, so there is no network in between.
	Local bool
}

// OfResult returns the sample of a session that has ended, from its beginning.
func OfResult(r *relay.Result, localA, localB bool) Sample {
	s := Sample{Duration: r.Duration, Waits: r.Waits, A: Peer{Local: localA}, B: Peer{Local: localB}, Starved: -1, Late: -1}
	if l := r.Legs; l != nil {
		s.A.Leg, s.B.Leg = l.A, l.B
	}
	return s
}

// Since returns the sample of the time since another one of the same session.
func (s Sample) Since(before *Sample) Sample {
	s.Duration -= before.Duration
	if s.Lane != nil {
		s.Lane = s.Lane.since(before)
		if before.Lane == nil {
			return s // the other figures are the lane's, and began when the session left user space
		}
	}
	w, v := &s.Waits, &before.Waits
	less := func(a, b time.Duration) time.Duration { return max(a-b, 0) } // a wait that had not ended before may have another kind now
	s.Waits = relay.Waits{
		ForA: less(w.ForA, v.ForA), ForB: less(w.ForB, v.ForB), ToA: less(w.ToA, v.ToA), ToB: less(w.ToB, v.ToB),
		Bandwidth: less(w.Bandwidth, v.Bandwidth), Loop: less(w.Loop, v.Loop),
		PausesA: w.PausesA - v.PausesA, PausesB: w.PausesB - v.PausesB,
	}
	s.A.Leg, s.B.Leg = since(s.A.Leg, &before.A.Leg), since(s.B.Leg, &before.B.Leg)
	if s.Starved >= 0 && before.Starved >= 0 {
		s.Starved -= before.Starved
	} else {
		s.Starved = -1
	}
	s.Late = -1 // a mean cannot be subtracted
	return s
}

// since subtracts the sums of before, and leaves other figures as they are.
func since(l relay.Leg, before *relay.Leg) relay.Leg {
	if !l.Known || !before.Known {
		return relay.Leg{}
	}
	l.Busy -= before.Busy
	l.PeerWindow -= before.PeerWindow
	l.SendBuffer -= before.SendBuffer
	l.Sent -= before.Sent
	l.Received -= before.Received
	l.SegmentsSent -= before.SegmentsSent
	l.SegmentsReceived -= before.SegmentsReceived
	l.Retransmitted -= before.Retransmitted
	l.OutOfOrder -= before.OutOfOrder
	return l
}
