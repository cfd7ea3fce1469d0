package verdict

import "time"

// A Verdict is the limit of a session.
type Verdict struct {
	Kind Kind
	// Shares are the shares of the session's time, which add up to 1; all are 0 if it has lasted for no time.
	Shares [Kinds]float64
	sample Sample
}

// Of judges a sample. It allocates nothing.
func Of(s *Sample) Verdict {
	v := Verdict{sample: *s}
	if s.Duration <= 0 {
		return v
	}
	t := s.times()
	for k := range t {
		v.Shares[k] = float64(t[k]) / float64(s.Duration)
		if v.Shares[k] > v.Shares[v.Kind] {
			v.Kind = Kind(k)
		}
	}
	return v
}

// times divides the time of a sample.
func (s *Sample) times() (t [Kinds]time.Duration) {
	w := &s.Waits
	sum := w.ForA + w.ForB + w.ToA + w.ToB
	t[Limit], t[Proxy] = min(w.Bandwidth, s.Duration), min(w.Loop, s.Duration)
	waited := min(sum, max(s.Duration-t[Limit]-t[Proxy], 0)) // more is a wait from before, or ticks
	if sum > 0 {
		scale := float64(waited) / float64(sum)
		s.A.divide(w.ForA, w.ToA, w.PausesA, scale, &t[Client], &t[ClientNetwork], &t[Unknown])
		s.B.divide(w.ForB, w.ToB, w.PausesB, scale, &t[Endpoint], &t[EndpointNetwork], &t[Unknown])
		s.starve(&t, waited)
	}
	rest := s.Duration
	for _, d := range t {
		rest -= d
	}
	t[s.quiet()] += max(rest, 0)
	return t
}

// starve counts the time without a CPU for the proxy. A wait for a network goes on meanwhile, so it
// counts there only if there was hardly anything else.
func (s *Sample) starve(t *[Kinds]time.Duration, waited time.Duration) {
	starved := min(max(s.Starved, 0), waited)
	from := []Kind{Client, Endpoint, Unknown}
	if starved > waited/2 {
		from = append(from, ClientNetwork, EndpointNetwork)
	}
	var sum time.Duration
	for _, k := range from {
		sum += t[k]
	}
	taken := min(starved, sum)
	for _, k := range from {
		if sum > 0 {
			t[k] -= time.Duration(float64(t[k]) * float64(taken) / float64(sum))
		}
	}
	t[Proxy] += taken
}

// quiet is the kind of the time in which nothing was waited for.
func (s *Sample) quiet() Kind {
	switch {
	case s.B.Gap:
		return EndpointNetwork
	case s.A.Gap:
		return ClientNetwork
	}
	return Idle
}

// divide divides the waits for a peer between the program there and the network.
func (p *Peer) divide(bytes, room time.Duration, pauses int64, scale float64, host, network, unknown *time.Duration) {
	add := func(to *time.Duration, d time.Duration) { *to += time.Duration(float64(d) * scale) }
	switch {
	case p.Local:
		add(host, bytes+room)
		return
	case !p.Known:
		add(unknown, bytes+room)
		return
	}
	net := p.sending(room) + p.receiving(bytes, room, pauses)
	add(network, net)
	add(host, bytes+room-net)
}

// sending is the network's part of a wait for room: the time in which something else than the peer's window kept
// bytes back. BBR paces to the rate at which a slow peer reads, which is no fault of a network that neither loses
// nor queues.
func (p *Peer) sending(room time.Duration) time.Duration {
	switch {
	case p.Busy <= 0, p.window() >= shut && !p.troubled():
		return 0
	}
	return time.Duration(float64(room) * (1 - p.window()))
}

// shut is the share of the busy time from which on it is the peer's window that keeps bytes back, where the network
// shows nothing else.
const shut = 0.1

// troubled reports whether packets for the peer are lost, or wait in a queue.
func (p *Peer) troubled() bool {
	return p.Retransmitted*100 >= p.SegmentsSent && p.Retransmitted > 0 || p.RTT > p.MinRTT+queueing
}

// window is the share of the busy time that the peer's window has.
func (p *Peer) window() float64 { return min(float64(p.PeerWindow)/float64(max(p.Busy, 1)), 1) }

const (
	// queueing is by how much a round trip is longer than the least one where bytes wait in a queue: more than
	// a delayed acknowledgment's share of the average.
	queueing = 10 * time.Millisecond
	// fullFlight is how many packets at least a sender has under way that the network keeps back: its first window
	// (RFC 6928).
	fullFlight = 10
	// lossTime is how long a lost packet may keep the others waiting: the least timeout of a retransmission
	// (net/ipv4/tcp.c, TCP_RTO_MIN).
	lossTime = 200 * time.Millisecond
)

// receiving is the network's part of a wait for bytes: the time in which bytes of ours were on their way to the
// peer, and that in which its own were.
func (p *Peer) receiving(bytes, room time.Duration, pauses int64) time.Duration {
	busy := min(max(p.Busy-room, 0), bytes)
	net := p.asking(busy)
	rest := bytes - net
	switch {
	case p.OutOfOrder > 0 && p.OutOfOrder*100 >= p.SegmentsReceived/2:
		net += min(rest, time.Duration(p.OutOfOrder)*lossTime)
	case p.queued(bytes, pauses):
		net += rest
	}
	return net
}

// asking is the network's part of the time in which bytes for the peer were outstanding while it was waited for. An
// acknowledgment may wait for the peer's answer, so without a loss or a queue that is a round trip for each flight.
func (p *Peer) asking(busy time.Duration) time.Duration {
	if p.Retransmitted > 0 || p.RTT > p.MinRTT+queueing && p.Sent > 1000*p.SegmentsSent {
		return time.Duration(float64(busy) * (1 - p.window()))
	}
	return min(busy, time.Duration(p.SegmentsSent)*p.MinRTT)
}

// queued reports whether the peer's bytes wait in a queue on their way: a round trip is much longer than the pauses
// between them. The kernel's estimate of a round trip has the peer's own pauses, and there it is as long as one of them,
// or as long as it takes to receive a whole window. A pause for each packet of ours is that of an answer.
func (p *Peer) queued(bytes time.Duration, pauses int64) bool {
	pauses -= p.SegmentsSent
	return pauses > 0 && p.ReceiverRTT > p.MinRTT+queueing && p.ReceiverRTT > fullFlight*bytes/time.Duration(pauses)
}
