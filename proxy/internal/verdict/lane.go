package verdict

import (
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/relay"
)

// Times divides a time by cause.
type Times [Kinds]time.Duration

// A Lane is the part of a session's time outside user space. There, neither this process nor one of its limits can
// have kept the session waiting.
type Lane struct {
	Duration time.Duration
	A, B     lane.Waits
	// WindowA and WindowB are the largest windows that the sides have advertised, in bytes.
	WindowA, WindowB uint32
	// Before is the time in user space, by cause.
	Before Times
}

// TimesOf returns the parts of a sample's time.
func TimesOf(s *Sample) Times {
	v := of(s)
	var t Times
	for k := range t {
		t[k] = time.Duration(v.Shares[k] * float64(s.Duration))
	}
	return t
}

// OfLane returns the sample of a session that has left user space, from the session's beginning. before is its
// time in user space, by cause.
func OfLane(v *lane.View, before Times) Sample {
	a, b := &v.Ends[0], &v.Ends[1]
	s := Sample{
		A: Peer{Leg: legOf(a, b)}, B: Peer{Leg: legOf(b, a)}, Starved: -1,
		Lane: &Lane{Duration: v.Time, A: a.Waits, B: b.Waits, WindowA: a.WidestWindow, WindowB: b.WidestWindow, Before: before},
	}
	s.Waits = relay.Waits{
		ForA: bytesOf(&a.Waits), ForB: bytesOf(&b.Waits), ToA: roomOf(&a.Waits), ToB: roomOf(&b.Waits),
		PausesA: pausesOf(&a.Waits), PausesB: pausesOf(&b.Waits),
	}
	s.Duration = v.Time
	for _, t := range before {
		s.Duration += t
	}
	return s
}

func bytesOf(w *lane.Waits) time.Duration { return w.Answer + w.More + w.Gap }
func roomOf(w *lane.Waits) time.Duration  { return w.Window + w.Ack + w.Flight + w.Again }
func pausesOf(w *lane.Waits) int64        { return int64(w.Answers) + int64(w.Pauses) }

// legOf returns the account of one end's connection, as the lane has seen it.
func legOf(of, other *lane.End) relay.Leg {
	return relay.Leg{
		Known: true,
		Busy:  roomOf(&of.Waits), PeerWindow: of.Waits.Window,
		RTT: of.RoundTrip, MinRTT: of.LeastRoundTrip, ReceiverRTT: of.DataRoundTrip,
		Sent: int64(other.Payload), Received: int64(of.Payload), SegmentsSent: int64(other.Segments), SegmentsReceived: int64(of.Segments),
		Retransmitted: int64(other.Lost), OutOfOrder: int64(of.BehindGap),
	}
}

// since subtracts an earlier sample of the same session, which may be from before the session left user space.
func (l *Lane) since(before *Sample) *Lane {
	n := *l
	was := before.Lane
	if was == nil {
		was = &Lane{Before: TimesOf(before)}
	}
	n.Duration -= was.Duration
	for k := range n.Before {
		n.Before[k] = max(n.Before[k]-was.Before[k], 0)
	}
	if n.Duration < 0 { // until the session came back, the silence after its last packet counted as time in the lane
		n.Before[Idle] = max(n.Before[Idle]+n.Duration, 0)
		n.Duration = 0
	}
	n.A, n.B = waitsSince(n.A, &was.A), waitsSince(n.B, &was.B)
	return &n
}

// waitsSince subtracts waits. A wait that had not ended before may have another kind now.
func waitsSince(w lane.Waits, before *lane.Waits) lane.Waits {
	for _, d := range [][2]*time.Duration{
		{&w.Answer, &before.Answer},
		{&w.More, &before.More},
		{&w.Window, &before.Window},
		{&w.Ack, &before.Ack},
		{&w.Flight, &before.Flight},
		{&w.Gap, &before.Gap},
		{&w.Again, &before.Again},
		{&w.Narrow, &before.Narrow},
	} {
		*d[0] = max(*d[0]-*d[1], 0)
	}
	w.Answers -= before.Answers
	w.Pauses -= before.Pauses
	return w
}

// laneTimes divides by kind the time of a session that has left user space.
func (s *Sample) laneTimes(p *parts) (t [Kinds]time.Duration) {
	l := *s.Lane
	queueA, queueB := s.A.fills(l.WindowA, l.Duration), s.B.fills(l.WindowB, l.Duration)
	s.A.assign(&l.A, &l.B, queueA)
	s.B.assign(&l.B, &l.A, queueB)
	a, b := s.A.divideLane(&l.A, queueA), s.B.divideLane(&l.B, queueB)
	if sum := a.sum() + b.sum(); sum > l.Duration {
		scale := float64(l.Duration) / float64(sum)
		a.scale(scale)
		b.scale(scale)
	}
	t = l.Before
	rest := l.Duration - a.sum() - b.sum()
	p.a, p.b = hostParts{sent: a.hostFor, took: a.hostTo}, hostParts{sent: b.hostFor, took: b.hostTo}
	t[Client] += a.hostFor + a.hostTo
	t[Endpoint] += b.hostFor + b.hostTo
	t[ClientNetwork] += a.networkFor + a.networkTo
	t[EndpointNetwork] += b.networkFor + b.networkTo
	t[Idle] += rest
	return t
}

func (d *division) sum() time.Duration { return d.hostFor + d.networkFor + d.hostTo + d.networkTo }

const (
	// narrow: if the peer's window is narrow for more than this share of the time, see [lane.Waits], the window
	// counts as what keeps bytes back. BBR paces to the rate at which the peer reads, so the window is not shut.
	narrow = 0.5
	// vanished is the share of the time above which the path to a peer is to blame if bytes are sent again and
	// again, even if they are few of all bytes. The peer may have vanished, and the bytes on the way to it take
	// most of its window.
	vanished = 0.5
	// roundTrips limits how many round trips a full window of queued packets takes. It takes one, but the window
	// may have grown meanwhile. A slow reader needs more round trips, because it advertises less than its largest
	// window.
	roundTrips = 2
)

// fills reports whether the peer's largest window is full of packets that wait in a queue on the way to the peer.
// Then the queue takes most of a round trip, and more than a delayed acknowledgment does. And a round trip is
// about as long as sending a whole window takes.
func (p *Peer) fills(window uint32, over time.Duration) bool {
	return p.RTT > 2*p.MinRTT+delayed && float64(window)*float64(over) <= roundTrips*float64(p.Sent)*float64(p.RTT)
}

// limits reports whether the peer's window keeps bytes back, if the network shows no other cause.
func limits(own, other *lane.Waits) bool {
	all := float64(roomOf(own) + other.More)
	if float64(own.Again) >= vanished*all {
		return false
	}
	return own.Window > 0 && float64(own.Window) >= shut*all || own.Narrow > 0 && float64(own.Narrow) >= narrow*all
}

// assign moves waits to the kind to which they belong, as far as all waits together show it. queue says that the
// window is full of packets in a queue.
func (p *Peer) assign(own, other *lane.Waits, queue bool) {
	switch {
	case limits(own, other) && !p.losing() && !queue:
		own.Window = roomOf(own) + other.More
		own.Ack, own.Flight, own.Again, other.More = 0, 0, 0, 0
	case !p.losing() && !p.slowed():
		other.More += own.Flight // the other side had no more to send
		own.Flight = 0
	}
}

// divideLane divides the waits for a peer between its program and the network.
func (p *Peer) divideLane(w *lane.Waits, queue bool) (d division) {
	d.hostTo, d.networkTo = w.Window, w.Ack+w.Flight+w.Again
	if queue {
		d.hostTo, d.networkTo = 0, d.networkTo+d.hostTo
	}
	asking := min(w.Answer, time.Duration(w.Answers)*p.MinRTT)
	if p.queueing(pausesOf(w)) { // losses are in Again
		asking = w.Answer
	}
	bytes := w.Answer + w.More - asking
	receiving := p.receiving(bytes, pausesOf(w))
	d.hostFor, d.networkFor = bytes-receiving, w.Gap+asking+receiving
	return d
}

// losing reports whether packets to the peer are lost.
func (p *Peer) losing() bool {
	return p.Retransmitted > 0 && p.Retransmitted*100 >= p.SegmentsSent
}

// slowed reports whether packets to the peer take longer when several are under way than one packet alone. No
// delayed acknowledgment explains that, because two full packets are acknowledged at once.
func (p *Peer) slowed() bool { return p.RTT > 2*p.MinRTT+time.Millisecond }

// queueing reports whether packets to the peer wait in a queue. Only large packets show it, and only many before each
// pause: the acknowledgment of a short packet, and of the last one, may be delayed.
func (p *Peer) queueing(pauses int64) bool {
	least := longQueue
	if p.SegmentsSent <= atOnce*pauses {
		least = delayed
	}
	return p.RTT > p.MinRTT+least && p.Sent > 1000*p.SegmentsSent
}
