package verdict

import (
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/relay"
)

// Times are the parts of a time, by cause.
type Times [Kinds]time.Duration

// A Lane is the part of a session's time in which it had left user space. Neither this process nor a limit of it can
// have kept the session waiting then.
type Lane struct {
	Duration time.Duration
	A, B     lane.Waits
	// Before are the parts of the time in user space.
	Before Times
}

// TimesOf returns the parts of a sample's time.
func TimesOf(s *Sample) Times {
	v := Of(s)
	var t Times
	for k := range t {
		t[k] = time.Duration(v.Shares[k] * float64(s.Duration))
	}
	return t
}

// OfLane returns the sample of a session that has left user space, with the parts of its time until then, from its
// beginning.
func OfLane(v *lane.View, before Times) Sample {
	a, b := &v.Ends[0], &v.Ends[1]
	s := Sample{
		A: Peer{Leg: legOf(a, b)}, B: Peer{Leg: legOf(b, a)}, Starved: -1,
		Lane: &Lane{Duration: v.Time, A: a.Waits, B: b.Waits, Before: before},
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

// legOf is the account of the leg to an endpoint as the lane has seen it.
func legOf(of, other *lane.End) relay.Leg {
	return relay.Leg{
		Known: true,
		Busy:  roomOf(&of.Waits), PeerWindow: of.Waits.Window,
		RTT: of.RoundTrip, MinRTT: of.LeastRoundTrip, ReceiverRTT: of.DataRoundTrip,
		Sent: int64(other.Payload), Received: int64(of.Payload), SegmentsSent: int64(other.Segments), SegmentsReceived: int64(of.Segments),
		Retransmitted: int64(other.Lost), OutOfOrder: int64(of.BehindGap),
	}
}

// since subtracts the time until another sample of the same session, which may be of before it has left.
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
	n.A, n.B = waitsSince(n.A, &was.A), waitsSince(n.B, &was.B)
	return &n
}

// waitsSince subtracts waits. One that had not ended may count elsewhere now.
func waitsSince(w lane.Waits, before *lane.Waits) lane.Waits {
	for _, d := range [][2]*time.Duration{
		{&w.Answer, &before.Answer},
		{&w.More, &before.More},
		{&w.Window, &before.Window},
		{&w.Ack, &before.Ack},
		{&w.Flight, &before.Flight},
		{&w.Gap, &before.Gap},
		{&w.Again, &before.Again},
	} {
		*d[0] = max(*d[0]-*d[1], 0)
	}
	w.Answers -= before.Answers
	w.Pauses -= before.Pauses
	return w
}

// laneTimes divides the time of a sample of a session that has left.
func (s *Sample) laneTimes(p *parts) (t [Kinds]time.Duration) {
	l := *s.Lane
	s.A.assign(&l.A, &l.B)
	s.B.assign(&l.B, &l.A)
	a, b := s.A.divideLane(&l.A), s.B.divideLane(&l.B)
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

// assign has waits count where they belong, as far as that shows in all of them.
func (p *Peer) assign(own, other *lane.Waits) {
	switch room := roomOf(own); {
	case own.Window > 0 && own.Window >= time.Duration(shut*float64(room+other.More)) && !p.troubled():
		// BBR paces to the rate at which this peer reads.
		own.Window = room + other.More
		own.Ack, own.Flight, own.Again, other.More = 0, 0, 0, 0
	case !p.losing() && !p.slowed():
		other.More += own.Flight // the other one had no more to send
		own.Flight = 0
	}
}

// divideLane divides the waits for a peer.
func (p *Peer) divideLane(w *lane.Waits) (d division) {
	d.hostTo, d.networkTo = w.Window, w.Ack+w.Flight+w.Again
	if p.RTT > p.MinRTT+delayed { // all that the window admits waits in a queue
		d.hostTo, d.networkTo = 0, d.networkTo+d.hostTo
	}
	asking := min(w.Answer, time.Duration(w.Answers)*p.MinRTT)
	if p.queueing() { // losses are in Again
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

// slowed reports whether packets to the peer, of which several are under way, take longer than one alone. Two full ones are
// acknowledged at once.
func (p *Peer) slowed() bool { return p.RTT > 2*p.MinRTT+time.Millisecond }

// queueing reports whether packets to the peer wait in a queue. A short one may have its acknowledgment delayed.
func (p *Peer) queueing() bool {
	return p.RTT > p.MinRTT+longQueue && p.Sent > 1000*p.SegmentsSent
}
